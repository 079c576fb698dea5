"""Every reader of the package, given files that are damaged or were made to mislead it.

    python benchmarks/fuzz.py [--kind KIND ...] [--count N] [--seed S] [--work DIR] [--workers N] [--minutes M] [--dry]
    python benchmarks/fuzz.py --replay KIND:NUMBER [--seed S]

An input is a whole file with changes that follow from seed, kind and number alone. It must be read, or refused with an
error of the package. Found are crashes (a signal), hangs (no answer in time), exceptions of other libraries, and
results that are wrong without an error: a shorter video, a mask with other ids, a resumed run with other bytes. Inputs
are read in processes with limits on memory, files and time; one process reads many. Needs Linux.
"""

import argparse
import json
import math
import multiprocessing
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from fuzz_child import ACCEPTED, OTHER_EXCEPTION, REFUSED, WRONG, chance_of, find_kind, make, prepare, serve
from record import write_record

CRASH, HANG = "crash", "hang"
FINDINGS = (CRASH, HANG, OTHER_EXCEPTION, WRONG)

_PREPARING_SECONDS = 300.0
_CHUNK = 20  # inputs that a process takes at once
_MOST_LISTED = 200  # findings, in the record
_TOLD_EVERY = 1000  # inputs


@dataclass(frozen=True)
class Outcome:
    """What became of an input."""

    kind: str
    number: int
    sort: str
    words: str


def main() -> None:
    kinds = sorted(_all_kinds())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kind", nargs="+", default=kinds, help=f"of {', '.join(kinds)}; or MODULE:NAME", metavar="KIND"
    )
    parser.add_argument("--count", type=int, default=2000, help="inputs of all kinds together (2000)", metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--work", type=Path, help="a folder to keep failing inputs in", metavar="DIR")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)", metavar="N")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after these", metavar="M")
    parser.add_argument("--replay", help="read one input here, with its traceback", metavar="KIND:NUMBER")
    parser.add_argument("--dry", action="store_true", help="write no record")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = (chosen.work or Path(scratch)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        if chosen.replay:
            word, _, number = chosen.replay.rpartition(":")
            print(replay(word, int(number), seed=chosen.seed, work=work))
            return
        began = time.monotonic()
        numbers = spread(chosen.kind, chosen.count)
        outcomes = fuzz(
            numbers, seed=chosen.seed, work=work, workers=chosen.workers, minutes=chosen.minutes, show=_show
        )
    measured = summary(outcomes)
    print(json.dumps({name: value for name, value in measured.items() if name != "listed"}, indent=2))
    if not chosen.dry:
        about = {"seed": chosen.seed, "requested": chosen.count}
        print(write_record("fuzz", settings=about, measured=measured, seconds=time.monotonic() - began))
    sys.exit(1 if measured["listed"] else 0)


def _all_kinds() -> Sequence[str]:
    from fuzz_targets import KINDS  # noqa: PLC0415  the processes that read need not wait for it here

    return list(KINDS)


def spread(words: Sequence[str], count: int) -> dict[str, int]:
    """How many inputs of each kind make `count` together."""
    shares = {word: find_kind(word).share for word in words}
    return {word: max(1, round(count * share / sum(shares.values()))) for word, share in shares.items()}


def fuzz(
    numbers: dict[str, int],
    *,
    seed: int,
    work: Path,
    workers: int = 1,
    minutes: float = math.inf,
    show: Callable[[Outcome, int], None] | None = None,
) -> list[Outcome]:
    """Read so many inputs of every kind, fewer where time runs out; failing inputs are kept in WORK/found."""
    end = time.monotonic() + 60 * minutes
    chunks: SimpleQueue[tuple[str, range]] = SimpleQueue()
    for chunk in _chunks(numbers):
        chunks.put(chunk)
    outcomes: list[Outcome] = []
    problems: list[BaseException] = []

    def work_off(number: int) -> None:
        try:
            with Reader(seed, work / f"reader-{number}") as reader:
                for word, part in _taken(chunks, end):
                    for one in part:
                        outcome = reader.read(word, one)
                        outcomes.append(outcome)
                        if outcome.sort in FINDINGS:
                            _keep(reader.work / "input", work / "found" / f"{word}-{one}".replace(":", "-"))
                        if show is not None:
                            show(outcome, len(outcomes))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work_off, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return sorted(outcomes, key=lambda one: (one.kind, one.number))


def _chunks(numbers: dict[str, int]) -> list[tuple[str, range]]:
    """All inputs, some of every kind at any time: a run that is ended early has seen all kinds."""
    chunks = [
        (word, range(start, min(start + _CHUNK, count)))
        for word, count in numbers.items()
        for start in range(0, count, _CHUNK)
    ]
    return sorted(chunks, key=lambda chunk: (chunk[1].start / numbers[chunk[0]], chunk[0]))


def _taken(chunks: "SimpleQueue[tuple[str, range]]", end: float) -> Iterator[tuple[str, range]]:
    while time.monotonic() < end:
        try:
            yield chunks.get_nowait()
        except Empty:
            return


def _keep(folder: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if folder.is_dir():
        shutil.copytree(folder, target, symlinks=True)


class Reader:
    """A process that reads inputs, and the next one where it ended."""

    def __init__(self, seed: int, work: Path) -> None:
        self.work = work
        self._seed = seed
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> "Reader":
        self.work.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, word: str, number: int) -> Outcome:
        """Let the process make and read an input, and wait no longer than its kind allows."""
        if self._process is None:
            self._begin()
        self._pipe.send((word, number))
        if self._answer(_PREPARING_SECONDS) != "made":
            self._end()
            raise RuntimeError(f"{word}:{number} cannot be made; {self.work / 'child.log'} says why")
        answer = self._answer(find_kind(word).patience_seconds)
        if answer is not None:
            return Outcome(word, number, *answer)
        code = self._end()
        if code is None:
            return Outcome(word, number, HANG, "no answer in time")
        if code == -signal.SIGXCPU:
            return Outcome(word, number, HANG, "more processor time than allowed")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Outcome(word, number, CRASH, name)

    def _begin(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit the threads of torch
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, self._seed, str(self.work)), daemon=True)
        self._process.start()
        theirs.close()

    def _answer(self, seconds: float) -> Any:
        """What the process says; None if it says nothing, or has ended."""
        try:
            return self._pipe.recv() if self._pipe.poll(seconds) else None
        except (EOFError, ConnectionResetError):
            return None

    def _end(self) -> int | None:
        """End the process; returns its exit code if it had ended by itself."""
        if self._process is None:
            return None
        self._process.join(10.0 if self._pipe.poll(0) else 0.0)  # a pipe that ended can be read without waiting
        code: int | None = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        self._pipe.close()
        self._process = self._pipe = None
        return code


