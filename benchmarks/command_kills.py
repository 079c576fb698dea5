"""Kill commands while they write, run them again, and compare the results with those of undisturbed commands.

    python benchmarks/command_kills.py [--work DIR] [--kills 13] [--command NAME ...] [--dry]

The commands are propagate, correct, undo, bulk with folders and with chunks, pack, convert and evaluate, on small clips
of the synthetic world, matched by colours; kills.py does the same for training. Each command runs once undisturbed
while its file changes are counted: opening for writing, renaming, removing and making folders. Then a process of it is
killed with SIGKILL just before a change, at points spread evenly over all changes. The same command runs once more, and
its output must be equal. What depends on the clock (times in records, leases) is ignored, and of overlay videos only
the number of frames is compared; those inside of a chunk only by name. Needs a system with SIGKILL and fork.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from record import write_record
from timecycle.cli.main import main as timecycle
from timecycle.labels import Masks
from timecycle.synthetic import World, WorldConfig, make_world
from timecycle.video import Size, VideoWriter, open_video

SHARED = Path(__file__).parents[1] / "tests" / "shared"
sys.path.append(str(SHARED))

from trees import davis_tree  # noqa: E402

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")
# Times, counts of what one process did, and checksums of files with such content.
_VOLATILE = {
    "summary.json": re.compile(r'"(seconds|frames_a_second|frames|before)": [^,\n]*'),
    "*": re.compile(r'"seconds": [^,}\n]*|"(overlay\.mp4|run\.json)": \[[^]]*\]'),
}
_FRAMES, _MIDDLE, _CLIPS = 8, 4, 3
_QUICK = ("--encoder", "rgb", "--preset", "fast")
_NOT_KILLED = -1  # a point that is never reached
_KILLED = -1  # instead of a count of changes


@dataclass(frozen=True)
class Command:
    """A command that writes, its starting point, and how it is run again after a kill."""

    name: str
    arguments: Callable[[Path], Sequence[str]]  # by the folder it writes to
    begin: Callable[[Path], object] = lambda out: None
    again: Callable[[Path], Sequence[str] | None] | None = None  # if different; None: it had finished


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="an empty folder for all outputs, which are kept")
    parser.add_argument("--kills", type=int, default=13, help="kills of each command (13)", metavar="N")
    parser.add_argument("--command", nargs="+", help="only these commands", metavar="NAME")
    parser.add_argument("--dry", action="store_true", help="write no record")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        work = (chosen.work or Path(scratch)).absolute()
        commands = [one for one in prepare(work / "inputs") if not chosen.command or one.name in chosen.command]
        results = {one.name: compare(one, work / one.name, chosen.kills) for one in commands}
    measured = {
        "kills": sum(one["kills"] for one in results.values()),
        "differences": sum(len(one["differences"]) for one in results.values()),
        "by_command": results,
    }
    print(json.dumps(measured, indent=2))
    if not chosen.dry:
        about = {"kills_per_command": chosen.kills, "threads": 1, "encoder": "rgb", "preset": "fast", "frames": _FRAMES}
        print(write_record("command_kills", settings=about, measured=measured, seconds=time.monotonic() - began))
    sys.exit(1 if measured["differences"] else 0)


# The commands


def prepare(folder: Path) -> list[Command]:
    """Make the inputs of all commands: clips, masks, a manifest, a finished run and a corrected run."""
    folder.mkdir(parents=True)
    world = make_world(WorldConfig(height_px=64, width_px=96, frames=_FRAMES))
    clip, first, middle = _write_clip(folder / "clip.mp4", world), folder / "first.png", folder / "middle.png"
    Masks(world.mask(0)).write(first)
    Masks(world.mask(_MIDDLE)).write(middle)
    (folder / "clips").mkdir()
    for number in range(_CLIPS):
        config = WorldConfig(height_px=64, width_px=96, frames=_FRAMES, seed=number)
        _write_clip(folder / f"clips/{number}.mp4", make_world(config))
    lines = "".join(f"clips/{number}.mp4,first.png\n" for number in range(_CLIPS))
    (folder / "manifest.csv").write_text("video,labels\n" + lines)
    finished, corrected = folder / "finished", folder / "corrected"
    _succeed("propagate", clip, first, "-o", finished, *_QUICK)
    shutil.copytree(finished, corrected)
    _succeed("correct", corrected, f"{_MIDDLE}={middle}")
    davis_tree(folder / "davis", clips=2)
    davis = ("--sequences", "clip00", "clip01")
    pack = ("--short-side", "48", "--shard-mb", "0.02", "--workers", "1")
    return [
        Command(
            "propagate",
            lambda out: ("propagate", *map(str, (clip, first)), "-o", str(out), *_QUICK),
            again=lambda out: (
                *("propagate", *map(str, (clip, first)), "-o", str(out), *_QUICK),
                *(["--resume"] if (out / "run.json").exists() else []),
            ),
        ),
        Command(
            "correct",
            lambda out: ("correct", str(out), f"{_MIDDLE}={middle}"),
            begin=partial(shutil.copytree, finished),
            again=lambda out: None if _corrections(out) == 1 else ("correct", str(out), f"{_MIDDLE}={middle}"),
        ),
        Command(
            "undo",
            lambda out: ("correct", str(out), "--undo"),
            begin=partial(shutil.copytree, corrected),
            again=lambda out: ("correct", str(out), "--undo") if (out / "history").exists() else None,
        ),
        Command("bulk", lambda out: ("bulk", str(folder / "manifest.csv"), "-o", str(out), *_QUICK)),
        Command(
            "bulk --chunk", lambda out: ("bulk", str(folder / "manifest.csv"), "-o", str(out), "--chunk", "2", *_QUICK)
        ),
        Command("pack", lambda out: ("pack", str(folder / "clips"), str(out), *pack)),
        Command(
            "convert",
            lambda out: ("convert", str(finished), str(out), "--to", "yolo"),
            again=lambda out: ("convert", str(finished), str(out), "--to", "yolo", "--overwrite"),
        ),
        Command(
            "evaluate",
            lambda out: ("evaluate", "davis", str(folder / "davis"), *davis, "-o", str(out), *_QUICK),
            again=lambda out: (
                *("evaluate", "davis", str(folder / "davis"), *davis, "-o", str(out), *_QUICK),
                "--overwrite",
            ),
        ),
    ]


def _write_clip(path: Path, world: World) -> Path:
    with VideoWriter(path, Size(world.config.height_px, world.config.width_px), Fraction(1, 24)) as writer:
        for index, image in enumerate(world.frames()):
            writer.write(image, index)
    return path


def _corrections(out: Path) -> int:
    """Count the corrections of a run; 0 if the last one was interrupted."""
    entries = len(list((out / "history").glob("*/entry.json")))
    return entries if json.loads((out / "run.json").read_text()).get("corrections", 0) == entries else 0


# Killing and comparing


def compare(command: Command, work: Path, kills: int) -> dict[str, Any]:
    """Run a command undisturbed, and killed at points spread over all its changes; return every difference."""
    work.mkdir(parents=True)
    whole = work / "whole"
    command.begin(whole)
    changes = _run(command.arguments(whole), whole, _NOT_KILLED)
    expected = contents(whole)
    points = sorted({1 + number * changes // kills for number in range(kills)})
    killed, differences = 0, []
    for point in points:
        out = work / f"{point:05d}"
        command.begin(out)
        killed += _run(command.arguments(out), out, point) == _KILLED
        again = command.again(out) if command.again else command.arguments(out)
        if again is not None:
            _run(again, out, _NOT_KILLED)
        differences += [f"change {point}: {name}" for name in differing(expected, contents(out))]
        shutil.rmtree(out)
        print(f"{command.name:12s} killed before change {point:4d} of {changes}", flush=True)
    return {"changes": changes, "kills": killed, "files_compared": len(expected), "differences": differences}


def _run(arguments: Sequence[str], out: Path, point: int) -> int:
    """Run a command in a process of its own; returns its number of changes, or _KILLED if it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            changes = _count_changes(out.name, point)
            with contextlib.redirect_stdout(io.StringIO()):
                code = _exit_code(arguments)
            os.write(writer, str(changes()).encode())
        finally:
            os._exit(code)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        count = pipe.read()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and point != _NOT_KILLED:
        return _KILLED
    if status:
        raise RuntimeError(f"timecycle {' '.join(arguments)} failed with status {status}")
    return int(count)


