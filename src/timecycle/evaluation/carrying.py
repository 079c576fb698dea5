"""A clip's labels, carried by a method and written as files: 00000.png ..., as the run's own output is."""

import csv
from pathlib import Path

import numpy as np

from timecycle.evaluation.benchmark import Clip, OnFrame
from timecycle.evaluation.methods import Method, Predicted
from timecycle.labels import Parts
from timecycle.labels.soft import upsample
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import open_video

SCORES = "scores.csv"  # frame,pair,score: how sure the method was of each part instance


def carry_labels(clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame) -> None:
    """Write the labels of every frame from the given one on, and for parts how sure the method was of them."""
    rows: list[tuple[int, int, str]] = []
    with open_video(clip.frames) as video:
        for predicted in method.carry(video, clip.first, clip.given(), config):
            predicted.labels.write(folder / f"{predicted.index:05d}{predicted.labels.suffix}")
            rows += [(predicted.index, pair, f"{score:.6f}") for pair, score in _posteriors(predicted).items()]
            on_frame()
    if rows:
        with (folder / SCORES).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("frame", "pair", "score"), *rows])


def _posteriors(predicted: Predicted) -> dict[int, float]:
    """The mean posterior inside every part instance of a frame: detectors have such a score, carried labels not."""
    if not isinstance(predicted.labels, Parts) or predicted.carried is None:
        return {}
    pairs = predicted.labels.pairs
    # Every pixel went to its strongest channel, so the highest posterior is that of its own instance.
    strongest = upsample(predicted.carried.soft, predicted.carried.grid).amax(dim=0).clamp(0, 1).numpy()
    return {int(pair): float(strongest[pairs == pair].mean()) for pair in np.unique(pairs) if pair != 0}
