"""Evaluate `timecycle tune`: correlate its cycle error with true J&F over many settings.

    python benchmarks/tuning.py DATA --work DIR [--encoder NAME] [--names ...]

Twelve settings around the preset `fast`, eight sequences of DAVIS-2016 val at 240 pixels. Results: tuning.json.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from cached_encoder import CachedEncoder
from evaluate import EIGHT
from ranking import spearman
from record import write_record
from timecycle.config import propagate_config
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import NearestNeighbours
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.tune import Candidate, tune
from timecycle.video import open_video

SETTINGS: dict[str, tuple[str, ...]] = {
    "as in the preset": (),
    "neighbours 1": ("neighbours=1",),
    "neighbours 5": ("neighbours=5",),
    "neighbours 20": ("neighbours=20",),
    "1 past frame": ("past_frames=1",),
    "3 past frames": ("past_frames=3",),
    "20 past frames": ("past_frames=20",),
    "no past frame": ("past_frames=0",),
    "window 24 px": ("window_px=24", "anchor_window_px=24"),
    "window 96 px": ("window_px=96", "anchor_window_px=96"),
    "no window": ("window_px=none", "anchor_window_px=none"),
    "temperature 0.02": ("temperature=0.02",),
    "temperature 0.3": ("temperature=0.3",),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of predictions")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; writes no result")
    chosen = parser.parse_args()
    began = time.monotonic()
    encoder = load_encoder(chosen.encoder)
    configs = {name: propagate_config("fast", settings) for name, settings in SETTINGS.items()}
    names = tuple(chosen.names) or EIGHT
    errors, scores = cycle_errors(chosen.data, names, encoder, configs), {}
    for name, config in configs.items():
        folder = chosen.work / name.replace(" ", "_")
        report = evaluate(
            find_davis(chosen.data / "davis2016", names=names), NearestNeighbours(encoder), config, folder
        )
        scores[name] = {clip: float(values["JF"]) for clip, values in report.per_sequence.items()}
    measured = compare(errors, scores)
    for metric, value in measured["scores"].items():
        print(f"{metric:24} {value}")
    if not chosen.names:
        settings = {"encoder": encoder.name, "weights_sha256": encoder.sha256, "settings": SETTINGS}
        write_record("tuning", settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


def cycle_errors(
    data: Path, names: tuple[str, ...], encoder: Encoder, configs: dict[str, PropagateConfig]
) -> dict[str, dict[str, float]]:
    """Return the cycle error by setting and sequence."""
    errors: dict[str, dict[str, float]] = {name: {} for name in configs}
    for clip in find_davis(data / "davis2016", names=names).clips:
        cached = CachedEncoder(encoder)
        candidates = [Candidate(name, cached, config) for name, config in configs.items()]
        with open_video(clip.frames) as video:
            for tried in tune(video, 0, clip.read_annotation(), candidates, frames=10_000):
                errors[tried.name][clip.name] = tried.cycle_error
        print(clip.name, flush=True)
    return errors


def compare(errors: dict[str, dict[str, float]], scores: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return rank correlations over settings, overall and per sequence, and the regret of choosing by cycle error."""
    clips = list(next(iter(scores.values())))
    mean_error = np.array([fmean(errors[name].values()) for name in scores])
    mean_jf = np.array([fmean(scores[name].values()) for name in scores])
    by_clip = {
        clip: (np.array([errors[name][clip] for name in scores]), np.array([scores[name][clip] for name in scores]))
        for clip in clips
    }
    regrets = [float(jf.max() - jf[error.argmin()]) for error, jf in by_clip.values()]
    random_regrets = [float(jf.max() - jf.mean()) for _, jf in by_clip.values()]
    return {
        "scores": {
            "spearman_of_means": round(spearman(-mean_error, mean_jf), 4),
            "spearman_per_sequence": round(fmean(spearman(-error, jf) for error, jf in by_clip.values()), 4),
            "regret": round(fmean(regrets), 4),
            "regret_of_a_setting_at_random": round(fmean(random_regrets), 4),
            "regret_of_the_mean_choice": round(float(mean_jf.max() - mean_jf[mean_error.argmin()]), 4),
            "settings": len(scores),
        },
        "cycle_error": errors,
        "JF": scores,
    }


if __name__ == "__main__":
    sys.exit(main())
