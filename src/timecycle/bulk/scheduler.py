"""The scheduler of a bulk run: skips finished videos, tries crashed ones again, and records failed ones.

Several processes may share one output: each video has one owner at a time, and a scheduler ends when all of its videos
are finished or failed, in any of the processes.
"""

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from timecycle.bulk.fingerprints import inputs_of
from timecycle.bulk.manifest import Item, Shard
from timecycle.bulk.outputs import DEAD, Outputs
from timecycle.bulk.worker import Already, BulkJob, Busy, Record, Stopped, outdated
from timecycle.concurrency import read_ahead
from timecycle.errors import ShortageError

log = logging.getLogger("timecycle")

ALARM_FRACTION = 0.5  # if more videos fail, the cause is probably the manifest or a disk
LISTED = 10  # least confident videos in the summary
_STEPS = 10_000  # to 1: confidences of videos are rounded to four digits
_MAX_ATTEMPTS = 3
_RETRY_BUSY_SECONDS = 1.0  # before trying again the videos that other processes hold


@dataclass(frozen=True)
class Crashed:
    """An attempt without a result: its process was killed, or its machine was lost."""

    problem: str
    is_out_of_memory: bool = False  # not the fault of the video


@runtime_checkable
class Named(Protocol):
    """A video or a chunk."""

    @property
    def name(self) -> str: ...


Work = TypeVar("Work", bound=Named)


