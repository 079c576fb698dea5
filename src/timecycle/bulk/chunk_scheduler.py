"""The scheduler of a bulk run in chunks: lists the finished chunks, processes the others, and adds up all records."""

import heapq
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from timecycle.bulk.chunk_outputs import (
    CHUNKS,
    REMOVE_AND_RUN,
    ChunkRecord,
    is_intact,
    list_chunks,
    read_records,
    remove_finished_work,
)
from timecycle.bulk.chunk_worker import ChunkDone, needs_work
from timecycle.bulk.chunks import Chunk, Plan, check_plan, chunk_name
from timecycle.bulk.manifest import Shard
from timecycle.bulk.outputs import Outputs
from timecycle.bulk.scheduler import (
    LISTED,
    BulkSummary,
    DeadLetter,
    Engine,
    Progress,
    Schedule,
    dead_letters,
    in_steps,
    mean_confidence,
    suffix_of,
)
from timecycle.bulk.worker import BulkJob
from timecycle.concurrency import read_ahead
from timecycle.errors import DamagedError

log = logging.getLogger("timecycle")

# A worker remembers on its machine what it finished and which video killed it, so that each attempt comes further.
_MAX_ATTEMPTS = 10


@dataclass(frozen=True)
class _Tally:
    """What the summary needs of one chunk."""

    done: int
    failed: tuple[DeadLetter, ...] = ()
    confidence: int = 0  # a sum over videos, in steps
    confident: int = 0  # videos that have one
    least: tuple[tuple[float, str], ...] = ()  # the lowest confidences, with the names of their videos


@dataclass
class _Totals:
    """The tallies of all chunks of a run, by chunk."""

    tallies: dict[int, _Tally] = field(default_factory=dict)
    frames: int = 0  # labelled by this run
    done: int = 0
    failed: int = 0

    def add(self, index: int, tally: _Tally) -> None:
        self.tallies[index] = tally
        self.done += tally.done
        self.failed += len(tally.failed)


def run_chunks(
    plan: Plan,
    job: BulkJob,
    engine: Engine[Chunk],
    *,
    shard: Shard | None = None,
    retry_failed: bool = False,
    verify: bool = False,
    show: Callable[[Progress], None] | None = None,
) -> BulkSummary:
    """Process the chunks that are not finished yet. A run may be killed at any time; the next one resumes it.

    Finished chunks are found by one listing. Their records are read at the end, for the summary; `retry_failed` and
    `verify` read them at the beginning too, and `verify` compares the checksums of all their files.
    """
    outputs = Outputs(job.output)
    outputs.check_settings(job.settings())
    mine = range(shard.index, len(plan.spans), shard.count) if shard else range(len(plan.spans))
    before, again = _choose(plan, mine, job, outputs, retry_failed=retry_failed, verify=verify)
    skipped = set(before)
    waiting = [index for index in mine if index not in skipped]
    total = sum(plan.spans[index].videos for index in mine)
    done_before = sum(plan.spans[index].videos for index in before)
    totals, given_up, start = _Totals(), set[int](), time.monotonic()
    work = (plan.chunk(index, again=index in again, retry_failed=retry_failed) for index in waiting)
    for chunk, outcome, tries in Schedule(work, engine, max_attempts=_MAX_ATTEMPTS).outcomes():
        if isinstance(outcome, ChunkDone):
            totals.add(chunk.index, _tally(outcome.records))
            totals.frames += outcome.frames
        else:
            totals.add(chunk.index, _given_up(chunk, outcome.problem, tries))
            given_up.add(chunk.index)
        if show is not None:
            rate = totals.frames / (time.monotonic() - start)
            show(Progress(done_before + totals.done, total, totals.failed, rate))
    seconds = time.monotonic() - start
    done_now = totals.done
    for index, tally in zip(before, read_ahead(lambda index: _recorded(plan, index, outputs), before), strict=True):
        totals.add(index, tally)
    summary = _summary(totals, total, totals.done - done_now, seconds, job.manifest)
    outputs.write(f"summary{suffix_of(shard)}.json", json.dumps(asdict(summary), indent=2) + "\n")
    letters = (letter for index in sorted(totals.tallies) for letter in totals.tallies[index].failed)
    outputs.write(dead_letters(shard), "".join(json.dumps(asdict(letter)) + "\n" for letter in letters))
    remove_finished_work(outputs, (chunk_name(index) for index in totals.tallies if index not in given_up))
    outputs.remove_empty_folders(keep_work=True)
    return summary


