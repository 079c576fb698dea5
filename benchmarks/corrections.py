"""Evaluate review queues: J&F after correcting the frames that a queue suggests with their true masks.

    python benchmarks/corrections.py DATA --work DIR [--encoder NAME] [--names ...]

DAVIS-2016 val at 240 pixels. The first mask is given; then up to five frames are annotated, chosen by our queue as a
set or one by one, evenly spaced, at random, or by the lowest true overlap. Sequences that are finished in DIR are
skipped, so several processes can share the work; after a change of propagation or confidence, use an empty DIR.
Results: corrections.json.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from cached_encoder import CachedEncoder
from record import write_record
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.config import propagate_config
from timecycle.evaluation.metrics.masks import boundary_f, jaccard
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.files import make_folder, write_text
from timecycle.labels import Labels, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import LabelledFrame, propagate
from timecycle.review.intervals import intervals_of, propagate_interval
from timecycle.review.queue import suggest
from timecycle.runs.tables import FrameRow, ObjectRow, RunTables
from timecycle.video import Video, open_video

MAX_CORRECTIONS = 5

GroundTruth = Mapping[int, Masks]
Choose = Callable[["Situation"], int]


@dataclasses.dataclass(frozen=True, eq=False)
class Situation:
    """The present state of a clip, from which a queue chooses. Only the worst-frame queue uses the overlap."""

    frames: list[LabelledFrame]
    overlap: list[float]
    annotated: set[int]
    wanted: int  # corrections in total
    rng: np.random.Generator


def together(now: Situation) -> int:
    """Choose the remaining frames as a set, as `timecycle check -n N --together`, and return the best."""
    return _suggested(now, count=now.wanted - len(now.annotated) + 1)


def one_by_one(now: Situation) -> int:
    """Return the first frame of `timecycle check`, which is run again after each correction."""
    return _suggested(now, count=1)


def _suggested(now: Situation, *, count: int) -> int:
    rows, objects = [], {}
    for frame in now.frames:
        if frame.confidence is None:
            continue
        source = "annotated" if frame.index in now.annotated else frame.source
        rows.append(
            FrameRow(
                frame.index, frame.number, frame.time_seconds, source, frame.confidence.value, frame.confidence.state
            )
        )
        objects[frame.index] = {
            name: ObjectRow(one.value, one.state, one.annotated, one.before_annotation)
            for name, one in frame.confidence.objects.items()
        }
    queue = suggest(RunTables(Path(), {}, rows, objects), count=count, together=count > 1)
    return queue[0].index if queue else random(now)


def uniform(now: Situation) -> int:
    """Space annotations evenly, with the first frame annotated: the strongest plan that ignores the video."""
    count = len(now.frames)
    planned = [round(2 * k * (count - 1) / (2 * now.wanted + 1)) for k in range(1, now.wanted + 1)]
    return next(index for index in planned if index not in now.annotated)


def random(now: Situation) -> int:
    return int(now.rng.choice([i for i in range(len(now.frames)) if i not in now.annotated]))


def worst(now: Situation) -> int:
    """Return the frame with the lowest true overlap."""
    return min((i for i in range(len(now.frames)) if i not in now.annotated), key=lambda i: now.overlap[i])


QUEUES: dict[str, Choose] = {
    "ours, together": together,
    "ours, one by one": one_by_one,
    "uniform": uniform,
    "random": random,
    "worst frame": worst,
}
PLANNED = (together, uniform)  # for a known number of corrections
CONFIDENCE_BASED = (together, one_by_one)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--work", type=Path, required=True, help="folder of each sequence's curves")
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; writes no result")
    chosen = parser.parse_args()
    began = time.monotonic()
    encoder, config = load_encoder(chosen.encoder), propagate_config("fast")
    benchmark = find_davis(chosen.data / "davis2016", names=chosen.names)
    per_sequence: dict[str, dict[str, list[float]]] = {}
    for clip in benchmark.clips:
        path = make_folder(chosen.work) / f"{clip.name}-{encoder.sha256[:8]}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        per_sequence[clip.name] = kept
        missing = {name: choose for name, choose in QUEUES.items() if name not in kept}
        if not missing:
            continue
        files = sorted(file for file in benchmark.ground_truth_files if file.parent.name == clip.name)
        ground_truth = {index: Masks.read(file) for index, file in enumerate(files)}
        cached = CachedEncoder(encoder)
        with open_video(clip.frames) as files_on_disk:
            video = open_video(np.stack([frame.image for frame in files_on_disk]))  # decoded once
        frames = list(
            propagate(video, {0: ground_truth[0]}, encoder=cached, config=config, confidence=ConfidenceConfig())
        )
        scores = [score_frame(frame, ground_truth) for frame in frames]
        start = Start(video, ground_truth, cached, config, frames, scores)
        kept |= {name: curve(start, choose) for name, choose in missing.items()}
        write_text(path, json.dumps(kept))
        print(clip.name, {name: [round(v, 3) for v in values] for name, values in kept.items()}, flush=True)
    means = {
        name: [
            round(fmean(curves[name][count] for curves in per_sequence.values()), 4)
            for count in range(MAX_CORRECTIONS + 1)
        ]
        for name in QUEUES
    }
    for name, values in means.items():
        print(f"{name:12} {values}")
    if not chosen.names:
        write_record(
            "corrections",
            settings={
                "encoder": encoder.name,
                "weights_sha256": encoder.sha256,
                "config": dataclasses.asdict(config),
            },
            measured={"scores": {"JF_by_corrections": means}, "per_sequence": per_sequence},
            seconds=time.monotonic() - began,
        )
    return 0


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """A clip propagated from its first frame: the start of every queue."""

    video: Video
    ground_truth: GroundTruth
    encoder: Encoder
    config: PropagateConfig
    frames: Sequence[LabelledFrame]
    scores: Sequence["Score"]


def curve(start: Start, choose: Choose) -> list[float]:
    """Return J&F with 0 to MAX_CORRECTIONS corrections; a queue that plans for a number runs for each number."""
    if choose in PLANNED:
        return [_run(start, choose, count)[-1] for count in range(MAX_CORRECTIONS + 1)]
    return _run(start, choose, MAX_CORRECTIONS)


def _run(start: Start, choose: Choose, wanted: int) -> list[float]:
    rng, ground_truth = np.random.default_rng(0), start.ground_truth
    annotated, frames, scores = {0}, list(start.frames), list(start.scores)
    jf = []
    for count in range(wanted + 1):
        overlap = [score.overlap for score in scores]
        jf.append(fmean((score.overlap + score.boundary) / 2 for score in scores[1:-1]))  # as in DAVIS
        if count == wanted:
            break
        index = choose(Situation(frames, overlap, annotated, wanted, rng))
        # The same steps as `timecycle correct`.
        correction = {index: dataclasses.replace(ground_truth[index], exhaustive=True)}
        (interval,) = intervals_of(
            start.video, correction, partial(_labels_of, tuple(frames)), dict.fromkeys(annotated), start.config
        )
        propagated = propagate_interval(
            interval,
            encoder=start.encoder,
            config=start.config,
            confidence=ConfidenceConfig() if choose in CONFIDENCE_BASED else None,
        )
        for frame in propagated:
            frames[frame.index], scores[frame.index] = frame, score_frame(frame, ground_truth)
        annotated = annotated | {index}
    return jf


def _labels_of(frames: Sequence[LabelledFrame], index: int) -> Labels:
    return frames[index].labels


@dataclasses.dataclass(frozen=True)
class Score:
    """J and F of one frame."""

    overlap: float
    boundary: float


def score_frame(frame: LabelledFrame, ground_truth: GroundTruth) -> Score:
    mask, true = _mask(frame.labels), ground_truth[frame.index].ids > 0
    return Score(jaccard(mask, true), boundary_f(mask, true))


def _mask(labels: Labels) -> np.ndarray:
    if not isinstance(labels, Masks):
        raise TypeError(f"expected masks, not {labels.kind}")
    mask: np.ndarray = labels.ids > 0
    return mask


if __name__ == "__main__":
    sys.exit(main())
