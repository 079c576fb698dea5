"""Which frames to check first: those whose correction removes most of the error that is to be expected.

A correction controls the frames up to the next drawings on either side. There, what is left of a frame's expected
error (1 - confidence) shrinks with its distance to the nearest drawing, so a frame in the midst of a doubtful stretch
is worth more than the worst frame at its end. Each frame that is chosen counts as drawn when the next is chosen, which
spaces them. So whoever stops early has drawn the best ones; who will draw them all has them chosen together.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from timecycle.review.judged import Judged, JudgedObject

_MOST_TRIED = 2000  # frames of a video
_LEAST_GAIN = 0.2  # in frames: less is not worth a look
_LEAST_SHARE = 0.05  # of what the first suggestion is worth
_LEAST_MOVE = 1e-6  # in frames: beyond rounding

Errors = Float[np.ndarray, " frames"]


@dataclass(frozen=True)
class Suggestion:
    """A frame to check: why, and what its correction would be worth."""

    index: int
    time_seconds: float
    confidence: float
    object: str  # the least sure one on it
    state: str
    first: int  # of the frames it controls
    last: int
    gain: float  # expected error removed, in frames that were wholly wrong


def suggest(judged: Judged, *, count: int = 10, together: bool = False) -> list[Suggestion]:
    """The most useful frames to correct, the best first: one after the other, or as the best set of so many."""
    errors, drawings = expected_errors(judged), set(judged.drawings)
    can_draw = [bool(_seen(judged, frame.index)) for frame in judged.frames]
    chosen = _one_by_one(errors, drawings, can_draw, count)
    if together:
        chosen = _exchanged(errors, drawings, can_draw, chosen)
    found: list[Suggestion] = []
    for index in chosen:
        share = removed(index, drawings, len(errors))
        found.append(_suggestion(judged, index, drawings, gain=float((errors * share).sum())))
        errors = errors * (1 - share)
        drawings.add(index)
    return found


def _one_by_one(errors: Errors, drawings: Set[int], can_draw: Sequence[bool], count: int) -> list[int]:
    """Each the best once those before it are drawn, as long as it is worth a look."""
    chosen: list[int] = []
    most = 0.0
    while len(chosen) < count:
        gains = gains_of(errors, {*drawings, *chosen}, can_draw=can_draw)
        best = int(gains.argmax())
        most = max(most, float(gains[best]))
        if gains[best] < max(_LEAST_GAIN, _LEAST_SHARE * most):
            break
        errors = errors * (1 - removed(best, {*drawings, *chosen}, len(errors)))
        chosen.append(best)
    return chosen


def _exchanged(errors: Errors, drawings: Set[int], can_draw: Sequence[bool], chosen: Sequence[int]) -> list[int]:
    """As many frames that remove more together: each is put where it is best among the others, until none moves.

    Every move removes more error, so this ends. The most useful first.
    """
    current, moved = list(chosen), True
    while moved:
        moved = False
        for place, old in enumerate(current):
            others = {*drawings, *current[:place], *current[place + 1 :]}
            gains = gains_of(_left(errors, drawings, others), others, can_draw=can_draw)
            best = int(gains.argmax())
            if gains[best] > gains[old] + _LEAST_MOVE:
                current[place], moved = best, True
    only = [index in current for index in range(len(errors))]
    return _one_by_one(errors, drawings, only, len(current))


def _left(errors: Errors, drawings: Set[int], more: Set[int]) -> Errors:
    """What is left of the errors once `more` frames are drawn."""
    drawn = set(drawings)
    for index in sorted(more - drawn):
        errors = errors * (1 - removed(index, drawn, len(errors)))
        drawn.add(index)
    return errors


def _suggestion(judged: Judged, index: int, drawings: Set[int], *, gain: float) -> Suggestion:
    frame, count = judged.frames[index], len(judged.frames)
    before, after = neighbours_of(index, drawings, count)
    name, least = min(_seen(judged, frame.index).items(), key=lambda item: item[1].confidence)
    return Suggestion(
        index=frame.index,
        time_seconds=frame.time_seconds,
        confidence=least.confidence,
        object=name,
        state=least.state,
        first=max(before + 1, 0),
        last=min(after - 1, count - 1),
        gain=round(gain, 3),
    )


def expected_errors(judged: Judged) -> Errors:
    """1 - confidence, over the objects of every frame; what is hidden has no error, nor what nothing is known of."""
    errors = []
    for frame in judged.frames:
        wrong = sum(1 - one.confidence for one in _seen(judged, frame.index).values())
        errors.append(wrong / max(len(judged.objects.get(frame.index, {})), 1))
    return np.array(errors)


def _seen(judged: Judged, index: int) -> dict[str, JudgedObject]:
    """The objects that are on a frame: what is hidden cannot be drawn."""
    return {name: one for name, one in judged.objects.get(index, {}).items() if one.state != "occluded"}


def gains_of(errors: Errors, drawings: Set[int], *, can_draw: Sequence[bool]) -> Errors:
    """The expected error that drawing each frame would remove; of a long video frames here and there are tried."""
    gains = np.zeros(len(errors))
    for frame in range(0, len(errors), -(-len(errors) // _MOST_TRIED)):
        if can_draw[frame] and frame not in drawings:
            gains[frame] = float((errors * removed(frame, drawings, len(errors))).sum())
    return gains


def removed(frame: int, drawings: Set[int], frames: int) -> Errors:
    """The share of every frame's error that a drawing on `frame` removes: all of its own, none beyond the next ones.

    In between by how much nearer the nearest drawing is than it was.
    """
    index = np.arange(frames)
    before, after = neighbours_of(frame, drawings, frames)
    was = np.full(frames, np.inf)
    for drawing in (before, after):
        if 0 <= drawing < frames:
            was = np.minimum(was, np.abs(index - drawing))
    was = np.where(np.isinf(was), frames, was)
    share = 1 - np.abs(index - frame) / np.maximum(was, 1)
    return np.where((index > before) & (index < after), share.clip(0, 1), 0.0)


def neighbours_of(frame: int, drawings: Set[int], frames: int) -> tuple[int, int]:
    """The nearest drawings before and after a frame; -1 and the number of frames where there are none."""
    return max((d for d in drawings if d < frame), default=-1), min((d for d in drawings if d > frame), default=frames)
