"""Does an audit find what is wrong with labels? Faults put into true labels, and clean ones for false alarms.

    python benchmarks/audit.py DATA [--composites DIR] [--encoder NAME] [--names ...]

The true masks of DAVIS-2016 val, or with --composites those of composites of held-out training footage, on which the
limits were set. Objects change places in the synthetic world, as DAVIS-2016 has one object only. Results: audit.json.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from record import write_record
from remembering import Remembering
from timecycle.config import propagate_config
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.composites import find_composites
from timecycle.evaluation.davis import find_davis
from timecycle.evaluation.metrics.regions import jaccard
from timecycle.labels import Labels, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.review.audit import Audit, AuditConfig, audit
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import Video, open_video

Track = Mapping[int, Masks]

_WORLDS = 20
_TELLING_J = 0.03  # a shift of one frame counts where it changes the mean overlap by so much


# Faults. Each gives a track with the fault in it, and what counts as having found it.


def shifted(by: int) -> Callable[[Track], Track]:
    """File i shows what is on frame i + by; the ends are cut."""
    return lambda track: {i: track[i + by] for i in track if i + by in track}


def drifting(track: Track) -> Track:
    """Creeps to the right by half the object's width."""
    columns = np.flatnonzero((track[0].ids > 0).any(axis=0))
    far = 0.5 * (columns[-1] - columns[0] + 1)
    last = max(track)
    return {i: Masks.of(_moved(masks.ids, round(far * i / last))) for i, masks in track.items()}


def dropped(track: Track) -> Track:
    """Gone for a sixth of the clip, from its middle on."""
    middle, length = len(track) // 2, max(len(track) // 6, 3)
    empty = np.zeros_like(track[0].ids)
    return {i: Masks.of(empty) if middle <= i < middle + length else masks for i, masks in track.items()}


def frozen(track: Track) -> Track:
    """The same mask for a quarter of the clip, from its middle on."""
    middle, length = len(track) // 2, max(len(track) // 4, 5)
    return {i: track[middle] if middle <= i < middle + length else masks for i, masks in track.items()}


def _moved(ids: np.ndarray, by: int) -> np.ndarray:
    moved = np.zeros_like(ids)
    moved[:, by:] = ids[:, : ids.shape[1] - by]
    return moved


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
    parser.add_argument("--composites", type=Path, help="try these instead; nothing is kept")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; nothing is kept")
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
    """By fault and sequence: whether it was found, what else was said, and what the fault did to the labels."""
    rows: dict[str, dict[str, dict[str, object]]] = {name: {} for name in FAULTS}
    for clip in benchmark.clips:
        files = sorted(file for file in benchmark.truth_files if file.parent.name == clip.name)
        truth = {index: Masks.read(file) for index, file in enumerate(files)}
        remembering = Remembering(encoder)
        with open_video(clip.frames) as video:
            for name, (fault, put) in FAULTS.items():
                track = put(truth)
                found = _audited(video, track, remembering)
                rows[name][clip.name] = _row(found, fault, name) | {"overlap": round(_overlap(track, truth), 4)}
        print(clip.name, {name: rows[name][clip.name]["found"] for name in FAULTS}, flush=True)
    return rows


def _row(found: Audit, fault: str, name: str) -> dict[str, object]:
    kinds = [finding.fault for finding in found.findings]
    right = fault in kinds
    if fault == "shift":
        by = int(name.split()[2])
        right = any(f"frame {by}" in finding.words for finding in found.findings if finding.fault == "shift")
    return {"found": right if fault else bool(kinds), "said": sorted(set(kinds))}


def _audited(video: Video, track: Track, encoder: Encoder) -> Audit:
    labels: dict[int, Labels] = dict(track)
    return audit(video, labels, encoder=encoder, config=propagate_config("fast"))


def _overlap(track: Track, truth: Track) -> float:
    return float(np.mean([jaccard(track[i].ids > 0, truth[i].ids > 0) for i in track]))


def _swaps(encoder: Encoder) -> dict[str, dict[str, object]]:
    """Two objects of a synthetic world change names half-way through the frames that show both; and not."""
    rows: dict[str, dict[str, object]] = {}
    for seed in range(_WORLDS):
        world = make_world(WorldConfig(height_px=240, width_px=320, frames=20, objects=4, seed=seed))
        clean = {t: Masks(world.mask(t)) for t in range(len(world))}
        remembering = Remembering(encoder)
        video = open_video(world.video())
        kinds = [
            {finding.fault for finding in _audited(video, track, remembering).findings}
            for track in (_swapped(clean), clean)
        ]
        rows[f"world {seed}"] = {"found": "swap" in kinds[0], "false": "swap" in kinds[1], "said": sorted(kinds[0])}
    return rows


def _swapped(track: Track) -> Track:
    """The two objects that are seen longest change names."""
    seen = {t: set(np.unique(masks.ids).tolist()) - {0} for t, masks in track.items()}
    names = sorted(set.union(*seen.values()), key=lambda name: -sum(name in here for here in seen.values()))
    pair = names[:2]
    both = [t for t, here in seen.items() if here >= set(pair)]
    table = np.arange(max(names) + 1, dtype=np.uint16)
    table[pair] = pair[::-1]
    return {t: Masks(table[masks.ids]) if t >= both[len(both) // 2] else masks for t, masks in track.items()}


def summary(rows: Mapping[str, Mapping[str, Mapping[str, object]]]) -> dict[str, dict[str, object]]:
    """How many were found of how many; a shift of one frame also over those where it changes the labels."""
    scores: dict[str, dict[str, object]] = {}
    for name, of in rows.items():
        scores[name] = {"found": sum(bool(row["found"]) for row in of.values()), "of": len(of)}
        if name == "swap":
            scores[name]["false_alarms"] = sum(bool(row["false"]) for row in of.values())
        if name == "shift of 1 frame":
            telling = [row for row in of.values() if 1 - float(str(row["overlap"])) >= _TELLING_J]
            scores[name] |= {"found_telling": sum(bool(row["found"]) for row in telling), "of_telling": len(telling)}
    scores["clean"] = {"false_alarms": scores["clean"]["found"], "of": scores["clean"]["of"]}
    return scores


if __name__ == "__main__":
    sys.exit(main())