@runtime_checkable
class Engine(Protocol[Work]):
    """Processes videos or chunks, possibly several at a time."""

    @property
    def room(self) -> int:
        """How many more to submit now."""

    def submit(self, work: Work) -> None:
        """Start processing one."""

    def next(self) -> tuple[Work, Any]:
        """Wait for one of those submitted; return it with its outcome, or with Crashed."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """The record of a failed video."""

    name: str
    video: str
    tries: int
    problem: str
    inputs: str = ""  # fingerprint: when it changes, the video is tried again


@dataclass(frozen=True, kw_only=True)
class BulkSummary:
    """The result of labelling many videos, as in summary.json."""

    videos: int  # in the manifest, or in the shard
    done: int
    before: int  # of these, by earlier runs
    dead: int  # failed
    frames: int  # of this run
    seconds: float
    frames_a_second: float
    confidence: float | None  # the mean over videos
    least_confident: tuple[str, ...]  # names of videos, the lowest confidence first
    manifest: str  # its checksum

    @property
    def is_alarming(self) -> bool:
        """Whether most of the videos failed."""
        return self.dead > ALARM_FRACTION * self.videos


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    done: int
    total: int
    failed: int
    frames_per_second: float


def dead_letters(shard: Shard | None) -> str:
    """Name the file that lists the failed videos."""
    return f"dead{suffix_of(shard)}.jsonl"


def run_bulk(
    items: Sequence[Item],
    job: BulkJob,
    engine: Engine[Item],
    *,
    shard: Shard | None = None,
    retry_failed: bool = False,
    verify: bool = False,
    show: Callable[[Progress], None] | None = None,
) -> BulkSummary:
    """Process the videos that are not finished yet. A run may be killed at any time; the next one resumes it.

    `verify` compares the checksums of finished outputs, not only their sizes. ShortageError, and any other error that
    is not the fault of a video, ends the run; finished outputs are kept.
    """
    outputs = Outputs(job.output)
    outputs.check_settings(job.settings())
    done = _valid_records(items, job, outputs, verify=verify)
    failed = {} if retry_failed else _failed_before(items, outputs)
    before = len(done)
    failed = {name: letter for name, letter in failed.items() if name not in done}
    waiting = [item for item in items if item.name not in done and item.name not in failed]
    outputs.check_replaceable(item.name for item in waiting)
    frames, start = 0, time.monotonic()
    for item, outcome, tries in Schedule(waiting, engine).outcomes():
        if isinstance(outcome, Record):
            done[item.name] = asdict(outcome)
            frames += outcome.frames
        elif isinstance(outcome, Already):
            done[item.name] = outcome.record
        else:
            failed[item.name] = _record_failure(item, outcome.problem, tries, outputs)
        if show is not None:
            show(Progress(len(done), len(items), len(failed), frames / (time.monotonic() - start)))
    seconds = time.monotonic() - start
    summary = _summary(items, done, before, failed, frames, seconds, job.manifest)
    outputs.write(f"summary{suffix_of(shard)}.json", json.dumps(asdict(summary), indent=2) + "\n")
    letters = (json.dumps(asdict(failed[item.name])) + "\n" for item in items if item.name in failed)
    outputs.write(dead_letters(shard), "".join(letters))
    outputs.remove_empty_folders()
    return summary


def suffix_of(shard: Shard | None) -> str:
    return f"-{shard.index}-of-{shard.count}" if shard else ""


def _record_failure(item: Item, problem: str, tries: int, outputs: Outputs) -> DeadLetter:
    letter = DeadLetter(name=item.name, video=item.video, tries=tries, problem=problem, inputs=_inputs(item))
    # One file per video: processes that share the output must not replace each other's list.
    outputs.write(f"{DEAD}/{item.name}.json", json.dumps(asdict(letter)) + "\n")
    return letter


class Schedule(Generic[Work]):
    """Submits work to an engine until all of it has an outcome. Work that crashed, or that other processes hold, is
    submitted again."""

    def __init__(self, work: Iterable[Work], engine: "Engine[Work]", *, max_attempts: int = _MAX_ATTEMPTS) -> None:
        self._new, self._again, self._busy = iter(work), deque[Work](), deque[Work]()
        self._engine, self._max_attempts = engine, max_attempts
        self._attempts: Counter[str] = Counter()
        self._running = 0
        self._retry_busy_at = 0.0
        self._holder = self._logged_holder = ""  # of the last busy work

    def outcomes(self) -> Iterator[tuple[Work, Any, int]]:
        """Yield what was processed, its outcome and the number of attempts; raise errors that must end the run."""
        while True:
            self._submit()
            if self._running:
                work, outcome = self._engine.next()
                self._running -= 1
                if self._is_final(work, outcome):
                    yield work, outcome, self._attempts[work.name]
            elif self._busy:  # other processes hold all that remains
                self._log_holder()
                time.sleep(max(0.0, self._retry_busy_at - time.monotonic()))
            else:
                return

    def _submit(self) -> None:
        if self._busy and time.monotonic() >= self._retry_busy_at:
            self._again.extend(self._busy)
            self._busy.clear()
        while self._engine.room > 0:
            work = next(self._new, None) or (self._again.popleft() if self._again else None)
            if work is None:
                return
            self._engine.submit(work)
            self._running += 1

    def _is_final(self, work: Work, outcome: object) -> bool:
        if isinstance(outcome, Stopped):
            raise outcome.error
        if isinstance(outcome, Busy):
            if not self._busy:
                self._retry_busy_at = time.monotonic() + _RETRY_BUSY_SECONDS
            self._busy.append(work)
            self._holder = outcome.problem
            return False
        self._attempts[work.name] += 1
        if isinstance(outcome, Crashed):
            if self._attempts[work.name] < self._max_attempts:
                self._again.append(work)
                return False
            if outcome.is_out_of_memory:
                raise ShortageError(
                    f"memory ran out while {work.name} was processed: {outcome.problem}",
                    remedy="use fewer workers, then run it again: finished videos are kept",
                )
        return True

    def _log_holder(self) -> None:
        if self._holder != self._logged_holder:
            log.warning("waiting for %d videos or chunks of other processes: %s", len(self._busy), self._holder)
            self._logged_holder = self._holder


class LocalEngine(Generic[Work]):
    """Processes one video or chunk after the other, in this process."""

    def __init__(self, process: Callable[[Work, BulkJob], Any], job: BulkJob) -> None:
        self._process, self._job = process, job
        self._submitted: list[Work] = []

    @property
    def room(self) -> int:
        return 1 - len(self._submitted)

    def submit(self, work: Work) -> None:
        self._submitted.append(work)

    def next(self) -> tuple[Work, Any]:
        work = self._submitted.pop()
        try:
            return work, self._process(work, self._job)
        except Exception as error:  # one video must not end the run
            return work, Crashed(f"{type(error).__name__}: {error}")


def _valid_records(items: Sequence[Item], job: BulkJob, outputs: Outputs, *, verify: bool) -> dict[str, dict[str, Any]]:
    """The records of outputs that still exist and were made from the same video, labels and settings."""
    records, listing = outputs.records(), outputs.listing()

    def reason_to_redo(item: Item) -> str:
        record = records[item.name]
        return outputs.difference(record, checksums=verify, listing=listing) or outdated(item, record, job)

    known = [item for item in items if item.name in records]
    valid = {}
    for item, reason in zip(known, read_ahead(reason_to_redo, known), strict=True):
        if reason:
            log.warning("%s is processed again: %s", item.name, reason)
        else:
            valid[item.name] = {name: value for name, value in records[item.name].items() if name != "files"}
    return valid


def _failed_before(items: Sequence[Item], outputs: Outputs) -> dict[str, DeadLetter]:
    """The videos that failed in earlier runs and have not changed since."""
    names = {field.name for field in fields(DeadLetter)}
    letters = {name: letter for name, letter in outputs.records(DEAD).items() if set(letter) == names}
    return {
        item.name: DeadLetter(**letters[item.name])
        for item in items
        if item.name in letters and letters[item.name]["inputs"] == _inputs(item)
    }


def _inputs(item: Item) -> str:
    """A fingerprint that changes with the video or its labels."""
    return " ".join(inputs_of(item))


def in_steps(confidences: Iterable[float]) -> int:
    """Add up confidences of records, in the steps of 0.0001 to which they are rounded there.

    The sum is exact, so that it does not depend on how the videos are grouped.
    """
    return sum(round(value * _STEPS) for value in confidences)


def mean_confidence(steps: int, count: int) -> float | None:
    return round(steps / (count * _STEPS), 4) if count else None


def _summary(
    items: Sequence[Item],
    done: dict[str, dict[str, Any]],
    before: int,
    failed: dict[str, DeadLetter],
    frames: int,
    seconds: float,
    manifest: str,
) -> BulkSummary:
    records = [done[item.name] for item in items if item.name in done]
    confidences = {record["name"]: record["confidence"] for record in records if record["confidence"] is not None}
    return BulkSummary(
        videos=len(items),
        done=len(records),
        before=before,
        dead=len(failed),
        frames=frames,
        seconds=round(seconds, 3),
        frames_a_second=round(frames / seconds, 3) if seconds else 0.0,
        confidence=mean_confidence(in_steps(confidences.values()), len(confidences)),
        least_confident=tuple(sorted(confidences, key=lambda name: confidences[name])[:LISTED]),
        manifest=manifest,
    )
