"""Bulk runs of the command line in tests: commands, what they write, and killed workers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from timecycle.cli import main
from timecycle.video import open_video

SETTINGS = ("--preset", "fast", "--set", "image_size_px=64", "--encoder", "rgb")


def command(corpus: Path, out: object, *words: object, manifest: str = "videos.csv") -> list[str]:
    return [
        sys.executable,
        "-m",
        "timecycle",
        "bulk",
        str(corpus / manifest),
        "-o",
        str(out),
        *SETTINGS,
        *map(str, words),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "RAY_DISABLE_IMPORT_WARNING": "1"}


def finish(words: list[str], *, code: int = 0) -> str:
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=240)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout + done.stderr


def run_here(capsys, corpus: Path, out: object, *words: object, manifest: str = "videos.csv") -> tuple[int, str]:
    """Run the command in this process."""
    code = main(command(corpus, out, *words, manifest=manifest)[3:])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def contents(folder: Path) -> dict[str, bytes]:
    """The files that both commands write; of run.json, the fields that do not depend on time and paths.

    Of the overlay video the number of frames: libx264 does not always encode images this small the same way twice.
    """
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    files = {name.as_posix(): path.read_bytes() for name, path in paths.items() if name.parts[0] != ".passes"}
    with open_video(folder / "overlay.mp4") as overlay:
        files["overlay.mp4"] = str(len(overlay)).encode()
    record = json.loads(files.pop("run.json"))
    kept = {name: record[name] for name in ("video", "labels", "encoder", "config", "status")}
    return {**files, "run.json": json.dumps(kept).encode()}


def until(condition, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.02)


def kill_a_worker(task: str) -> bool:
    """Kill a Ray worker that runs a task."""
    for _ in range(500):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().startswith(f"ray::{task}".encode()):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    return True
            except (FileNotFoundError, ProcessLookupError):
                continue
        time.sleep(0.01)
    return False
