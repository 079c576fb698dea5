"""Label many videos."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.bulk.batch import label_lines
from timecycle.bulk.chunk_scheduler import run_chunks
from timecycle.bulk.chunk_worker import process_chunk
from timecycle.bulk.chunks import plan_chunks
from timecycle.bulk.manifest import Manifest, ManifestFile, ManifestList, Shard, read_items
from timecycle.bulk.ray_engine import ray_engine
from timecycle.bulk.scheduler import BulkSummary, Engine, LocalEngine, Work, run_bulk
from timecycle.bulk.scheduler import Progress as BulkProgress
from timecycle.bulk.worker import BulkJob, prepare, process_video
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.device import Device
from timecycle.errors import SettingsError
from timecycle.inputs import ConfigLike, EncoderLike, as_config, encoder_reference
from timecycle.model.registry import PrecisionChoice
from timecycle.progress import Bar, ProgressLike, bars_for
from timecycle.runs.exporting import check_formats
from timecycle.runs.measurements import MeasurementConfig, as_scale
from timecycle.runs.outputs import LabelFiles

_CONFIDENCE = ConfidenceConfig()


def bulk(
    manifest: str | Path | Iterable[Mapping[str, Any]],
    folder: str | Path,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    device: Device = "auto",
    precision: PrecisionChoice = "fp32",
    label_files: LabelFiles = "palette",
    scale: float | str | None = None,
    formats: Sequence[str] = (),
    allow_damaged: bool = False,
    ray: str | None = None,
    workers: int | None = None,
    threads: int = 1,
    shard: str | None = None,
    chunk: int | None = None,
    retry_failed: bool = False,
    verify: bool = False,
    progress: ProgressLike = None,
) -> BulkSummary:
    """Propagate annotations through many videos; call it again to resume: finished videos are skipped.

    manifest: a .csv file with the columns video,labels,name, a file of JSON lines, or a list of such lines:
        [{"video": "a.mp4", "labels": "a.png"}, ...], where labels are one or several of FILE or FRAME=FILE.
    folder: the output, with a folder for each video: a folder, or an address such as s3://bucket/out.
    encoder: a name or a path; every process loads it. None is the bundled one.
    config, confidence, label_files, scale, formats: as for `propagate_to_folder`.
    device, precision: as for `load_encoder`.
    allow_damaged: label what can be decoded of damaged videos.
    ray: "local" or the address of a cluster, to run on Ray (extra `bulk`), with `workers` videos at once and `threads`
        threads for each. Without it, one video at a time in this process.
    shard: "I/N", only the I-th of N shards of the manifest, counted from 0, for array jobs.
    chunk: commit so many videos at a time, as one tar and one file of records, for a million videos; call it again
        with the same number.
    retry_failed: try failed videos again.
    verify: first compare the checksums of finished videos, not only their sizes.
    progress: True for a bar on standard error, or a function that is called with (done, total) videos.

    A video that fails does not end the call: the result counts them as `dead`, and dead.jsonl says why.
    """
    name = _reference(encoder)
    _check_workers(ray, workers, threads)
    check_formats(formats)  # once, not as the failure of every video
    measurements = MeasurementConfig(as_scale(scale))
    part = Shard.parse(shard) if shard else None
    listed: Manifest
    if isinstance(manifest, str | Path):
        listed = ManifestFile(Path(manifest))
    else:
        listed = ManifestList(_line(fields) for fields in manifest)
    plan = None if chunk is None else plan_chunks(listed, chunk)
    items = read_items(listed, part) if plan is None else []
    job = prepare(
        BulkJob(
            output=str(folder),
            encoder=name,
            config=as_config(config),
            confidence=confidence,
            device=device,
            precision=precision,
            label_files=label_files,
            measurements=measurements,
            formats=tuple(formats),
            chunk=chunk,
            allow_damaged=allow_damaged,
            manifest=listed.checksum(),
        )
    )

    def engine(process: Callable[[Work, BulkJob], Any]) -> AbstractContextManager[Engine[Work]]:
        if ray is None:
            return nullcontext(LocalEngine(process, job))
        return ray_engine(ray, process, job, workers=workers, threads=threads)

    with bars_for(progress) as bar:
        show = _show_on(bar("videos"))
        if plan is None:
            with engine(process_video) as started:
                return run_bulk(items, job, started, shard=part, retry_failed=retry_failed, verify=verify, show=show)
        with engine(process_chunk) as begun:
            return run_chunks(plan, job, begun, shard=part, retry_failed=retry_failed, verify=verify, show=show)


def label_batch(
    batch: Mapping[str, Iterable[Any]],
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    device: Device = "auto",
    precision: PrecisionChoice = "fp32",
    label_files: LabelFiles = "palette",
    scale: float | str | None = None,
    formats: Sequence[str] = (),
    allow_damaged: bool = False,
) -> dict[str, np.ndarray]:
    """Propagate annotations through the videos of a batch of rows, for `map_batches` of Ray Data and the like of Spark.

    batch: columns "video" (paths or addresses), "labels" (one or several of FILE or FRAME=FILE) and, if wanted, "name".
    encoder: a name or a path; it is loaded once in each process. None is the bundled one.
    config, confidence, label_files, scale, formats, allow_damaged: as for `bulk`.
    device, precision: as for `load_encoder`.

    Returns columns with a row for each video: "name", "frames", "mean_confidence" (nan if there is none), "output" (the
    files of its folder as the bytes of a tar) and "error". A video that cannot be labelled has an error and an empty
    output; a shortage of memory or disk space is raised, so that the engine can try again.
    """
    columns = set(batch)
    if not {"video", "labels"} <= columns <= {"video", "labels", "name"}:
        raise SettingsError(
            f"the batch has the columns {', '.join(sorted(map(str, columns)))}",
            remedy="give it the columns video and labels, and name if wanted",
        )
    check_formats(formats)  # once, not as the failure of every video
    rows = zip(*batch.values(), strict=True)
    lines = [_line({column: _plain(value) for column, value in zip(batch, row, strict=True)}) for row in rows]
    job = BulkJob(
        output="",
        encoder=_reference(encoder),
        config=as_config(config),
        confidence=confidence,
        device=device,
        precision=precision,
        label_files=label_files,
        measurements=MeasurementConfig(as_scale(scale)),
        formats=tuple(formats),
        allow_damaged=allow_damaged,
    )
    done = list(label_lines(lines, job))
    confidences = [math.nan if one.confidence is None else one.confidence for one in done]
    return {
        "name": np.array([one.name for one in done], object),
        "frames": np.array([one.frames for one in done], np.int64),
        "mean_confidence": np.array(confidences, np.float64),
        "output": np.array([one.output for one in done], object),
        "error": np.array([one.error for one in done], object),
    }


def _check_workers(ray: str | None, workers: int | None, threads: int) -> None:
    """Refuse numbers of workers and threads that are below 1, or that nothing would use."""
    for option, number in (("--workers", workers), ("--threads", threads)):
        if number is not None and number < 1:
            raise SettingsError(f"{option} is {number}", remedy="give 1 or more, or leave it out")
    if ray is None and (workers is not None or threads != 1):
        raise SettingsError(
            "--workers and --threads are for Ray, which was not asked for",
            remedy="pass --ray local or the address of a cluster too, or leave them out",
        )


def _reference(encoder: EncoderLike | None) -> str:
    name = encoder_reference(encoder)
    if name is None:
        raise SettingsError(
            "the encoder was passed as an object, which other processes cannot load",
            remedy="pass its name or path; a model is saved by tc.save_pretrained(model, folder)",
        )
    return name


def _plain(value: Any) -> Any:
    """Convert a cell of a column of numpy, pandas or Arrow to text or a list."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _line(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line as a file of JSON lines has them: a list of labels, and paths as text."""
    video, labels = fields.get("video"), fields.get("labels")
    labels = [labels] if isinstance(labels, str | Path) else labels or ()
    return {**fields, "video": None if video is None else str(video), "labels": [str(label) for label in labels]}


def _show_on(bar: Bar) -> Callable[[BulkProgress], None]:
    def show(now: BulkProgress) -> None:
        failed = f" · {now.failed} failed" if now.failed else ""
        bar(now.done, now.total, f"{now.frames_per_second:.1f} frames/s{failed}")

    return show