def _count_changes(folder: str, point: int) -> Callable[[], int]:
    """Count file changes below a folder of this name from now on, and kill this process just before one of them."""
    changes = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal changes
        is_write = event == "open" and int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if (is_write or event in _CHANGES) and f"/{folder}" in str(arguments[0]):
            changes += 1
            if changes == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    return lambda: changes


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        return int(timecycle(list(arguments)) or 0)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _succeed(*arguments: object) -> None:
    _run([str(argument) for argument in arguments], Path("no such folder"), _NOT_KILLED)


def contents(folder: Path) -> dict[str, str]:
    """Return the checksums of all files, ignoring what depends on the clock or on the folder's name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _checksum(path, folder) for path in files if path.name != ".lock"}


def _checksum(path: Path, folder: Path) -> str:
    if path.suffix == ".mp4":
        with open_video(path) as video:
            return f"{len(video)} frames"
    if path.suffix == ".tar":
        with tarfile.open(path) as tar:
            members = [(one.name, file.read()) for one in tar if (file := tar.extractfile(one)) is not None]
        lines = [f"{name} {'' if name.endswith('.mp4') else _digest(name, data, folder)}" for name, data in members]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    return _digest(path.name, path.read_bytes(), folder)


def _digest(name: str, content: bytes, folder: Path) -> str:
    if name.endswith((".json", ".jsonl")):
        volatile = _VOLATILE.get(Path(name).name, _VOLATILE["*"])
        content = volatile.sub("", content.decode().replace(str(folder), "OUT")).encode()
    return hashlib.sha256(content).hexdigest()


def differing(expected: dict[str, str], actual: dict[str, str]) -> list[str]:
    """Return the files that are missing, extra or different."""
    return sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name))


if __name__ == "__main__":
    main()
