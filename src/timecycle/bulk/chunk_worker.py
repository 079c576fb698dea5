"""The worker of a bulk run in chunks: labels the videos of one chunk and commits them together."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timecycle.bulk.chunk_outputs import (
    CHUNKS,
    ChunkRecord,
    Work,
    commit_chunk,
    folder_checksum,
    read_records,
    unpack_chunk,
    work_on,
)
from timecycle.bulk.chunks import Chunk
from timecycle.bulk.fingerprints import checksum, inputs_of
from timecycle.bulk.manifest import Item
from timecycle.bulk.outputs import Outputs
from timecycle.bulk.worker import BulkJob, Busy, Failed, Record, Stopped, label_video, outcome_of, outdated
from timecycle.errors import DamagedError, InUseError, OutputError, TimecycleError
from timecycle.files import write_text
from timecycle.runs.folder import RECORD

log = logging.getLogger("timecycle")

MAX_TRIES = 3  # of one video, when its process is killed or it raises an unexpected error


@dataclass(frozen=True)
class ChunkDone:
    """A finished chunk."""

    records: tuple[ChunkRecord, ...]
    frames: int  # labelled now
    already: bool = False  # finished before, by another process


class _StoppedError(Exception):
    """An error that is not the fault of a video."""

    def __init__(self, error: TimecycleError) -> None:
        super().__init__(str(error))
        self.error = error


def process_chunk(chunk: Chunk, job: BulkJob) -> ChunkDone | Busy | Stopped:
    """Label the videos of a chunk and commit it; what a killed worker finished on this machine is used."""
    try:
        outcome = outcome_of(f"chunk {chunk.name}", lambda: _process(chunk, job))
    except _StoppedError as stopped:
        return Stopped(stopped.error)
    if isinstance(outcome, Failed):  # of the chunk as a whole: not the fault of a video
        return Stopped(OutputError(f"chunk {chunk.name}: {outcome.problem}", remedy="run it again"))
    return outcome


def _process(chunk: Chunk, job: BulkJob) -> ChunkDone:
    outputs = Outputs(job.output)
    with outputs.lease(chunk.name) as lease:
        committed = _committed(outputs, chunk)
        if committed and not chunk.again and committed[0].manifest == chunk.lines:
            return ChunkDone(tuple(committed), 0, already=True)
        key = {"lines": chunk.lines, "settings": job.settings()}
        with work_on(outputs, chunk.name, key, lease) as work:
            if committed:
                unpack_chunk(outputs, chunk.name, committed, work)
            records, frames = [], 0
            for item in chunk.items:
                record = _finished(item, chunk, job, work)
                if record is None:
                    record = _label(item, chunk, job, work)
                    frames += record.frames
                records.append(record)
            commit_chunk(outputs, chunk.name, work, records, lease)
    return ChunkDone(tuple(records), frames)


def _committed(outputs: Outputs, chunk: Chunk) -> list[ChunkRecord]:
    """Read the records of the chunk if it is finished, perhaps with fewer videos than the manifest has now."""
    try:
        records = read_records(outputs, chunk.name)
    except DamagedError as error:
        if not chunk.again:
            raise
        log.warning("chunk %s is processed again: %s", chunk.name, error.problem)
        return []
    if [record.name for record in records] != [item.name for item in chunk.items[: len(records)]]:
        raise DamagedError(
            f"{outputs.location}/{CHUNKS}/{chunk.name}.jsonl is of other videos than the manifest",
            remedy="give the manifest that the output was begun with, or remove the file and run again",
        )
    return records


def _finished(item: Item, chunk: Chunk, job: BulkJob, work: Work) -> ChunkRecord | None:
    """The record of a video that needs no work: from a killed worker, or from the chunk that is replaced."""
    record = work.read(item.name)
    if record is None:
        return None
    if reason := _redo(item, record, chunk, job):
        log.warning("%s is processed again: %s", item.name, reason)
        return None
    return record._replace(manifest=chunk.lines)


def _label(item: Item, chunk: Chunk, job: BulkJob, work: Work) -> ChunkRecord:
    """Label one video in the work folder; a video that fails gets a record with the reason."""
    problem = "its process was killed each time"
    while (tries := work.count_attempt(item.name, job.run)) <= MAX_TRIES:
        folder = work.unfinished()
        try:
            outcome = outcome_of(item.name, lambda folder=folder: label_video(item, job, folder))  # type: ignore[misc]
        except Exception as error:  # one video must not end the chunk
            problem = f"{type(error).__name__}: {error}"
            continue
        if isinstance(outcome, Stopped):
            raise _StoppedError(outcome.error)
        if isinstance(outcome, Busy):
            raise InUseError(outcome.problem, remedy="wait for it to end")
        if isinstance(outcome, Failed):
            problem = outcome.problem
            break
        remove_duration(folder)
        record = _record(item, chunk, outcome, folder_checksum(folder))
        work.keep(folder, record)
        return record
    video, labels = inputs_of(item)
    failed = ChunkRecord(
        name=item.name,
        source=item.video,
        error=problem,
        tries=min(tries, MAX_TRIES),
        video=video,
        labels=labels,
        manifest=chunk.lines,
    )
    work.write(failed)
    return failed


def _record(item: Item, chunk: Chunk, done: Record, digest: str) -> ChunkRecord:
    return ChunkRecord(
        name=item.name,
        source=item.video,
        error=None,
        tries=1,  # not the number of kills: the same videos give the same records
        frames=done.frames,
        confidence=done.confidence,
        lowest=done.lowest,
        damage=done.damage,
        sha256=digest,
        video=done.video,
        video_sha256=done.video_sha256,
        labels=done.labels,
        manifest=chunk.lines,
    )


def remove_duration(folder: Path) -> None:
    """Remove the duration from the record of a run, so that the same video gives the same bytes."""
    path = folder / RECORD
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields.pop("seconds", None)
    write_text(path, json.dumps(fields, indent=2) + "\n")


def needs_work(chunk: Chunk, records: Sequence[ChunkRecord], job: BulkJob) -> bool:
    """Whether a finished chunk lacks videos, has failed ones that are tried again, or is out of date."""
    if [record.name for record in records] != [item.name for item in chunk.items]:
        return True
    return any(_redo(item, record, chunk, job) for item, record in zip(chunk.items, records, strict=True))


def _redo(item: Item, record: ChunkRecord, chunk: Chunk, job: BulkJob) -> str:
    """Describe why a video is processed again; empty if it is not."""
    if record.error is not None:
        if chunk.retry_failed:
            return "it failed"
        return "" if (record.video, record.labels) == inputs_of(item) else "it has changed since it failed"
    return outdated(item, record._asdict() | {"settings": checksum(job.settings())}, job)
