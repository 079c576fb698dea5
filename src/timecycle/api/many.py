"""Label many videos."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

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
from timecycle.files import sha256
from timecycle.inputs import ConfigLike, EncoderLike, as_config, encoder_reference
from timecycle.model.registry import PrecisionChoice
from timecycle.progress import Bar, ProgressLike, bars_for
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
    config, confidence, label_files: as for `propagate_to_folder`.
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
    name = encoder_reference(encoder)
    if name is None:
        raise SettingsError(
            "the encoder was passed as an object, which other processes cannot load",
            remedy="pass its name or path; a model is saved by tc.save_pretrained(model, folder)",
        )
    part = Shard.parse(shard) if shard else None
    listed: Manifest
    if isinstance(manifest, str | Path):
        listed = ManifestFile(Path(manifest))
    else:
        lines = [_line(fields) for fields in manifest]
        listed = ManifestList(lines)
    plan = None if chunk is None else plan_chunks(listed, chunk)
    items = read_items(listed, part) if plan is None else []
    if isinstance(manifest, str | Path):
        digest = sha256([Path(manifest)])
    else:
        digest = hashlib.sha256(json.dumps(lines).encode()).hexdigest()
    job = prepare(
        BulkJob(
            output=str(folder),
            encoder=name,
            config=as_config(config),
            confidence=confidence,
            device=device,
            precision=precision,
            label_files=label_files,
            chunk=chunk,
            allow_damaged=allow_damaged,
            manifest=digest,
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


def _line(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line as a file of JSON lines has them: a list of labels, and paths as text."""
    labels = fields.get("labels", ())
    labels = [labels] if isinstance(labels, str | Path) else labels
    paths = {"video": str(fields["video"]) if "video" in fields else None, "labels": [str(label) for label in labels]}
    return {**fields, **paths}


def _show_on(bar: Bar) -> Callable[[BulkProgress], None]:
    def show(now: BulkProgress) -> None:
        failed = f" · {now.failed} failed" if now.failed else ""
        bar(now.done, now.total, f"{now.frames_per_second:.1f} frames/s{failed}")

    return show
