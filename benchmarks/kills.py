"""A training run that is killed again and again ends with the bytes of one that nobody disturbed.

    python benchmarks/kills.py VIDEOS [--work DIR] [--kills 30] [--objective walks|cycles] [--dry]

The same small run is trained twice: in one process, and in one process after the other, each of them killed and the
next going on where it left. Every kill is a real SIGKILL: nothing of Python cleans up. Most come from inside, at the
points of kill_points.py; some come from outside, at moments that a seed decides. Needs a system with SIGKILL.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kill_points import KILLS, Kill
from record import write_record
from timecycle.config import train_config
from timecycle.files import sha256
from timecycle.training.journal import read_journal
from timecycle.training.state import State
from timecycle.training.trainer import train

# Of a run that takes seconds, for the tests too.
TINY = (
    *("batch=2", "view_px=64", "patches.patch_px=24"),
    *("held_out=0.3", "held_out_clips=2", "optimizer.warm_up_steps=2"),
    *("clips.frames=3", "clips.short_side_px=72", "clips.crop_px=72", "clips.min_motion=0"),
)
SETTINGS = (*TINY, "steps=45", "checkpoint_every=3", "validate_every=10")

_PATIENCE_SECONDS = 600  # with one process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, help="an empty folder to keep both runs in")
    parser.add_argument("--kills", type=int, default=len(KILLS), choices=range(1, len(KILLS) + 1), metavar="N")
    parser.add_argument("--objective", default="walks", choices=("walks", "cycles"))
    parser.add_argument("--dry", action="store_true", help="write no record")
    chosen = parser.parse_args()
    settings = (*SETTINGS, f"objective={chosen.objective}")
    kills = [KILLS[number * len(KILLS) // chosen.kills] for number in range(chosen.kills)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        work = chosen.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        if any(work.iterdir()):
            parser.error(f"{work} is not empty: name another folder")
        found = compare(Stage(chosen.videos, work, settings), kills)
    print(json.dumps({name: value for name, value in found.measured.items() if name != "by_kill"}, indent=2))
    if found.problems:
        sys.exit("\n".join(("the killed run is not the undisturbed one:", *found.problems)))
    if not chosen.dry:
        about = {"preset": "small", "overrides": settings, "threads": 1}
        print(write_record("kills", settings=about, measured=found.measured, seconds=time.monotonic() - began))


# One process after the other


@dataclass(frozen=True)
class Stage:
    """What is trained, and the folder it happens in."""

    videos: Path
    work: Path
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Life:
    """What one process did before it ended."""

    code: int
    begun: tuple[int, ...]  # steps
    opening_seconds: float
    step_seconds: float


def live(videos: str, folder: str, notes: str, settings: Sequence[str], point: str | None) -> None:
    """A process's whole life: note every step as it begins, be doomed, train."""
    advance, file = State.advance, os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(step: int) -> None:
        os.write(file, f"{step} {time.monotonic()}\n".encode())  # not buffered: a kill must not take it along

    def noted(self: State, *words: Any) -> Any:
        note(self.step + 1)
        return advance(self, *words)

    setattr(State, "advance", noted)  # noqa: B010 - the type checker refuses the assignment
    note(0)
    doom = next((kill.doom for kill in KILLS if kill.name == point), None)
    if doom is not None:
        doom()
    # Without its record a folder holds no run yet, and there is nothing to resume.
    train(Path(videos), Path(folder), train_config("small", settings), resume=Path(folder, "train.json").exists())