def replay(word: str, number: int, *, seed: int, work: Path) -> Outcome:
    """Read one input in this process: what is raised is not caught."""
    kind = find_kind(word)
    sources = prepare(kind, word, work)
    case = make(kind, sources, chance_of(seed, word, number), work / "input")
    print(f"{word}:{number} is in {work / 'input'}")
    return Outcome(word, number, ACCEPTED, kind.read(case) or "")


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of the record."""
    findings = [one for one in outcomes if one.sort in FINDINGS]
    return {
        "inputs": len(outcomes),
        "findings": len(findings),
        "by_kind": {word: _figures([one for one in outcomes if one.kind == word]) for word in _words(outcomes)},
        "listed": [asdict(one) for one in findings[:_MOST_LISTED]],
    }


def _words(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(one.kind for one in outcomes))


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    sorts = Counter(one.sort for one in outcomes)
    remarks = Counter(one.words for one in outcomes if one.sort == ACCEPTED and one.words)
    counts = {"inputs": len(outcomes), **{sort: sorts[sort] for sort in (ACCEPTED, REFUSED, *FINDINGS)}}
    return counts | ({"remarks": dict(sorted(remarks.items()))} if remarks else {})


def _show(outcome: Outcome, count: int) -> None:
    if count % _TOLD_EVERY == 0:
        print(f"{count} inputs", flush=True)
    if outcome.sort in FINDINGS:
        print(f"{outcome.sort:15} {outcome.kind}:{outcome.number}  {outcome.words}", flush=True)


if __name__ == "__main__":
    main()