def _choose(
    plan: Plan, mine: range, job: BulkJob, outputs: Outputs, *, retry_failed: bool, verify: bool
) -> tuple[list[int], set[int]]:
    """Return the finished chunks that are left as they are, and those in which something is done again."""
    grown = check_plan(plan, outputs)
    finished, again = list_chunks(outputs, len(plan.spans))
    for index in sorted(again.intersection(mine)):
        log.warning("chunk %s is processed again: its tar is missing", chunk_name(index))
    listed = [
        index for index in mine if index in finished and index not in grown
    ]  # a worker looks whether grown ones are complete
    if retry_failed or verify:
        checks = read_ahead(lambda index: _repeat(plan, index, job, outputs, retry_failed, verify), listed)
        again |= {index for index, repeat in zip(listed, checks, strict=True) if repeat} | (finished & grown)
    return [index for index in listed if index not in again], again


def _repeat(plan: Plan, index: int, job: BulkJob, outputs: Outputs, retry_failed: bool, verify: bool) -> bool:
    """Whether a finished chunk has something to do again."""
    name = chunk_name(index)
    try:
        records = read_records(outputs, name)
    except DamagedError as error:
        if not verify:
            raise
        log.warning("chunk %s is processed again: %s", name, error.problem)
        return True
    if not verify:
        return any(record.error is not None for record in records)
    chunk = plan.chunk(index, retry_failed=retry_failed)
    return needs_work(chunk, records, job) or not is_intact(outputs, name, records)


def _recorded(plan: Plan, index: int, outputs: Outputs) -> _Tally:
    records, span = read_records(outputs, chunk_name(index)), plan.spans[index]
    if len(records) != span.videos or any(record.manifest != span.lines for record in records):
        raise DamagedError(
            f"{outputs.location}/{CHUNKS}/{chunk_name(index)}.jsonl is not of lines {span.first} to {span.last} of "
            f"{plan.manifest.name}",
            remedy=REMOVE_AND_RUN,
        )
    return _tally(records)


def _tally(records: Sequence[ChunkRecord]) -> _Tally:
    confidences = [(record.confidence, record.name) for record in records if record.confidence is not None]
    return _Tally(
        done=sum(record.error is None for record in records),
        failed=tuple(_letter(record) for record in records if record.error is not None),
        confidence=in_steps(value for value, _ in confidences),
        confident=len(confidences),
        least=tuple(heapq.nsmallest(LISTED, confidences)),
    )


def _letter(record: ChunkRecord) -> DeadLetter:
    inputs = f"{record.video} {record.labels}"
    return DeadLetter(
        name=record.name, video=record.source, tries=record.tries, problem=record.error or "", inputs=inputs
    )


def _given_up(chunk: Chunk, problem: str, tries: int) -> _Tally:
    """Count the videos of a chunk that crashed too often as failed; the next run tries it again."""
    problem = f"chunk {chunk.name} was not finished: {problem}"
    letters = (DeadLetter(name=item.name, video=item.video, tries=tries, problem=problem) for item in chunk.items)
    return _Tally(done=0, failed=tuple(letters))


def _summary(totals: _Totals, videos: int, before: int, seconds: float, manifest: str) -> BulkSummary:
    tallies = [totals.tallies[index] for index in sorted(totals.tallies)]
    confident = sum(tally.confident for tally in tallies)
    least: Iterable[tuple[float, str]] = heapq.nsmallest(LISTED, _least(tallies))
    return BulkSummary(
        videos=videos,
        done=totals.done,
        before=before,
        dead=totals.failed,
        frames=totals.frames,
        seconds=round(seconds, 3),
        frames_a_second=round(totals.frames / seconds, 3) if seconds else 0.0,
        confidence=mean_confidence(sum(tally.confidence for tally in tallies), confident),
        least_confident=tuple(name for _, name in least),
        manifest=manifest,
    )


def _least(tallies: Iterable[_Tally]) -> Iterator[tuple[float, str]]:
    for tally in tallies:
        yield from tally.least
