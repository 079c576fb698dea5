"""Compare a training run that is killed many times with an undisturbed run: the bytes must be equal.

    python benchmarks/kills.py VIDEOS [--work DIR] [--kills 30] [--objective walks|cycles] [--dry]

The same small run is trained twice: in one process, and in a sequence of processes that are killed and resumed. Every
kill is a real SIGKILL: nothing of Python cleans up. Most come from inside, at the points of kill_points.py; some come
from outside, at moments that a seed decides. Needs a system with SIGKILL.
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
from timecycle.training.record import read_journal
from timecycle.training.step import State
from timecycle.training.trainer import train

# Settings of a run that takes seconds.
TINY = (
    *("batch=2", "view_px=64", "patches.patch_px=24"),
    *("held_out=0.3", "held_out_clips=2", "optimizer.warmup_steps=2"),
    *("clips.frames=3", "clips.short_side_px=72", "clips.crop_px=72", "clips.min_motion=0"),
)
SETTINGS = (*TINY, "steps=45", "checkpoint_every=3", "validate_every=10")

_TIMEOUT_SECONDS = 600  # of one process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, help="an empty folder to keep both runs in")
    parser.add_argument("--kills", type=int, default=len(KILLS), choices=range(1, len(KILLS) + 1), metavar="N")
    parser.add_argument("--objective", default="walks", choices=("walks", "cycles"))
    parser.add_argument("--dry", action="store_true", help="write no record")
    arguments = parser.parse_args()
    settings = (*SETTINGS, f"objective={arguments.objective}")
    kills = [KILLS[number * len(KILLS) // arguments.kills] for number in range(arguments.kills)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        if any(work.iterdir()):
            parser.error(f"{work} is not empty: name another folder")
        result = compare(Stage(arguments.videos, work, settings), kills)
    print(json.dumps({name: value for name, value in result.measured.items() if name != "by_kill"}, indent=2))
    if result.problems:
        sys.exit("\n".join(("the killed run differs from the undisturbed one:", *result.problems)))
    if not arguments.dry:
        about = {"preset": "small", "overrides": settings, "threads": 1}
        print(write_record("kills", settings=about, measured=result.measured, seconds=time.monotonic() - began))


# Processes


@dataclass(frozen=True)
class Stage:
    """Videos, work folder and settings of both runs."""

    videos: Path
    work: Path
    settings: tuple[str, ...]


@dataclass(frozen=True)
class ProcessRun:
    """What one process did before it ended."""

    code: int
    begun: tuple[int, ...]  # steps
    startup_seconds: float
    step_seconds: float


def train_and_note(videos: str, folder: str, notes: str, settings: Sequence[str], point: str | None) -> None:
    """Run in a process of its own: note every step as it begins, arm the kill, train."""
    advance, file = State.advance, os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(step: int) -> None:
        os.write(file, f"{step} {time.monotonic()}\n".encode())  # unbuffered: a kill must not lose it

    def noted(self: State, *words: Any) -> Any:
        note(self.step + 1)
        return advance(self, *words)

    setattr(State, "advance", noted)  # noqa: B010 - the type checker refuses the assignment
    note(0)
    arm = next((kill.arm for kill in KILLS if kill.name == point), None)
    if arm is not None:
        arm()
    # Without its record, a folder holds no run to resume.
    train(Path(videos), Path(folder), train_config("small", settings), resume=Path(folder, "train.json").exists())


def run_process(
    stage: Stage, name: str, number: int = 0, kill: Kill | None = None, pace: ProcessRun | None = None
) -> ProcessRun:
    """Let one process train in WORK/name until it finishes or is killed."""
    notes, log_path = (stage.work / f"{name}-{number:02d}{suffix}" for suffix in (".steps", ".log"))
    words = (str(stage.videos), str(stage.work / name), str(notes), stage.settings, kill.name if kill else None)
    command = [sys.executable, __file__, "process", json.dumps(words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log_path.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
        try:
            if kill is not None and kill.arm is None and pace is not None:
                _kill_at_random(process, notes, random.Random(number), pace)
            code = process.wait(_TIMEOUT_SECONDS)
        except BaseException:  # a process that hangs must neither stay nor count as killed
            process.kill()
            raise
    if code != (-signal.SIGKILL if kill else 0):
        problem = f"never reached '{kill.name}'" if kill and code == 0 else f"failed with code {code}"
        raise RuntimeError(f"process {number} in {name} {problem}\n{log_path.read_text()[-2000:]}")
    return _read_process_run(code, notes)


def _kill_at_random(process: subprocess.Popen[bytes], notes: Path, chance: random.Random, pace: ProcessRun) -> None:
    """Kill a process during its startup, or at any moment of one of its first steps."""
    steps, share = chance.randrange(4), chance.random()
    while process.poll() is None and len(_read_notes(notes)) <= steps:
        time.sleep(0.005)
    time.sleep(share * (pace.step_seconds if steps else pace.startup_seconds))
    process.kill()


def _read_notes(path: Path) -> list[tuple[int, float]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(step), float(moment)) for step, moment in map(str.split, lines)]


def _read_process_run(code: int, path: Path) -> ProcessRun:
    (_, start), *steps = _read_notes(path)
    moments = [moment for _, moment in steps] or [start]
    pace = (moments[-1] - moments[0]) / max(len(moments) - 1, 1)
    return ProcessRun(code, tuple(step for step, _ in steps), moments[0] - start, pace)


# Comparison


@dataclass(frozen=True)
class Row:
    """One kill, and the steps it lost."""

    point: str
    in_save: bool
    step: int  # the last one begun
    checkpoint: int  # the newest intact one after the kill
    redone: int  # steps that have to be computed again


@dataclass(frozen=True)
class Comparison:
    """The result of comparing a killed with an undisturbed run."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    measured: dict[str, Any]


