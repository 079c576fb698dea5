"""Evaluate `timecycle audit`: detection of faults injected into true labels, and false alarms on clean labels.

    python benchmarks/audit.py DATA [--composites DIR] [--encoder NAME] [--names ...]

Uses the true masks of DAVIS-2016 val, or with --composites those of composites of held-out training footage, on which
the limits were chosen. Identity swaps are tested in the synthetic world, as DAVIS-2016 has one object only. Results:
audit.json.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from cached_encoder import CachedEncoder
from record import write_record
from timecycle.config import propagate_config
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.evaluation.protocols.composites import find_composites
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.labels import Labels, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.review.audit import Audit, AuditConfig, audit
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import Video, open_video

Track = Mapping[int, Masks]

_WORLDS = 20
_MIN_J_CHANGE = 0.03  # a smaller change of the mean overlap hardly makes a shift of one frame a fault


# Faults


def shifted(by: int) -> Callable[[Track], Track]:
    """Give frame i the labels of frame i + by; frames without such labels are dropped."""
    return lambda track: {i: track[i + by] for i in track if i + by in track}


def drifting(track: Track) -> Track:
    """Drift to the right by half the object's width."""
    columns = np.flatnonzero((track[0].ids > 0).any(axis=0))
    far = 0.5 * (columns[-1] - columns[0] + 1)
    last = max(track)
    return {i: Masks.of(_moved(masks.ids, round(far * i / last))) for i, masks in track.items()}


def dropped(track: Track) -> Track:
    """Drop the object for a sixth of the clip, from its middle on."""
    middle, length = len(track) // 2, max(len(track) // 6, 3)
    empty = np.zeros_like(track[0].ids)
    return {i: Masks.of(empty) if middle <= i < middle + length else masks for i, masks in track.items()}


def frozen(track: Track) -> Track:
    """Freeze the mask for a quarter of the clip, from its middle on."""
    middle, length = len(track) // 2, max(len(track) // 4, 5)
    return {i: track[middle] if middle <= i < middle + length else masks for i, masks in track.items()}


def _moved(ids: np.ndarray, by: int) -> np.ndarray:
    moved = np.zeros_like(ids)
    moved[:, by:] = ids[:, : ids.shape[1] - by]
    return moved


# By name: the fault that the audit should report, and the function that injects it.
FAULTS: dict[str, tuple[str, Callable[[Track], Track]]] = {
    "clean": ("", lambda track: track),
    "shift of 1 frame": ("shift", shifted(1)),
    "shift of 2 frames": ("shift", shifted(2)),
    "shift of 5 frames": ("shift", shifted(5)),
    "gradual drift": ("drift", drifting),
    "dropped object": ("dropped", dropped),
    "frozen mask": ("frozen", frozen),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--composites", type=Path, help="use these instead; writes no result")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; writes no result")
    chosen = parser.parse_args()
    began = time.monotonic()
    encoder = load_encoder(chosen.encoder)
    benchmark: Benchmark = (
        find_composites(chosen.composites, names=chosen.names)
        if chosen.composites
        else find_davis(chosen.data / "davis2016", names=chosen.names)
    )
    rows = dict(_sequences(benchmark, encoder))
    if not chosen.names:
        rows["swap"] = _swaps(encoder)
    scores = summary(rows)
    for name, figures in scores.items():
        print(f"{name:20} " + " ".join(f"{figure} {value}" for figure, value in figures.items()))
    if not chosen.composites and not chosen.names:
        write_record(
            "audit",
            settings={
                "encoder": encoder.name,
                "weights_sha256": encoder.sha256,
                "config": dataclasses.asdict(propagate_config("fast")),
                "limits": dataclasses.asdict(AuditConfig()),
            },
            measured={"scores": scores, "per_sequence": rows},
            seconds=time.monotonic() - began,
        )
    return 0


