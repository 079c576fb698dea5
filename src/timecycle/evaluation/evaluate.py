"""Run an evaluation: predict, store, score, report. Each step can also be run on its own.

DIR/predictions/CLIP/00000.png ...   complete or absent: a clip is written to a temporary folder, then renamed
DIR/predictions.json                 benchmark, method, settings; the finished clips, their commits and checksums
DIR/report.json                      the scores, and everything needed to repeat them
"""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError
from timecycle.evaluation.benchmark import Benchmark, Clip, OnFrame, checksum, describe
from timecycle.evaluation.methods.method import Method
from timecycle.evaluation.reporting.report import REPORT, Report, make_report, write_report
from timecycle.files import clear_unfinished, lock, make_folder, sync_folder, write_text
from timecycle.progress import OnProgress
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs.provenance import commit, machine
from timecycle.version import __version__

FOLDER = "predictions"


def evaluate(
    benchmark: Benchmark,
    method: Method,
    config: PropagateConfig,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], OnProgress] | None = None,
) -> Report:
    """Predict the clips that are missing, score all clips, and write FOLDER/report.json."""
    show = progress or _silent
    make_folder(folder)
    with lock(folder):  # until the report is written, so that no other process changes predictions being scored
        clear_unfinished(folder)
        record = predict(benchmark, method, config, folder, overwrite=overwrite, progress=show("predicting"))
        check(folder, record)
        report = make_report(record, benchmark.score(folder / FOLDER, progress=show("scoring")))
        write_report(folder / REPORT, report)
    return report


def evaluate_masks(
    benchmark: Benchmark,
    masks: Path,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], OnProgress] | None = None,
) -> Report:
    """Score the masks of another program: MASKS/CLIP/00000.png, named like the benchmark's annotations."""
    show = progress or _silent
    make_folder(folder)
    with lock(folder):
        clear_unfinished(folder)
        if not overwrite and ((folder / REPORT).exists() or (folder / f"{FOLDER}.json").exists()):
            raise OutputError(
                f"{folder} holds another evaluation", remedy="choose another folder with -o, or pass --overwrite"
            )
        started = time.monotonic()
        scores = benchmark.score(masks, progress=show("scoring"))
        report = make_report(_record_of_masks(benchmark, masks, time.monotonic() - started), scores)
        write_report(folder / REPORT, report)
    return report


def _record_of_masks(benchmark: Benchmark, masks: Path, seconds: float) -> dict[str, Any]:
    """Record what is known of predictions that another program made."""
    files = [path for clip in benchmark.clips for path in sorted((masks / clip.name).glob("*.png"))]
    return {
        "settings": {
            "benchmark": describe(benchmark),
            "encoder": f"masks in {masks.name}",
            "weights_sha256": checksum(files),
            "description": "predicted elsewhere; the checksum is of the masks",
            "config": {},
        },
        "timecycle": __version__,
        "machine": machine(),
        "clips": {"": {"frames": len(files), "seconds": seconds, "commit": commit()}},
    }


def settings_of(benchmark: Benchmark, method: Method, config: PropagateConfig) -> dict[str, Any]:
    """Return the settings that all predictions of one folder share, as JSON has them."""
    settings: dict[str, Any] = json.loads(
        json.dumps(
            {
                "benchmark": describe(benchmark),
                "encoder": method.name,
                "weights_sha256": method.sha256,
                "description": method.description,
                "config": dataclasses.asdict(config),
            }
        )
    )
    return settings


def predict(
    benchmark: Benchmark,
    method: Method,
    config: PropagateConfig,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Predict every missing clip and return the record of the folder, which the caller has locked."""
    made_by = commit()  # at the start: the files on disk may change while the loaded code runs
    record = _open_record(folder, settings_of(benchmark, method, config), overwrite=overwrite)
    counter = _FrameCounter(
        sum(len(clip.frames) - clip.annotated_frame for clip in benchmark.clips), progress or _silent("")
    )
    for clip in benchmark.clips:
        done_after = counter.done + len(clip.frames) - clip.annotated_frame
        if clip.name not in record["clips"]:
            started, done_before = time.monotonic(), counter.done
            _predict_clip(benchmark, clip, method, config, folder, on_frame=counter.step)
            record["clips"][clip.name] = {
                "frames": counter.done - done_before,
                "seconds": round(time.monotonic() - started, 2),
                "commit": made_by,
                "sha256": _clip_checksum(folder, clip.name),
            }
            _write_record(folder, record)
        counter.jump(done_after)
    return record


def check(folder: Path, record: dict[str, Any]) -> None:
    """Refuse predictions that were changed after they were made."""
    for name, clip in record["clips"].items():
        if _clip_checksum(folder, name) != clip["sha256"]:
            raise OutputError(
                f"{folder / FOLDER / name} was changed after it was predicted",
                remedy="pass --overwrite to predict again, or score the changed files with --masks",
            )


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of stored predictions."""
    path = folder / f"{FOLDER}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not {"settings", "clips"} <= set(record):
            raise ValueError("it is no record of predictions")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise OutputError(
            f"{path} cannot be read: {error}", remedy="choose another folder with -o, or pass --overwrite"
        ) from error
    checked: dict[str, Any] = record
    return checked


def _silent(_: str) -> OnProgress:
    """Show no progress of a stage."""
    return lambda done, total: None


@dataclasses.dataclass
class _FrameCounter:
    """Counts frames over all clips."""

    total: int
    show: OnProgress
    done: int = 0

    def step(self) -> None:
        self.jump(self.done + 1)

    def jump(self, done: int) -> None:
        self.done = done
        self.show(done, self.total)


def _open_record(folder: Path, settings: dict[str, Any], *, overwrite: bool) -> dict[str, Any]:
    fresh: dict[str, Any] = {
        "settings": settings,
        "timecycle": __version__,
        "machine": machine(),
        "clips": {},
    }
    if overwrite:
        # The record first, so that old predictions cannot pass for new ones if this is interrupted.
        _write_record(folder, fresh)
        (folder / REPORT).unlink(missing_ok=True)
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        return fresh
    if (folder / f"{FOLDER}.json").exists():
        record = read_record(folder)
        _refuse_mixing(folder, record["settings"], fresh["settings"])
        return record
    if (folder / FOLDER).exists():
        raise OutputError(
            f"{folder / FOLDER} holds predictions without a record of how they were made",
            remedy="choose another folder with -o, pass --overwrite, or score them with --masks",
        )
    _write_record(folder, fresh)
    return fresh


def _refuse_mixing(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    different = [name for name in new if old.get(name) != new[name]]
    if not different:
        return
    name = different[0]
    was, now = old.get(name), new[name]
    if isinstance(was, dict) and isinstance(now, dict):
        inner = next(key for key in {**was, **now} if was.get(key) != now.get(key))
        name, was, now = f"{name}.{inner}", was.get(inner), now.get(inner)
    raise OutputError(
        f"{folder} holds predictions made with {name} = {was}, and now it is {now}",
        remedy="choose another folder with -o, or pass --overwrite to predict again",
    )


def _predict_clip(
    benchmark: Benchmark, clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame
) -> None:
    temporary = folder / f".{clip.name}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    make_folder(temporary)
    benchmark.predict_clip(clip, method, config, temporary, on_frame=on_frame)
    target = folder / FOLDER / clip.name
    make_folder(target.parent)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    sync_folder(target.parent)


def _clip_checksum(folder: Path, clip: str) -> str:
    return checksum(sorted((folder / FOLDER / clip).glob("*")))


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    write_text(folder / f"{FOLDER}.json", json.dumps(record, indent=2) + "\n")