def compare(stage: Stage, kills: Sequence[Kill]) -> Comparison:
    """Train undisturbed in WORK/whole and with kills in WORK/killed, and list all differences."""
    whole, killed = (stage.work / name for name in ("whole", "killed"))
    pace = run_process(stage, whole.name)
    process_runs, rows = [], []
    for number, kill in enumerate(kills, start=1):
        process_run = run_process(stage, killed.name, number, kill, pace)
        intact = newest_intact(killed / "checkpoints")
        step = process_run.begun[-1] if process_run.begun else intact
        process_runs.append(process_run)
        rows.append(Row(kill.name, kill.in_save, step, intact, step - intact))
        print(f"{number:2d} {kill.name:48s} step {step:2d} checkpoint {intact:2d} redone {step - intact}", flush=True)
    process_runs.append(run_process(stage, killed.name, len(kills) + 1))
    every = train_config("small", stage.settings).checkpoint_every
    differences, stray = _differences(whole, killed), _left_over(whole, killed)
    measured = {
        "kills": sum(process_run.code == -signal.SIGKILL for process_run in process_runs),
        "kills_inside_a_save": sum(row.in_save for row in rows),
        "weights_sha256": {folder.name: sha256([folder / "weights.safetensors"]) for folder in (whole, killed)},
        "journal_lines": len(without_times(killed)),
        "files_compared": sorted(_files(whole)),
        "differences": len(differences),
        "left_over": stray,
        "steps_computed": sum(len(process_run.begun) for process_run in process_runs),
        "most_steps_redone": max(row.redone for row in rows),
        "by_kill": [asdict(row) for row in rows],
    }
    parts = [f"{name} was left over" for name in stray if name.endswith(".part")]
    return Comparison(tuple(rows), (*differences, *_lost(rows, process_runs, every), *parts), measured)


def newest_intact(folder: Path) -> int:
    """Return the step of the newest checkpoint with the right checksum; 0 if there is none.

    This does not use the package, to detect it skipping an intact checkpoint.
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
    for lines in itertools.zip_longest(without_times(whole), without_times(killed)):
        if lines[0] != lines[1]:
            return [*problems, f"the journals differ: {lines[0]} and {lines[1]}"]
    return problems


def _lost(rows: Sequence[Row], process_runs: Sequence[ProcessRun], every: int) -> list[str]:
    """List kills that lost more steps than lie between two saves, or after which the run resumed at another step."""
    problems = [f"'{row.point}' lost {row.redone} steps; saves are {every} apart" for row in rows if row.redone > every]
    for row, after in zip(rows, process_runs[1:], strict=True):
        if after.begun and after.begun[0] != row.checkpoint + 1:
            problems.append(f"after '{row.point}' the run resumed at step {after.begun[0]}, not {row.checkpoint + 1}")
    return problems


def _files(folder: Path) -> dict[str, str]:
    """Return the checksums of a run's files except the journal, which holds times, and the checkpoints."""
    names = [name for name in _names(folder) if name != "journal.jsonl" and not name.startswith("checkpoints/")]
    return {name: sha256([folder / name]) for name in names}


def _left_over(whole: Path, killed: Path) -> list[str]:
    """List files that only the killed run has; the random part of temporary names is dropped."""
    names = set(_names(killed)) - set(_names(whole))
    return sorted(re.sub(r"\.\w{8}\.part$", ".*.part", name) for name in names)


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def without_times(folder: Path) -> list[dict[str, Any]]:
    """Read the journal without the fields that depend on the clock."""
    clock = ("seconds", "data_share")
    return [{key: value for key, value in line.items() if key not in clock} for line in read_journal(folder)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["process"]:
        train_and_note(*json.loads(sys.argv[2]))
    else:
        main()
