"""Label the videos of a batch inside another program's workers, such as those of Ray Data or Spark."""

import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timecycle.bulk.chunk_worker import remove_duration
from timecycle.bulk.manifest import Item, ManifestList, check_row, make_item
from timecycle.bulk.outputs import add_to_tar
from timecycle.bulk.worker import BulkJob, Record, Stopped, label_video, outcome_of
from timecycle.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """What became of one video of a batch."""

    name: str
    frames: int = 0
    confidence: float | None = None
    output: bytes = b""  # a tar
    error: str = ""


def label_lines(lines: Sequence[Mapping[str, Any]], job: BulkJob) -> Iterator[BatchResult]:
    """Label the video of each line; one that cannot be labelled gives an error, which a shortage raises instead."""
    manifest = ManifestList(lines)
    for row in manifest.rows():
        try:
            item = make_item(manifest, row, check_row(manifest, row))
        except SettingsError as error:
            yield BatchResult(name=str(row.fields.get("name") or row.fields.get("video") or ""), error=str(error))
        else:
            yield _label(item, job)


def _label(item: Item, job: BulkJob) -> BatchResult:
    with tempfile.TemporaryDirectory(prefix="timecycle-") as temporary:
        folder = Path(temporary) / "out"
        try:
            outcome = outcome_of(item.name, lambda: label_video(item, job, folder))
        except Exception as error:  # one video must not end the batch
            return BatchResult(name=item.name, error=f"{type(error).__name__}: {error}")
        if isinstance(outcome, Stopped):
            raise outcome.error
        if not isinstance(outcome, Record):
            return BatchResult(name=item.name, error=outcome.problem)
        remove_duration(folder)
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            add_to_tar(tar, folder)
    return BatchResult(name=item.name, frames=outcome.frames, confidence=outcome.confidence, output=content.getvalue())
