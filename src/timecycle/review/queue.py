"""Which frames to check first: those whose correction removes most of the error that is to be expected.

How far a frame is from a drawing is told by how much confidence falls between them: labels are lost at some moments and
followed well between others. One drawing puts right what was lost at one moment, wherever it stands in the stretch that
follows. Where nothing can be followed from a frame to the next, a drawing helps its own frame only.
Each frame that is chosen counts as drawn when the next is chosen, which spaces them. So whoever stops early has drawn
the best ones; who will draw them all has them chosen together.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from timecycle.propagation.confidence import UNSEEN
from timecycle.review.judged import Judged, JudgedObject

_MOST_TRIED = 2000  # frames of a video
_LEAST_GAIN = 0.2  # in frames: less is not worth a look
_LEAST_SHARE = 0.05  # of what the first suggestion is worth
_LEAST_MOVE = 1e-6  # in frames: beyond rounding
_EVERY_FRAME = 0.03  # of the way: what confidence does not see
_LEAST_CONFIDENCE = 0.02  # below, all is lost anyway
_CERTAIN = 0.999
_FALL_FRAMES = 5  # within which confidence falls, to be told as a fall
_LEAST_FALL = 0.1
_LOW = 0.5


@dataclass(frozen=True)
class Suggestion:
    """A frame to check: why, and what its correction would be worth."""

    index: int
    frame_number: int  # what the video calls it
    time_seconds: float
    confidence: float
    object: str  # the least sure one on it
    name: str  # what that object is called
    state: str
    reason: str  # what was measured, in words
    first: int  # of the frames that an annotation here would propagate to
    last: int
    gain: float  # expected error removed, in frames: to compare suggestions, as it counts what confidence does not see


def suggest(judged: Judged, *, count: int = 10, together: bool = False) -> list[Suggestion]:
    """The most useful frames to correct, the best first: one after the other, or as the best set of so many."""
    course, drawings = course_of(judged), set(judged.drawings)
    chosen = _one_by_one(course, course.can_draw, count)
    if together:
        chosen = _exchanged(course, chosen)
    found: list[Suggestion] = []
    distance = course.distance
    for place in chosen:
        nearer = course.nearer(distance, place)
        index = int(course.frames[place])
        gain = course.error(distance) - course.error(nearer)
        found.append(_suggestion(judged, index, drawings, gain=gain))
        distance = nearer
        drawings.add(index)
    return found


PerFrame = Float[np.ndarray, "objects tried"]


@dataclass(frozen=True, eq=False)
class Course:
    """How objects were followed through the frames that are tried: all, or of a long video some at equal distances."""

    frames: Int[np.ndarray, " tried"]
    step: int  # frames between them
    way: PerFrame  # since the first frame: how much was lost on it
    distance: PerFrame  # along the way, to the nearest drawing of the object
    doubted: Bool[np.ndarray, "objects tried"]  # what is certain, hidden or unknown has no error
    can_draw: Bool[np.ndarray, " tried"]

    def nearer(self, distance: PerFrame, place: int) -> PerFrame:
        """The distances once one more frame is drawn."""
        closer: np.ndarray = np.minimum(distance, np.abs(self.way - self.way[:, place, None]))
        return closer

    def error(self, distance: PerFrame) -> float:
        """What is to be expected at such distances from drawings, in frames."""
        wrong = (1 - np.exp(-distance)) * self.doubted
        return float(wrong.sum() * self.step / max(len(wrong), 1))

    def part(self, first: int, end: int) -> "Course":
        """The course through some of the frames."""
        here = slice(first, end)
        return Course(
            self.frames[here],
            self.step,
            self.way[:, here],
            self.distance[:, here],
            self.doubted[:, here],
            self.can_draw[here],
        )


def course_of(judged: Judged) -> Course:
    """The course that confidence tells of."""
    count, names = len(judged.frames), judged.names
    step = max(-(-count // _MOST_TRIED), 1)
    tried = np.arange(0, count, step)
    given = np.array([frame.given for frame in judged.frames], dtype=bool)
    ways, distances, doubted = [], [], []
    for name in names:
        seen = [judged.objects.get(frame.index, {}).get(name) for frame in judged.frames]
        confidence = np.array([one.confidence if one is not None else np.nan for one in seen])
        drawn = np.flatnonzero([one is not None and one.annotated for one in seen])
        way = _way(confidence, drawn)
        ways.append(way[tried])
        distances.append(_to_nearest(way[tried], way[drawn]))
        here = np.array([one is not None and one.state not in UNSEEN for one in seen])
        doubted.append((here & (confidence < _CERTAIN))[tried])
    shape = (len(names), len(tried))
    return Course(
        frames=tried,
        step=step,
        way=np.array(ways).reshape(shape),
        distance=np.array(distances).reshape(shape),
        doubted=np.array(doubted, dtype=bool).reshape(shape),
        can_draw=np.array([not given[i] and bool(_seen(judged, judged.frames[int(i)].index)) for i in tried]),
    )


def _way(confidence: Float[np.ndarray, " frames"], drawn: Int[np.ndarray, " drawings"]) -> Float[np.ndarray, " frames"]:
    """What was lost since the first frame: how far confidence falls, as a logarithm, going away from drawings."""
    level = np.log(np.clip(np.nan_to_num(confidence, nan=1.0), _LEAST_CONFIDENCE, 1))
    away = np.diff(_to_nearest(np.arange(len(level), dtype=float), drawn.astype(float)), prepend=0.0)
    fall = -np.diff(level, prepend=level[:1])
    lost = np.where(away > 0, fall.clip(min=0), np.where(away < 0, (-fall).clip(min=0), np.abs(fall)))
    way: np.ndarray = np.cumsum(lost + _EVERY_FRAME)
    return way


def _to_nearest(places: Float[np.ndarray, " places"], others: Float[np.ndarray, " others"]) -> np.ndarray:
    """The distance of every place to the nearest of the others, which are in order; far where there is none."""
    if not len(others):
        return np.full(len(places), float(len(places)))
    after = np.searchsorted(others, places).clip(max=len(others) - 1)
    before = (after - 1).clip(min=0)
    nearest: np.ndarray = np.minimum(np.abs(places - others[after]), np.abs(places - others[before]))
    return nearest


def _one_by_one(course: Course, can_draw: Bool[np.ndarray, " tried"], count: int) -> list[int]:
    """Each the best once those before it are drawn, as long as it is worth a look."""
    chosen: list[int] = []
    distance, most = course.distance, 0.0
    while len(chosen) < count:
        gains = gains_of(course, distance, can_draw)
        best = int(gains.argmax())
        most = max(most, float(gains[best]))
        if gains[best] < max(_LEAST_GAIN, _LEAST_SHARE * most):
            break
        distance = course.nearer(distance, best)
        chosen.append(best)
    return chosen


def _exchanged(course: Course, chosen: Sequence[int]) -> list[int]:
    """As many frames that remove more together: each is put where it is best among the others, until none moves.

    Every move removes more error, so this ends. The most useful first.
    """
    current, moved = list(chosen), True
    while moved:
        moved = False
        for at, old in enumerate(current):
            distance = course.distance
            for other in (*current[:at], *current[at + 1 :]):
                distance = course.nearer(distance, other)
            gains = gains_of(course, distance, course.can_draw)
            best = int(gains.argmax())
            if gains[best] > gains[old] + _LEAST_MOVE:
                current[at], moved = best, True
    return _one_by_one(course, np.isin(np.arange(len(course.frames)), current), len(current))


def gains_of(course: Course, distance: PerFrame, can_draw: Bool[np.ndarray, " tried"]) -> Float[np.ndarray, " tried"]:
    """The expected error that drawing each frame would remove: beyond the next drawings of all objects, none."""
    gains = np.zeros(len(course.frames))
    drawn = np.flatnonzero(~distance.any(axis=0)).tolist()
    for first, end in pairwise([0, *drawn, len(gains)]):
        part, near = course.part(first, end), distance[:, first:end]
        was = part.error(near)
        for place in np.flatnonzero(can_draw[first:end]):
            gains[first + place] = was - part.error(part.nearer(near, int(place)))
    return gains


def _suggestion(judged: Judged, index: int, drawings: Set[int], *, gain: float) -> Suggestion:
    frame, count = judged.frames[index], len(judged.frames)
    before, after = neighbours_of(index, drawings, count)
    name, least = min(_seen(judged, frame.index).items(), key=lambda item: item[1].confidence)
    first, last = max(before + 1, 0), min(after - 1, count - 1)
    return Suggestion(
        index=frame.index,
        frame_number=frame.number,
        time_seconds=frame.time_seconds,
        confidence=least.confidence,
        object=name,
        name=judged.shown(name),
        state=least.state,
        reason=_reason(judged, name, index, range(first, last + 1), forward=before >= 0),
        first=first,
        last=last,
        gain=round(gain, 3),
    )


def _reason(judged: Judged, name: str, index: int, frames: range, *, forward: bool) -> str:
    """Why a frame is suggested: where confidence fell on the way from the annotation, or how low it is, or how many
    frames the annotation would cover. `forward`: labels came from an earlier annotation."""
    way = range(frames[0], index + 1) if forward else range(frames[-1], index - 1, -1)
    seen = [judged.objects.get(frame, {}).get(name) for frame in way]
    values = np.array([one.confidence if one is not None else np.nan for one in seen])
    falls = [
        (float(np.nanmax(before)) - float(value), -place)
        for place, value in enumerate(values)
        if np.isfinite(value) and np.isfinite(before := values[max(place - _FALL_FRAMES, 0) : place]).any()
    ]
    fall, place = max(falls, default=(0.0, 0))  # the first of equal ones
    shown = judged.shown(name)
    if fall >= _LEAST_FALL:
        where = judged.number(way[-place])
        return f"confidence in {shown} fell from {values[-place] + fall:.2f} to {values[-place]:.2f} at frame {where}"
    if values[-1] < _LOW:
        return f"confidence in {shown} is low: {values[-1]:.2f}"
    covered = f"frames {judged.number(frames[0])} to {judged.number(frames[-1])}"
    return f"covers {covered}, {len(frames)} frames without an annotation; confidence in {shown} is {values[-1]:.2f}"


def _seen(judged: Judged, index: int) -> dict[str, JudgedObject]:
    """The objects that are on a frame: what is hidden cannot be drawn."""
    return {name: one for name, one in judged.objects.get(index, {}).items() if one.state not in UNSEEN}


def neighbours_of(frame: int, drawings: Set[int], frames: int) -> tuple[int, int]:
    """The nearest drawings before and after a frame; -1 and the number of frames where there are none."""
    return max((d for d in drawings if d < frame), default=-1), min((d for d in drawings if d > frame), default=frames)
