"""What corrections are worth, and which frames to correct: true masks are put in where a queue asks for them.

    python benchmarks/corrections.py DATA --work DIR [--encoder NAME] [--names ...]

DAVIS-2016 val at 240 pixels. The first mask is given; then up to five frames are drawn, chosen by our queue together or
one after the other, evenly spaced, at random, or as the frame that is truly worst. What DIR has already is not done
again, so several processes can do some sequences each; once labels are carried or judged otherwise, begin with an empty
one.
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

from record import write_record
from remembering import Remembering
from timecycle.config import propagate_config
from timecycle.evaluation.davis import find_davis
from timecycle.evaluation.metrics.boundaries import boundary_f
from timecycle.evaluation.metrics.regions import jaccard
from timecycle.files import make_folder, write_text
from timecycle.labels import Labels, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.propagate import LabelledFrame, propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.intervals import intervals_of, propagate_interval
from timecycle.review.judged import Judged, JudgedFrame, JudgedObject
from timecycle.review.queue import suggest
from timecycle.video import Video, open_video

MOST = 5

Truth = Mapping[int, Masks]
Choose = Callable[["Situation"], int]


@dataclasses.dataclass(frozen=True, eq=False)
class Situation:
    """What a queue may look at: the frames as they are now. Only the worst-frame queue looks at the overlap."""

    frames: list[LabelledFrame]
    overlap: list[float]
    drawn: set[int]
    wanted: int  # how many frames will be drawn in all
    rng: np.random.Generator


def together(now: Situation) -> int:
    """`timecycle check -n N --together`: the best of the frames that are still to be drawn, chosen as a set."""
    return _suggested(now, count=now.wanted - len(now.drawn) + 1)


def one_by_one(now: Situation) -> int:
    """The first frame of `timecycle check`, then again."""
    return _suggested(now, count=1)


def _suggested(now: Situation, *, count: int) -> int:
    rows, objects = [], {}
    for frame in now.frames:
        if frame.confidence is None:
            continue
        source = "given" if frame.index in now.drawn else frame.source
        rows.append(
            JudgedFrame(
                frame.index, frame.number, frame.time_seconds, source, frame.confidence.value, frame.confidence.state
            )
        )
        objects[frame.index] = {
            name: JudgedObject(one.value, one.state, one.annotated, one.early)
            for name, one in frame.confidence.objects.items()
        }
    queue = suggest(Judged(Path(), {}, rows, objects), count=count, together=count > 1)
    return queue[0].index if queue else random(now)


def uniform(now: Situation) -> int:
    """Spaced so that no frame is far from a drawing, with the first one given: the strongest plan without looking."""
    count = len(now.frames)
    places = [round(2 * k * (count - 1) / (2 * now.wanted + 1)) for k in range(1, now.wanted + 1)]
    return next(place for place in places if place not in now.drawn)


def random(now: Situation) -> int:
    return int(now.rng.choice([i for i in range(len(now.frames)) if i not in now.drawn]))


def worst(now: Situation) -> int:
    """The frame that truly overlaps least."""
    return min((i for i in range(len(now.frames)) if i not in now.drawn), key=lambda i: now.overlap[i])


QUEUES: dict[str, Choose] = {
    "ours, together": together,
    "ours, one by one": one_by_one,
    "uniform": uniform,
    "random": random,
    "worst frame": worst,
}
PLANNED = (together, uniform)  # for a number of drawings that is known
JUDGING = (together, one_by_one)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--work", type=Path, required=True, help="where each sequence's curves are kept")
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; no record is written")
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
        files = sorted(file for file in benchmark.truth_files if file.parent.name == clip.name)
        truth = {index: Masks.read(file) for index, file in enumerate(files)}
        remembering = Remembering(encoder)
        with open_video(clip.frames) as frames:
            video = open_video(np.stack([frame.image for frame in frames]))  # decoded once
        carried = list(propagate(video, {0: truth[0]}, encoder=remembering, config=config, trust=TrustConfig()))
        start = Start(video, truth, remembering, config, carried, [scored(frame, truth) for frame in carried])
        kept |= {name: curve(start, choose) for name, choose in missing.items()}
        write_text(path, json.dumps(kept))
        print(clip.name, {name: [round(v, 3) for v in values] for name, values in kept.items()}, flush=True)
    means = {
        name: [round(fmean(of[name][count] for of in per_sequence.values()), 4) for count in range(MOST + 1)]
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
    """A clip with its first frame drawn and carried, from which every queue goes on."""

    video: Video
    truth: Truth
    encoder: Encoder
    config: PropagateConfig
    carried: Sequence[LabelledFrame]
    scores: Sequence["Score"]


def curve(start: Start, choose: Choose) -> list[float]:
    """J&F with 0 to MOST corrections. A plan that depends on how many there will be is made for each number."""
    if choose in PLANNED:
        return [_run(start, choose, count)[-1] for count in range(MOST + 1)]
    return _run(start, choose, MOST)


def _run(start: Start, choose: Choose, wanted: int) -> list[float]:
    rng, truth = np.random.default_rng(0), start.truth
    drawn, frames, kept = {0}, list(start.carried), list(start.scores)
    scores = []
    for count in range(wanted + 1):
        overlap = [score.overlap for score in kept]
        scores.append(fmean((score.overlap + score.boundary) / 2 for score in kept[1:-1]))  # as DAVIS counts
        if count == wanted:
            break
        index = choose(Situation(frames, overlap, drawn, wanted, rng))
        # Exactly what `timecycle correct` does.
        correction = {index: dataclasses.replace(truth[index], complete=True)}
        (interval,) = intervals_of(
            start.video, correction, partial(_labels_of, tuple(frames)), dict.fromkeys(drawn), start.config
        )
        again = propagate_interval(
            interval,
            encoder=start.encoder,
            config=start.config,
            trust=TrustConfig() if choose in JUDGING else None,
        )
        for frame in again:
            frames[frame.index], kept[frame.index] = frame, scored(frame, truth)
        drawn = drawn | {index}
    return scores


def _labels_of(frames: Sequence[LabelledFrame], index: int) -> Labels:
    return frames[index].labels


@dataclasses.dataclass(frozen=True)
class Score:
    """Of one frame: J and F."""

    overlap: float
    boundary: float


def scored(frame: LabelledFrame, truth: Truth) -> Score:
    mask, true = _mask(frame.labels), truth[frame.index].ids > 0
    return Score(jaccard(mask, true), boundary_f(mask, true))


def _mask(labels: Labels) -> np.ndarray:
    if not isinstance(labels, Masks):
        raise TypeError(f"masks are carried here, not {labels.kind}")
    mask: np.ndarray = labels.ids > 0
    return mask


if __name__ == "__main__":
    sys.exit(main())
