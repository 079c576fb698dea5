"""Which frames to check first: those whose correction removes most of the error that is to be expected.

A correction controls the frames up to the next drawings on either side. There, what is left of a frame's expected
error (1 - confidence) shrinks with its distance to the nearest drawing, so a frame in the midst of a doubtful stretch
is worth more than the worst frame at its end. Each frame that is chosen counts as drawn when the next is chosen, which
spaces them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from timecycle.review.judged import Judged, JudgedObject

_MOST_TRIED = 2000  # frames of a video
_LEAST_GAIN = 0.2  # in frames: less is not worth a look
_LEAST_SHARE = 0.05  # of what the first suggestion is worth


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


def suggest(judged: Judged, *, count: int = 10) -> list[Suggestion]:
    """The most useful frames to correct, the best first."""
    drawings = set(judged.drawings)
    left = expected_errors(judged)
    found: list[Suggestion] = []
    while len(found) < count:
        gains = gains_of(left, drawings, can_draw=[bool(_seen(judged, frame.index)) for frame in judged.frames])
        best = int(gains.argmax())
        if gains[best] < max(_LEAST_GAIN, _LEAST_SHARE * (found[0].gain if found else 0)):
            break
        before, after = neighbours_of(best, drawings, len(left))
        frame = judged.frames[best]
        name, least = min(_seen(judged, frame.index).items(), key=lambda item: item[1].confidence)
        found.append(
            Suggestion(
                index=frame.index,
                time_seconds=frame.time_seconds,
                confidence=least.confidence,
                object=name,
                state=least.state,
                first=max(before + 1, 0),
                last=min(after - 1, len(left) - 1),
                gain=round(float(gains[best]), 3),
            )
        )
        left = left * (1 - removed(best, drawings, len(left)))
        drawings.add(best)
    return found


def expected_errors(judged: Judged) -> Float[np.ndarray, " frames"]:
    """1 - confidence, over the objects of every frame; what is hidden has no error, nor what nothing is known of."""
    errors = []
    for frame in judged.frames:
        wrong = sum(1 - one.confidence for one in _seen(judged, frame.index).values())
        errors.append(wrong / max(len(judged.objects.get(frame.index, {})), 1))
    return np.array(errors)


def _seen(judged: Judged, index: int) -> dict[str, JudgedObject]:
    """The objects that are on a frame: what is hidden cannot be drawn."""
    return {name: one for name, one in judged.objects.get(index, {}).items() if one.state != "occluded"}


def gains_of(
    errors: Float[np.ndarray, " frames"], drawings: set[int], *, can_draw: Sequence[bool]
) -> Float[np.ndarray, " frames"]:
    """The expected error that drawing each frame would remove; of a long video frames here and there are tried."""
    gains = np.zeros(len(errors))
    for frame in range(0, len(errors), -(-len(errors) // _MOST_TRIED)):
        if can_draw[frame] and frame not in drawings:
            gains[frame] = float((errors * removed(frame, drawings, len(errors))).sum())
    return gains


def removed(frame: int, drawings: set[int], frames: int) -> Float[np.ndarray, " frames"]:
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


def neighbours_of(frame: int, drawings: set[int], frames: int) -> tuple[int, int]:
    """The nearest drawings before and after a frame; -1 and the number of frames where there are none."""
    return max((d for d in drawings if d < frame), default=-1), min((d for d in drawings if d > frame), default=frames)
