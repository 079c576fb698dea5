"""Measure the steps of the engine on articulated composites: each added to plain inference, each removed from all.

    python benchmarks/engine.py VIDEOS --work DIR [--half choosing|confirming] [--scene mixed|panning] [--larger]

VIDEOS is a folder of footage that the encoder was not trained on. Every second video, by name, belongs to the
confirming half: settings are chosen on composites of the other half, and confirmed once on these. With `--scene
panning`, the camera moves over background that was never on the annotated frame, and nothing else is hard. Composites
stay in DIR. Results: engine_SCENE_HALF.json, with J&F of every composite and paired differences.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cached_encoder import CachedEncoder
from record import write_record
from timecycle.concurrency import usable_cores
from timecycle.config import propagate_config
from timecycle.data.augment.articulated import ArticulatedConfig, make_articulated
from timecycle.data.corpus.index import make_index
from timecycle.evaluation.metrics.masks import boundary_f, jaccard
from timecycle.files import make_folder
from timecycle.labels import Masks
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.propagator import Propagator

HALVES = {"choosing": 5, "confirming": 6}  # seeds: the halves also differ in shapes and motion
SCENES: dict[str, dict[str, Any]] = {
    "mixed": {},
    "panning": {"pan": 0.7, "way": 0.2, "limbs": (0, 2), "turning": 0.05, "occluders": 0, "twins": 0.0},
}

# What each step changes in plain inference.
STEPS: dict[str, tuple[str, ...]] = {
    "sharpening": ("sharpening=3",),
    "older frames": ("older_frames=3",),
    "target model": ("target_weight=0.5",),
    "guided filter": ("guided_filter=true",),
}
SUBCELLS = ("subcells=2",)  # not among them: with the others it gains nothing
ALL = tuple(setting for step in STEPS.values() for setting in step)
LARGER = ("image_size_px=720", "enlarge=1.5", "window_px=144", "anchor_window_px=144")


@dataclass(frozen=True)
class Variant:
    """A way of propagating: settings of the preset `plain` that differ."""

    name: str
    settings: tuple[str, ...]


def without(name: str) -> tuple[str, ...]:
    """Return the settings of all steps but one."""
    return tuple(setting for other, step in STEPS.items() if other != name for setting in step)


def variants() -> list[Variant]:
    """Return plain inference, each step added to it, all steps, each step removed from all, and subcells with all."""
    removed = [Variant(f"without {name}", without(name)) for name in STEPS]
    return [
        Variant("plain", ()),
        *(Variant(f"only {name}", step) for name, step in STEPS.items()),
        Variant("only subcells", SUBCELLS),
        Variant("all steps", ALL),
        *removed,
        Variant("all steps and subcells", (*ALL, *SUBCELLS)),
    ]


def larger_variants() -> list[Variant]:
    """Return the ways of propagating on an enlarged image."""
    return [Variant("plain, 720 px", LARGER), Variant("all steps, 720 px", (*ALL, *LARGER))]


def make_clips(videos: Path, work: Path, half: str, scene: str, count: int) -> list[Path]:
    """Make the composites of a half and scene that do not exist yet."""
    entries = make_index(videos, make_folder(work) / "index.jsonl", workers=usable_cores()).entries
    own = sorted(entries, key=lambda entry: entry.path)[list(HALVES).index(half) :: 2]
    config = ArticulatedConfig(seed=HALVES[half], **SCENES[scene])
    paths = []
    for number in range(count):
        path = make_folder(work / scene / half) / f"{number:02d}.npz"
        if not path.exists():
            frames, masks = make_articulated(videos, own, config, number)
            np.savez(path, frames=frames, masks=masks)
        paths.append(path)
    return paths


def score_clip(path: Path, *, encoder: str, ways: Sequence[Variant]) -> dict[str, dict[str, float]]:
    """Return J and F of one composite, and the seconds of a frame, for every way of propagating."""
    torch.set_num_threads(1)
    with np.load(path) as data:
        frames, masks = data["frames"], data["masks"]
    cached = CachedEncoder(load_encoder(encoder))
    return {way.name: _score(way, cached, frames, masks) for way in ways}


def _score(way: Variant, encoder: CachedEncoder, frames: np.ndarray, masks: np.ndarray) -> dict[str, float]:
    config = propagate_config("plain", way.settings)
    propagator = Propagator(encoder, config)
    for image in frames:
        propagator.frame_encoder.encode(image)  # outside the clock
    scores, start = [], time.perf_counter()
    for index, (image, mask) in enumerate(zip(frames, masks, strict=True)):
        labels = propagator.step(image, Masks.of(mask) if index == 0 else None)
        if index:
            scores.append((jaccard(labels.ids > 0, mask), boundary_f(labels.ids > 0, mask)))  # type: ignore[attr-defined]
    j, f = np.mean(scores, axis=0)
    return {"J": float(j), "F": float(f), "seconds": (time.perf_counter() - start) / len(frames)}


def summary(
    by_clip: Mapping[str, Mapping[str, Mapping[str, float]]], names: Sequence[str], base: str
) -> dict[str, dict[str, Any]]:
    """Return the mean J&F in percent of every variant, and its difference to the base with a standard error."""

    def j_and_f(name: str) -> np.ndarray:
        return np.array([50 * (scores[name]["J"] + scores[name]["F"]) for scores in by_clip.values()])

    result = {}
    for name in names:
        difference = j_and_f(name) - j_and_f(base)
        result[name] = {
            "J&F": round(float(j_and_f(name).mean()), 2),
            "difference": round(float(difference.mean()), 2),
            "standard_error": round(float(difference.std(ddof=1) / np.sqrt(len(difference))), 2),
            "worst": round(float(difference.min()), 2),
            "best": round(float(difference.max()), 2),
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of composites")
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--half", choices=tuple(HALVES), default="choosing")
    parser.add_argument("--scene", choices=tuple(SCENES), default="mixed")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--larger", action="store_true", help="measure the enlarged image instead")
    chosen = parser.parse_args()
    start = time.perf_counter()
    paths = make_clips(chosen.videos, chosen.work, chosen.half, chosen.scene, chosen.clips)
    ways = [variants()[0], *larger_variants()] if chosen.larger else variants()
    names = [way.name for way in ways]
    by_clip = {}
    with multiprocessing.get_context("spawn").Pool(usable_cores()) as pool:
        scored = pool.imap(partial(score_clip, encoder=chosen.encoder, ways=ways), paths)
        for path, scores in zip(paths, scored, strict=True):
            by_clip[path.stem] = scores
            print(path.stem, *(f"{name} {50 * (one['J'] + one['F']):.1f}" for name, one in scores.items()), flush=True)
    results = summary(by_clip, names, "plain")
    for name, row in results.items():
        print(f"{name:24} {row['J&F']:5.1f} {row['difference']:+5.1f} +- {row['standard_error']:.1f}")
    write_record(
        f"engine_{chosen.scene}_{chosen.half}{'_larger' if chosen.larger else ''}",
        settings={
            "encoder": chosen.encoder,
            "clips": chosen.clips,
            "half": chosen.half,
            "scene": chosen.scene,
            "variants": {way.name: list(way.settings) for way in ways},
        },
        measured={
            "summary": results,
            "clips": by_clip,
            "weights_sha256": load_encoder(chosen.encoder).sha256,
        },
        seconds=time.perf_counter() - start,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