def _sequences(benchmark: Benchmark, encoder: Encoder) -> dict[str, dict[str, dict[str, object]]]:
    """Audit every sequence with every fault: whether it is found, what is reported, and the overlap left."""
    rows: dict[str, dict[str, dict[str, object]]] = {name: {} for name in FAULTS}
    for clip in benchmark.clips:
        files = sorted(file for file in benchmark.ground_truth_files if file.parent.name == clip.name)
        ground_truth = {index: Masks.read(file) for index, file in enumerate(files)}
        cached = CachedEncoder(encoder)
        with open_video(clip.frames) as video:
            for name, (fault, inject) in FAULTS.items():
                track = inject(ground_truth)
                result = _audit(video, track, cached)
                rows[name][clip.name] = _row(result, fault, name) | {"overlap": round(_overlap(track, ground_truth), 4)}
        print(clip.name, {name: rows[name][clip.name]["detected"] for name in FAULTS}, flush=True)
    return rows


def _row(result: Audit, fault: str, name: str) -> dict[str, object]:
    reported = [finding.kind for finding in result.findings]
    is_detected = fault in reported
    if fault == "shift":
        by = int(name.split()[2])
        is_detected = any(f"frame {by}" in finding.message for finding in result.findings if finding.kind == "shift")
    return {"detected": is_detected if fault else bool(reported), "reported": sorted(set(reported))}


def _audit(video: Video, track: Track, encoder: Encoder) -> Audit:
    labels: dict[int, Labels] = dict(track)
    return audit(video, labels, encoder=encoder, config=propagate_config("fast"))


def _overlap(track: Track, ground_truth: Track) -> float:
    return float(np.mean([jaccard(track[i].ids > 0, ground_truth[i].ids > 0) for i in track]))


def _swaps(encoder: Encoder) -> dict[str, dict[str, object]]:
    """Audit synthetic worlds in which two objects swap ids half-way through their common frames, and clean ones."""
    rows: dict[str, dict[str, object]] = {}
    for seed in range(_WORLDS):
        world = make_world(WorldConfig(height_px=240, width_px=320, frames=20, objects=4, seed=seed))
        clean = {t: Masks(world.mask(t)) for t in range(len(world))}
        cached = CachedEncoder(encoder)
        video = open_video(world.video())
        swapped, unswapped = (
            {finding.kind for finding in _audit(video, track, cached).findings} for track in (_swapped(clean), clean)
        )
        rows[f"world {seed}"] = {
            "detected": "swap" in swapped,
            "false_alarm": "swap" in unswapped,
            "reported": sorted(swapped),
        }
    return rows


def _swapped(track: Track) -> Track:
    """Swap the ids of the two objects that are visible longest."""
    visible = {t: set(np.unique(masks.ids).tolist()) - {0} for t, masks in track.items()}
    ids = sorted(set.union(*visible.values()), key=lambda i: -sum(i in present for present in visible.values()))
    pair = ids[:2]
    both = [t for t, present in visible.items() if present >= set(pair)]
    table = np.arange(max(ids) + 1, dtype=np.uint16)
    table[pair] = pair[::-1]
    return {t: Masks(table[masks.ids]) if t >= both[len(both) // 2] else masks for t, masks in track.items()}


def summary(rows: Mapping[str, Mapping[str, Mapping[str, object]]]) -> dict[str, dict[str, object]]:
    """Count the faults found; for a shift of one frame also among sequences whose labels it changes."""
    scores: dict[str, dict[str, object]] = {}
    for name, sequences in rows.items():
        scores[name] = {"detected": sum(bool(row["detected"]) for row in sequences.values()), "total": len(sequences)}
        if name == "swap":
            scores[name]["false_alarms"] = sum(bool(row["false_alarm"]) for row in sequences.values())
        if name == "shift of 1 frame":
            changed = [row for row in sequences.values() if 1 - float(str(row["overlap"])) >= _MIN_J_CHANGE]
            scores[name] |= {
                "detected_of_changed": sum(bool(row["detected"]) for row in changed),
                "changed": len(changed),
            }
    scores["clean"] = {"false_alarms": scores["clean"]["detected"], "total": scores["clean"]["total"]}
    return scores


if __name__ == "__main__":
    sys.exit(main())
