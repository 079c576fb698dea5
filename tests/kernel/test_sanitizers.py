"""The kernel has no invalid memory access, no undefined behaviour and no data race."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from timecycle.kernel.library import VARIANTS, find_kernel

KERNEL = Path(sys.modules["timecycle.kernel.library"].__file__).with_name("kernel.cpp")
FLAGS = {"generic": (), "avx2": ("-mavx2", "-mfma"), "avx512": ("-mavx2", "-mfma", "-mavx512f")}
REPORT = ("Sanitizer", "runtime error")


def build(folder: Path, variant: str, sanitizer: str) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs a C++ compiler with sanitizers, and an x86-64 processor")
    target = folder / f"{variant}-{sanitizer[:4]}"
    words = [compiler, "-O1", "-g", "-std=c++17", "-pthread", "-Wno-psabi", f'-DKERNEL="{KERNEL}"', *FLAGS[variant]]
    words += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", str(Path(__file__).with_name("sanitized.cpp"))]
    done = subprocess.run([*words, "-o", str(target)], capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow  # compiles the kernel with sanitizers, which make it several times slower
@pytest.mark.parametrize(
    ("variant", "sanitizer"),
    [("generic", "address,undefined"), ("avx512", "address,undefined"), ("avx512", "thread")],  # avx2 is between them
)
def test_the_kernel_passes_the_sanitizers(tmp_path, variant, sanitizer):
    if find_kernel().variant not in VARIANTS[VARIANTS.index(variant) :]:
        pytest.skip("this processor cannot run the variant")
    done = subprocess.run([build(tmp_path, variant, sanitizer)], capture_output=True, text=True, check=False)
    assert not any(word in done.stderr for word in REPORT), done.stderr[-3000:]
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout == "60 rounds\n"


@pytest.mark.slow  # compiles it once more
def test_the_sanitizer_detects_an_invalid_read(tmp_path, monkeypatch):
    """A kernel that reads one value too many fails."""
    broken = tmp_path / "kernel.cpp"
    source = KERNEL.read_text()
    assert "for (int i = 0; i < votes; ++i) {" in source
    broken.write_text(source.replace("for (int i = 0; i < votes; ++i) {", "for (int i = 0; i <= votes; ++i) {"))
    monkeypatch.setitem(globals(), "KERNEL", broken)
    done = subprocess.run([build(tmp_path, "generic", "address")], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
