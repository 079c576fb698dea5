"""Tuning: rank encoders and settings on a clip without ground truth, by forward-backward consistency of its labels.

The annotation is propagated forward to a later frame, and what arrives there is propagated back as if it were
annotated. The cycle error compares what returns with the annotation: labels that were lost do not return. The backward
pass always goes through the frames between. A candidate that matches distant frames directly, there and back, would
otherwise return to the annotation wherever its labels had been.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from timecycle.errors import LabelError
from timecycle.labels import Labels
from timecycle.labels.label_map import overlap
from timecycle.model.encoder import Encoder
from timecycle.progress import OnProgress
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate, space_of
from timecycle.video import Video, VideoSlice

_CYCLES = 4  # of different lengths, as objects may be lost in between and found again at the end


@dataclass(frozen=True, eq=False)
class Candidate:
    """An encoder and settings to try, with a name to show."""

    name: str
    encoder: Encoder
    config: PropagateConfig


@dataclass(frozen=True)
class TunedCandidate:
    """The cycle error of a candidate: 0 if the annotation returns exactly, 1 if nothing of it returns."""

    name: str
    cycle_error: float


def tune(
    video: Video,
    index: int,
    annotation: Labels,
    candidates: Sequence[Candidate],
    *,
    frames: int = 60,
    progress: OnProgress | None = None,
) -> list[TunedCandidate]:
    """Rank candidates by their cycle error over at most `frames` frames after the annotated one, the best first."""
    last = min(index + frames, len(video) - 1)
    if last - index < 2:
        raise LabelError(
            f"there are only {last - index} frames after the annotated frame {index}",
            remedy="annotate an earlier frame",
        )
    tuned = []
    for done, candidate in enumerate(candidates, 1):
        error = _cycle_error(video, index, annotation, candidate, last)
        tuned.append(TunedCandidate(candidate.name, round(error, 4)))
        if progress is not None:
            progress(done, len(candidates))
    return sorted(tuned, key=lambda one: one.cycle_error)


def _cycle_error(video: Video, index: int, annotation: Labels, candidate: Candidate, last: int) -> float:
    """Return the mean error of cycles that turn at evenly spaced frames, the last one at `last`."""
    turns = {index + -(-(last - index) * turn // _CYCLES) for turn in range(1, _CYCLES + 1)}
    part = VideoSlice(video, index, last + 1)
    forward = replace(candidate.config, direction="forward")
    errors = []
    for frame in propagate(part, {0: annotation}, encoder=candidate.encoder, config=forward):
        if frame.index + index in turns:
            errors.append(_return_error(part, frame.index, frame.labels, annotation, candidate))
    return fmean(errors)


def _return_error(video: Video, turn: int, arrived: Labels, annotation: Labels, candidate: Candidate) -> float:
    """Propagate labels back from frame `turn`; returns 1 - their mean overlap with the annotation, over its objects."""
    past_frames = candidate.config.past_frames or PropagateConfig.past_frames  # never directly: see above
    backward = propagate(
        VideoSlice(video, 0, turn + 1),
        {turn: arrived.as_exhaustive()},
        encoder=candidate.encoder,
        config=replace(candidate.config, direction="both", past_frames=past_frames),
    )
    returned = next(backward)
    if returned.label_map is None:
        raise LabelError("no labels came back", remedy="this is a bug in timecycle: please report it")
    # Encoded in the annotation's channels: objects that were lost have none in the space of the returned labels.
    space, grid = space_of({0: annotation}), returned.label_map.grid
    target, result = (
        space.extent(space.encode(labels, grid)).flatten(0, 1) for labels in (annotation, returned.labels)
    )
    present = torch.maximum(target, result).sum(dim=0) > 0
    return 1 - float(overlap(target, result)[present].mean()) if bool(present.any()) else 0.0