def run_life(stage: Stage, name: str, number: int = 0, kill: Kill | None = None, pace: Life | None = None) -> Life:
    """Let one process train in WORK/name until it ends by itself or by `kill`."""
    notes, said = (stage.work / f"{name}-{number:02d}{suffix}" for suffix in (".steps", ".log"))
    words = (str(stage.videos), str(stage.work / name), str(notes), stage.settings, kill.name if kill else None)
    command = [sys.executable, __file__, "life", json.dumps(words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with said.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
        try:
            if kill is not None and kill.doom is None and pace is not None:
                _kill_at_random(process, notes, random.Random(number), pace)
            code = process.wait(_PATIENCE_SECONDS)
        except BaseException:  # one that hangs must neither stay nor pass for one that was killed
            process.kill()
            raise
    if code != (-signal.SIGKILL if kill else 0):
        problem = f"never came to '{kill.name}'" if kill and code == 0 else f"failed with code {code}"
        raise RuntimeError(f"process {number} in {name} {problem}\n{said.read_text()[-2000:]}")
    return _read_life(code, notes)


def _kill_at_random(process: subprocess.Popen[bytes], notes: Path, chance: random.Random, pace: Life) -> None:
    """Kill a process during its opening, or at any moment of one of its first steps."""
    steps, share = chance.randrange(4), chance.random()
    while process.poll() is None and len(_read_notes(notes)) <= steps:
        time.sleep(0.005)
    time.sleep(share * (pace.step_seconds if steps else pace.opening_seconds))
    process.kill()


def _read_notes(path: Path) -> list[tuple[int, float]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(step), float(moment)) for step, moment in map(str.split, lines)]


def _read_life(code: int, path: Path) -> Life:
    (_, born), *steps = _read_notes(path)
    moments = [moment for _, moment in steps] or [born]
    pace = (moments[-1] - moments[0]) / max(len(moments) - 1, 1)
    return Life(code, tuple(step for step, _ in steps), moments[0] - born, pace)


# What is compared


@dataclass(frozen=True)
class Row:
    """One kill, and what it cost."""

    point: str
    in_save: bool
    step: int  # the last that was begun
    checkpoint: int  # the newest that is sound, after the kill
    redone: int  # steps, begun or done, that have to be computed again


@dataclass(frozen=True)
class Found:
    """What a killed run left beside an undisturbed one."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    measured: dict[str, Any]


def compare(stage: Stage, kills: Sequence[Kill]) -> Found:
    """Train undisturbed in WORK/whole and killed in WORK/killed, and look for any difference."""
    whole, killed = (stage.work / name for name in ("whole", "killed"))
    pace = run_life(stage, whole.name)
    lives, rows = [], []
    for number, kill in enumerate(kills, start=1):
        life = run_life(stage, killed.name, number, kill, pace)
        sound = newest_sound(killed / "checkpoints")
        step = life.begun[-1] if life.begun else sound
        lives.append(life)
        rows.append(Row(kill.name, kill.in_save, step, sound, step - sound))
        print(f"{number:2d} {kill.name:48s} step {step:2d} checkpoint {sound:2d} redone {step - sound}", flush=True)
    lives.append(run_life(stage, killed.name, len(kills) + 1))
    every = train_config("small", stage.settings).checkpoint_every
    differences, stray = _differences(whole, killed), _left_over(whole, killed)
    measured = {
        "kills": sum(life.code == -signal.SIGKILL for life in lives),
        "kills_inside_a_save": sum(row.in_save for row in rows),
        "weights_sha256": {folder.name: sha256([folder / "weights.safetensors"]) for folder in (whole, killed)},
        "journal_lines": len(timeless(killed)),
        "files_compared": sorted(_files(whole)),
        "differences": len(differences),
        "left_over": stray,
        "steps_computed": sum(len(life.begun) for life in lives),
        "most_steps_redone": max(row.redone for row in rows),
        "by_kill": [asdict(row) for row in rows],
    }
    parts = [f"{name} was left over" for name in stray if name.endswith(".part")]
    return Found(tuple(rows), (*differences, *_lost(rows, lives, every), *parts), measured)


def newest_sound(folder: Path) -> int:
    """The step of the newest checkpoint with the right checksum; 0 where there is none.

    Read here once more, so that a package that passes over a sound one is found out.
    """
    for path in sorted(folder.glob("step-*.ckpt"), reverse=True):
        head, _, content = path.read_bytes().partition(b"\n")
        about = json.loads(head)
        if hashlib.sha256(content).hexdigest() == about["sha256"]:
            return int(about["step"])
    return 0


def _differences(whole: Path, killed: Path) -> list[str]:
    wanted, there = _files(whole), _files(killed)
    problems = [f"{name} is missing or has other bytes" for name in wanted if there.get(name) != wanted[name]]
    for lines in itertools.zip_longest(timeless(whole), timeless(killed)):
        if lines[0] != lines[1]:
            return [*problems, f"the journals differ: {lines[0]} and {lines[1]}"]
    return problems


def _lost(rows: Sequence[Row], lives: Sequence[Life], every: int) -> list[str]:
    """Kills that cost more than the steps since the last save was due, or after which the run went on elsewhere."""
    problems = [f"'{row.point}' cost {row.redone} steps; saves are {every} apart" for row in rows if row.redone > every]
    for row, after in zip(rows, lives[1:], strict=True):
        if after.begun and after.begun[0] != row.checkpoint + 1:
            problems.append(f"after '{row.point}' step {after.begun[0]} came next, not {row.checkpoint + 1}")
    return problems


def _files(folder: Path) -> dict[str, str]:
    """Checksums of what a run gives: all but the journal, which holds times, and its checkpoints."""
    names = [name for name in _names(folder) if name != "journal.jsonl" and not name.startswith("checkpoints/")]
    return {name: sha256([folder / name]) for name in names}


def _left_over(whole: Path, killed: Path) -> list[str]:
    """Files that only the killed run has; the random part of temporary names says nothing."""
    names = set(_names(killed)) - set(_names(whole))
    return sorted(re.sub(r"\.\w{8}\.part$", ".*.part", name) for name in names)


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def timeless(folder: Path) -> list[dict[str, Any]]:
    """The journal without what depends on the clock."""
    clock = ("seconds", "data_share")
    return [{key: value for key, value in line.items() if key not in clock} for line in read_journal(folder)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["life"]:
        live(*json.loads(sys.argv[2]))
    else:
        main()
