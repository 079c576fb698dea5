"""Which settings suit this very clip, told without truth: labels go out through the video and should come back.

From the drawing labels are carried to a later frame; what arrives there is carried back as if it had been drawn. What
comes back is compared with the drawing. Labels that were lost on the way do not come back.
The way back leads through the frames in between, whatever the candidate does: what goes out in one leap and back in the
same leap comes home wherever it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from timecycle.errors import LabelError
from timecycle.labels import Labels, Masks, Parts
from timecycle.labels.soft import overlap
from timecycle.model.encoder import Encoder
from timecycle.propagation.propagate import propagate, space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import Video, VideoPart

_TURNS = 4  # of cycles: at each quarter of the way, as some things are lost on the way and found again at its end

OnCandidate = Callable[[int, int], None]  # done, in all


@dataclass(frozen=True, eq=False)
class Candidate:
    """Settings to try, by the name they are known by."""

    name: str
    encoder: Encoder
    config: PropagateConfig


@dataclass(frozen=True)
class Tried:
    """The error of a candidate: 0 if the drawing comes back whole, 1 if nothing of it does."""

    name: str
    cycle_error: float


def tune(
    video: Video,
    index: int,
    drawing: Labels,
    candidates: Sequence[Candidate],
    *,
    frames: int = 60,
    progress: OnCandidate | None = None,
) -> list[Tried]:
    """Candidates by the error of their cycles over at most so many frames after the drawing, the best first."""
    last = min(index + frames, len(video) - 1)
    if last - index < 2:
        raise LabelError(
            f"there are {last - index} frames after the drawing on frame {index}",
            remedy="draw a frame with some frames after it",
        )
    tried = []
    for done, candidate in enumerate(candidates, 1):
        tried.append(Tried(candidate.name, round(_cycle_error(video, index, drawing, candidate, last), 4)))
        if progress is not None:
            progress(done, len(candidates))
    return sorted(tried, key=lambda one: one.cycle_error)


def _cycle_error(video: Video, index: int, drawing: Labels, candidate: Candidate, last: int) -> float:
    """The mean over cycles that turn ever farther from the drawing, the last at the end."""
    turns = {index + -(-(last - index) * turn // _TURNS) for turn in range(1, _TURNS + 1)}
    whole = VideoPart(video, index, last + 1)
    forward = replace(candidate.config, direction="forward")
    errors = []
    for frame in propagate(whole, {0: drawing}, encoder=candidate.encoder, config=forward):
        if frame.index + index in turns:
            errors.append(_error_of_return(whole, frame.index, frame.labels, drawing, candidate))
    return fmean(errors)


def _error_of_return(video: Video, turn: int, arrived: Labels, drawing: Labels, candidate: Candidate) -> float:
    """1 - the overlap of what comes back with what was drawn, over its objects."""
    if isinstance(arrived, Masks | Parts):
        arrived = replace(arrived, complete=True)
    past_frames = candidate.config.past_frames or PropagateConfig.past_frames  # as usual, where it remembers none
    back = propagate(
        VideoPart(video, 0, turn + 1),
        {turn: arrived},
        encoder=candidate.encoder,
        config=replace(candidate.config, direction="both", past_frames=past_frames),
    )
    returned = next(back)
    if returned.carried is None:
        raise LabelError("nothing came back", remedy="this is a fault of timecycle: please report it")
    space = space_of({0: drawing})
    # Through their file form, in the drawing's own channels: objects that were lost on the way are not in the others.
    truth, found = (
        space.extent(space.to_soft(labels, returned.carried.grid)).flatten(0, 1)
        for labels in (drawing, returned.labels)
    )
    there = torch.maximum(truth, found).sum(dim=0) > 0
    return 1 - float(overlap(truth, found)[there].mean()) if bool(there.any()) else 0.0
