"""Predict and store: one folder of labels per clip, with the settings they were made with. Scoring comes after.

DIR/predictions/CLIP/00000.png ...   whole or absent: a clip is written aside and moved into place
DIR/predictions.json                 benchmark, method, settings; which clips are done, by which commit, their checksums
"""

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError
from timecycle.evaluation.benchmark import Benchmark, Clip, OnFrame, Progress, checksum, describe
from timecycle.evaluation.methods import Method
from timecycle.evaluation.report import REPORT
from timecycle.files import make_folder, sync_folder, write_text
from timecycle.propagation.settings import PropagateConfig
from timecycle.provenance import commit, machine
from timecycle.version import __version__

FOLDER = "predictions"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What must be the same for predictions to stand in one folder."""

    benchmark: dict[str, Any]
    encoder: str
    weights_sha256: str
    form: str
    config: dict[str, Any]


def settings_of(benchmark: Benchmark, method: Method, config: PropagateConfig) -> Settings:
    return Settings(
        benchmark=describe(benchmark),
        encoder=method.name,
        weights_sha256=method.sha256,
        form=method.form,
        config=dataclasses.asdict(config),
    )


def predict(
    benchmark: Benchmark,
    method: Method,
    config: PropagateConfig,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Predict every clip that is not there yet; returns the record of the whole folder, which the caller has locked."""
    made_by = commit()  # now: what runs was loaded now, whatever is on disk by the time it ends
    record = _open(folder, settings_of(benchmark, method, config), overwrite=overwrite)
    steps = _Steps(
        sum(len(clip.frames) - clip.first for clip in benchmark.clips), progress or (lambda done, total: None)
    )
    for clip in benchmark.clips:
        ended = steps.done + len(clip.frames) - clip.first
        if clip.name not in record["clips"]:
            started, counted = time.monotonic(), steps.done
            _predict_clip(benchmark, clip, method, config, folder, on_frame=steps.step)
            record["clips"][clip.name] = {
                "frames": steps.done - counted,
                "seconds": round(time.monotonic() - started, 2),
                "commit": made_by,
                "sha256": _checksum(folder, clip.name),
            }
            _write(folder, record)
        steps.jump(ended)
    return record


def check(folder: Path, record: dict[str, Any]) -> None:
    """Refuse predictions that are no longer what was predicted."""
    for name, clip in record["clips"].items():
        if _checksum(folder, name) != clip["sha256"]:
            raise OutputError(
                f"{folder / FOLDER / name} was changed after it was predicted",
                remedy="pass --overwrite to predict again, or score what is there as anyone's, with --masks",
            )


def read_record(folder: Path) -> dict[str, Any]:
    """The record beside stored predictions."""
    path = folder / f"{FOLDER}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not {"settings", "clips"} <= set(record):
            raise ValueError("it is no record of predictions")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise OutputError(
            f"{path} cannot be read: {error}", remedy="choose another folder with -o, or pass --overwrite"
        ) from error
    found: dict[str, Any] = record
    return found


@dataclasses.dataclass
class _Steps:
    """Counts frames over all clips."""

    total: int
    show: Progress
    done: int = 0

    def step(self) -> None:
        self.jump(self.done + 1)

    def jump(self, done: int) -> None:
        self.done = done
        self.show(done, self.total)


def _open(folder: Path, settings: Settings, *, overwrite: bool) -> dict[str, Any]:
    fresh: dict[str, Any] = {
        "settings": json.loads(json.dumps(dataclasses.asdict(settings))),
        "timecycle": __version__,
        "machine": machine(),
        "clips": {},
    }
    if overwrite:
        # First the record, so that nothing old can pass for something new if this is interrupted.
        _write(folder, fresh)
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
    _write(folder, fresh)
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
    aside = folder / f".{clip.name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    make_folder(aside)
    benchmark.predict_clip(clip, method, config, aside, on_frame=on_frame)
    target = folder / FOLDER / clip.name
    make_folder(target.parent)
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    sync_folder(target.parent)


def _checksum(folder: Path, clip: str) -> str:
    return checksum(sorted((folder / FOLDER / clip).glob("*")))


def _write(folder: Path, record: dict[str, Any]) -> None:
    write_text(folder / f"{FOLDER}.json", json.dumps(record, indent=2) + "\n")
