"""Predict and store: one folder of labels per clip, with the settings they were made with. Scoring comes after.

DIR/predictions/CLIP/00000.png ...   whole or absent: a clip is written aside and moved into place
DIR/predictions.json                 benchmark, method, settings; which clips are done, how long they took
"""

import csv
import dataclasses
import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from timecycle.errors import OutputError
from timecycle.evaluation.benchmark import Benchmark, Clip, Progress, describe
from timecycle.evaluation.methods import Method, Predicted
from timecycle.files import lock, make_folder, write_text
from timecycle.labels import Parts
from timecycle.labels.soft import upsample
from timecycle.propagation.settings import PropagateConfig
from timecycle.provenance import commit, machine
from timecycle.version import __version__
from timecycle.video import open_video

FOLDER = "predictions"
SCORES = "scores.csv"  # in a clip's folder: how sure the method was of each part instance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What must be the same for predictions to stand in one folder."""

    benchmark: dict[str, Any]
    encoder: str
    weights_sha256: str
    form: str
    config: dict[str, Any]


def predict(
    benchmark: Benchmark,
    method: Method,
    config: PropagateConfig,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Predict every clip that is not there yet; returns the record of the whole folder."""
    progress = progress or (lambda done, total: None)
    settings = Settings(
        benchmark=describe(benchmark),
        encoder=method.name,
        weights_sha256=method.sha256,
        form=method.form,
        config=dataclasses.asdict(config),
    )
    make_folder(folder)
    with lock(folder):
        record = _open(folder, settings, overwrite=overwrite)
        frames = [len(clip.frames) - clip.first for clip in benchmark.clips]
        done = 0
        for clip, count in zip(benchmark.clips, frames, strict=True):
            if clip.name not in record["clips"]:
                started = time.monotonic()
                _predict_clip(clip, method, config, folder, lambda i, done=done: progress(done + i, sum(frames)))
                record["clips"][clip.name] = {"seconds": round(time.monotonic() - started, 2), "commit": commit()}
                _write(folder, record)
            done += count
            progress(done, sum(frames))
    return record


def read_record(folder: Path) -> dict[str, Any]:
    """The record beside stored predictions."""
    path = folder / f"{FOLDER}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read: {error}", remedy="predict into an empty folder") from error
    if not isinstance(record, dict):
        raise OutputError(f"{path} is not a record of predictions", remedy="predict into an empty folder")
    return record


def _open(folder: Path, settings: Settings, *, overwrite: bool) -> dict[str, Any]:
    fresh = {
        "settings": dataclasses.asdict(settings),
        "timecycle": __version__,
        "machine": machine(),
        "clips": {},
    }
    if not (folder / f"{FOLDER}.json").exists():
        if (folder / FOLDER).exists():
            raise OutputError(
                f"{folder / FOLDER} holds predictions without a record of how they were made",
                remedy="choose another folder with -o, or score them with --masks",
            )
        return fresh
    record = read_record(folder)
    if overwrite:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        return fresh
    _refuse_mixing(folder, record.get("settings", {}), json.loads(json.dumps(fresh["settings"])))
    return record


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


def _predict_clip(clip: Clip, method: Method, config: PropagateConfig, folder: Path, progress: Any) -> None:
    aside = folder / f".{clip.name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    make_folder(aside)
    sure: list[tuple[int, int, float]] = []
    with open_video(clip.frames) as video:
        for predicted in method.carry(video, clip.first, clip.given(), config):
            predicted.labels.write(aside / f"{predicted.index:05d}{predicted.labels.suffix}")
            sure += _posteriors(predicted)
            progress(predicted.index - clip.first + 1)
    if sure:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["frame", "pair", "score"])
        rows.writerows((frame, pair, f"{score:.6f}") for frame, pair, score in sure)
        write_text(aside / SCORES, text.getvalue())
    target = folder / FOLDER / clip.name
    make_folder(target.parent)
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)


def _posteriors(predicted: Predicted) -> list[tuple[int, int, float]]:
    """The mean posterior inside every part instance of a frame; detectors have such a score, carried labels not."""
    if not isinstance(predicted.labels, Parts) or predicted.carried is None:
        return []
    pairs = predicted.labels.pairs
    strongest = upsample(predicted.carried.soft, predicted.carried.grid).amax(dim=0)
    strongest = torch.clamp(strongest, 0, 1)
    return [
        (predicted.index, int(pair), float(strongest[torch.from_numpy(pairs == pair)].mean()))
        for pair in np.unique(pairs)
        if pair != 0
    ]


def _write(folder: Path, record: dict[str, Any]) -> None:
    write_text(folder / f"{FOLDER}.json", json.dumps(record, indent=2) + "\n")
