"""Compiles the kernel into the package where there is a C++ compiler. Without one the package is complete all the same:
matching then runs in torch. After a change of kernel.cpp: python hatch_build.py

It also makes the README readable outside of the repository: see ReadmeForIndex.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDER = "src/timecycle/kernel"

_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Wno-psabi")
_GENERIC: dict[str, tuple[str, ...]] = {"generic": ()}
_X86 = {"avx2": ("-mavx2", "-mfma"), "avx512": ("-mavx2", "-mfma", "-mavx512f")}


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before it packs the wheel, or lays the links of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / FOLDER
        try:
            compile_kernel(folder)
        except CannotCompileError as error:
            for old in folder.glob("*.so"):  # one made of another source is worse than none
                old.unlink()
            self.app.display_warning(f"without the compiled kernel: {error}")
            return
        build_data["artifacts"].append(f"{FOLDER}/*.so")
        build_data["pure_python"] = False
        # For this kind of machine: whether it fits others (manylinux) is for an audit to say, not for the build.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


class ReadmeForIndex(MetadataHookInterface):
    """Called by hatchling for the metadata, which hold the README as the package index shows it.

    There is no checkout there, so the package is installed by its name; nor is there a docs/ beside it, so links must
    name the repository. Its address has one home, `Repository` in [project.urls]; without one the links stay as they
    are, and .ci/release_check.py refuses to release.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        text = install_by_name((Path(self.root) / "README.md").read_text(encoding="utf-8"))
        repository = metadata.get("urls", {}).get("Repository", "").rstrip("/")
        if repository:
            (version,) = re.findall(
                r'= "(.+)"', (Path(self.root) / "src/timecycle/version.py").read_text(encoding="utf-8")
            )
            text = link_to(text, repository, tag=f"v{version}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def install_by_name(readme: str) -> str:
    """Return the README with commands that install the package from the index, not from a checkout.

    A comment behind a command keeps its column.
    """
    name = "timecycle"
    readme = readme.replace("pip install '.[", f"pip install '{name}[").replace("# from a checkout; ", "# ")
    return re.sub(rf"pip install \.(?: {{{len(name) - 1}}}(?= )|(?=[\s`]|$))", f"pip install {name}", readme)


def link_to(readme: str, repository: str, *, tag: str) -> str:
    """Return the README with each link and picture at its address in the repository, at the tag of a version."""

    def absolute(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if target.startswith(("http://", "https://")):
            return link[0]
        view = "raw" if mark else "blob"  # a picture itself, not the page around it
        return f"{mark}[{text}]({repository}/{view}/{tag}/{'README.md' if target.startswith('#') else ''}{target})"

    return re.sub(r"(!?)\[([^]]*)\]\(([^)]+)\)", absolute, readme)


class CannotCompileError(Exception):
    """There is no compiler, or it refused."""


def compile_kernel(folder: Path) -> None:
    """kernel_FORM.so beside kernel.cpp, for every instruction set of this kind of machine."""
    if sys.platform == "win32":
        raise CannotCompileError("it is not built on Windows")
    compiler = shlex.split(os.environ.get("CXX", "")) or [
        next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), "")
    ]
    if compiler == [""]:
        raise CannotCompileError("no C++ compiler was found")
    source = f"-DSOURCE={zlib.crc32((folder / 'kernel.cpp').read_bytes())}u"
    forms = _GENERIC | (_X86 if platform.machine() in ("x86_64", "AMD64") else {})
    with tempfile.TemporaryDirectory() as scratch:
        for name, flags in forms.items():
            made = f"{scratch}/kernel_{name}.so"
            _run(*compiler, *_FLAGS, *flags, source, str(folder / "kernel.cpp"), "-o", made)
        for name in forms:  # all or none, and never half a file for a process that looks for one
            part = folder / f".kernel_{name}.{os.getpid()}.part"
            shutil.copyfile(f"{scratch}/kernel_{name}.so", part)
            part.replace(folder / f"kernel_{name}.so")


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotCompileError(f"{words[0]} cannot be run: {error}") from error
    if done.returncode:
        raise CannotCompileError(f"{' '.join(words)} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    compile_kernel(Path(__file__).parent / FOLDER)
