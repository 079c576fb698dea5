"""The review queue: frames to check, ordered by how much expected error their correction removes.

How far a frame is from an annotation is measured by how much confidence falls between them, since labels are lost at
some moments and followed well between others. One annotation repairs what was lost at one moment, wherever it lies in
the frames that follow. Where nothing can be followed from frame to frame, an annotation helps its own frame only.

Every chosen frame counts as annotated when the next one is chosen, which spaces them. A person who stops early has then
annotated the best frames; for a person who will annotate all of them, they are chosen together.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from timecycle.confidence.fusion import UNSEEN
from timecycle.runs.tables import ObjectRow, RunTables

_MAX_CANDIDATES = 2000  # frames of a video
_MIN_GAIN = 0.2  # in frames: less is not worth a look
_MIN_SHARE = 0.05  # of the gain of the first suggestion
_MIN_IMPROVEMENT = 1e-6  # in frames: beyond rounding
_LOSS_PER_FRAME = 0.03  # the loss that confidence does not see
_MIN_CONFIDENCE = 0.02  # below, everything is lost anyway
_CERTAIN = 0.999
_FALL_FRAMES = 5  # within which confidence falls, to be reported as a fall
_MIN_FALL = 0.1
_LOW = 0.5


@dataclass(frozen=True)
class Suggestion:
    """A frame to check, with the reason and the gain of its correction."""

    index: int
    frame_number: int  # in the video
    time_seconds: float
    confidence: float
    object: str  # the least confident one on the frame
    name: str  # of that object, for people
    state: str
    reason: str  # what was measured, in a sentence
    first: int  # of the frames that an annotation here would propagate to
    last: int
    gain: float  # expected error removed, in frames; includes a loss that confidence does not see


def suggest(tables: RunTables, *, count: int = 10, together: bool = False) -> list[Suggestion]:
    """Return the most useful frames to correct, the best first: chosen one by one, or `together` as the best set."""
    profile, annotated = loss_profile(tables), set(tables.annotated_frames)
    chosen = _choose(profile, profile.can_annotate, count)
    if together:
        chosen = _exchange(profile, chosen)
    suggestions: list[Suggestion] = []
    distance = profile.distance
    for candidate in chosen:
        nearer = profile.annotate(distance, candidate)
        index = int(profile.frames[candidate])
        gain = profile.error(distance) - profile.error(nearer)
        suggestions.append(_suggestion(tables, index, annotated, gain=gain))
        distance = nearer
        annotated.add(index)
    return suggestions


PerCandidate = Float[np.ndarray, "objects candidates"]


@dataclass(frozen=True, eq=False)
class LossProfile:
    """How much of each object is lost over the candidate frames: all frames, or evenly spaced ones of a long video."""

    frames: Int[np.ndarray, " candidates"]
    step: int  # frames between candidates
    loss: PerCandidate  # accumulated since the first frame
    distance: PerCandidate  # in loss, to the nearest annotation of the object
    in_doubt: Bool[np.ndarray, "objects candidates"]  # what is certain, hidden or unknown has no error
    can_annotate: Bool[np.ndarray, " candidates"]

    def annotate(self, distance: PerCandidate, candidate: int) -> PerCandidate:
        """Return the distances once one more frame is annotated."""
        nearer: np.ndarray = np.minimum(distance, np.abs(self.loss - self.loss[:, candidate, None]))
        return nearer

    def error(self, distance: PerCandidate) -> float:
        """Return the expected error at such distances from annotations, in frames."""
        wrong = (1 - np.exp(-distance)) * self.in_doubt
        return float(wrong.sum() * self.step / max(len(wrong), 1))

    def part(self, first: int, end: int) -> "LossProfile":
        here = slice(first, end)
        return LossProfile(
            self.frames[here],
            self.step,
            self.loss[:, here],
            self.distance[:, here],
            self.in_doubt[:, here],
            self.can_annotate[here],
        )


def loss_profile(tables: RunTables) -> LossProfile:
    """Compute the loss profile of a run from the confidence of its objects."""
    count, names = len(tables.frames), tables.names
    step = max(-(-count // _MAX_CANDIDATES), 1)
    frames = np.arange(0, count, step)
    losses, distances, in_doubt = [], [], []
    for name in names:
        rows = [tables.objects.get(frame.index, {}).get(name) for frame in tables.frames]
        confidence = np.array([row.confidence if row is not None else np.nan for row in rows])
        annotated = np.flatnonzero([row is not None and row.annotated for row in rows])
        loss = _accumulated_loss(confidence, annotated)
        losses.append(loss[frames])
        distances.append(_nearest_distance(loss[frames], loss[annotated]))
        visible = np.array([row is not None and row.state not in UNSEEN for row in rows])
        in_doubt.append((visible & (confidence < _CERTAIN))[frames])
    shape = (len(names), len(frames))
    return LossProfile(
        frames=frames,
        step=step,
        loss=np.array(losses).reshape(shape),
        distance=np.array(distances).reshape(shape),
        in_doubt=np.array(in_doubt, dtype=bool).reshape(shape),
        can_annotate=np.array(
            [not row.annotated and bool(_visible_objects(tables, row.index)) for row in tables.frames[::step]]
        ),
    )


def _accumulated_loss(
    confidence: Float[np.ndarray, " frames"], annotated: Int[np.ndarray, " annotated"]
) -> Float[np.ndarray, " frames"]:
    """Accumulate over the frames by how much the logarithm of confidence falls, in the direction off annotations."""
    level = np.log(np.clip(np.nan_to_num(confidence, nan=1.0), _MIN_CONFIDENCE, 1))
    frames = np.arange(len(level), dtype=float)
    away = np.diff(_nearest_distance(frames, annotated.astype(float)), prepend=0.0)
    fall = -np.diff(level, prepend=level[:1])
    lost = np.where(away > 0, fall.clip(min=0), np.where(away < 0, (-fall).clip(min=0), np.abs(fall)))
    loss: np.ndarray = np.cumsum(lost + _LOSS_PER_FRAME)
    return loss


def _nearest_distance(values: Float[np.ndarray, " values"], others: Float[np.ndarray, " others"]) -> np.ndarray:
    """Return the distance of every value to the nearest of `others`, which are sorted; large where there is none."""
    if not len(others):
        return np.full(len(values), float(len(values)))
    after = np.searchsorted(others, values).clip(max=len(others) - 1)
    before = (after - 1).clip(min=0)
    nearest: np.ndarray = np.minimum(np.abs(values - others[after]), np.abs(values - others[before]))
    return nearest


def _choose(profile: LossProfile, can_annotate: Bool[np.ndarray, " candidates"], count: int) -> list[int]:
    """Choose candidates one by one, each the best once those before it are annotated, while they are worth a look."""
    chosen: list[int] = []
    distance, most = profile.distance, 0.0
    while len(chosen) < count:
        gains = annotation_gains(profile, distance, can_annotate)
        best = int(gains.argmax())
        most = max(most, float(gains[best]))
        if gains[best] < max(_MIN_GAIN, _MIN_SHARE * most):
            break
        distance = profile.annotate(distance, best)
        chosen.append(best)
    return chosen


def _exchange(profile: LossProfile, chosen: Sequence[int]) -> list[int]:
    """Move each candidate to where it is best given the others, until none moves; returns them the best first.

    Every move removes more error, so this ends.
    """
    current, moved = list(chosen), True
    while moved:
        moved = False
        for at, old in enumerate(current):
            distance = profile.distance
            for other in (*current[:at], *current[at + 1 :]):
                distance = profile.annotate(distance, other)
            gains = annotation_gains(profile, distance, profile.can_annotate)
            best = int(gains.argmax())
            if gains[best] > gains[old] + _MIN_IMPROVEMENT:
                current[at], moved = best, True
    return _choose(profile, np.isin(np.arange(len(profile.frames)), current), len(current))


def annotation_gains(
    profile: LossProfile, distance: PerCandidate, can_annotate: Bool[np.ndarray, " candidates"]
) -> Float[np.ndarray, " candidates"]:
    """Return the expected error that annotating each candidate would remove.

    An annotation changes nothing beyond the next frames on which all objects are annotated.
    """
    gains = np.zeros(len(profile.frames))
    annotated = np.flatnonzero(~distance.any(axis=0)).tolist()
    for first, end in pairwise([0, *annotated, len(gains)]):
        part, near = profile.part(first, end), distance[:, first:end]
        error = part.error(near)
        for candidate in np.flatnonzero(can_annotate[first:end]):
            gains[first + candidate] = error - part.error(part.annotate(near, int(candidate)))
    return gains


def _suggestion(tables: RunTables, index: int, annotated: Set[int], *, gain: float) -> Suggestion:
    frame, count = tables.frames[index], len(tables.frames)
    before, after = annotated_neighbours(index, annotated, count)
    name, least = min(_visible_objects(tables, frame.index).items(), key=lambda item: item[1].confidence)
    first, last = max(before + 1, 0), min(after - 1, count - 1)
    return Suggestion(
        index=frame.index,
        frame_number=frame.number,
        time_seconds=frame.time_seconds,
        confidence=least.confidence,
        object=name,
        name=tables.shown(name),
        state=least.state,
        reason=_reason(tables, name, index, range(first, last + 1), forward=before >= 0),
        first=first,
        last=last,
        gain=round(gain, 3),
    )


def _reason(tables: RunTables, name: str, index: int, frames: range, *, forward: bool) -> str:
    """Say why a frame is suggested: where confidence fell after the annotation, or how low it is, or how many frames
    an annotation would cover. `forward`: labels came from an earlier annotation."""
    path = range(frames[0], index + 1) if forward else range(frames[-1], index - 1, -1)
    rows = [tables.objects.get(frame, {}).get(name) for frame in path]
    values = np.array([row.confidence if row is not None else np.nan for row in rows])
    falls = [
        (float(np.nanmax(before)) - float(value), -at)
        for at, value in enumerate(values)
        if np.isfinite(value) and np.isfinite(before := values[max(at - _FALL_FRAMES, 0) : at]).any()
    ]
    fall, negative_at = max(falls, default=(0.0, 0))  # negated, so that the first of equal falls wins
    at, shown = -negative_at, tables.shown(name)
    if fall >= _MIN_FALL:
        number = tables.number(path[at])
        return f"confidence in {shown} fell from {values[at] + fall:.2f} to {values[at]:.2f} at frame {number}"
    if values[-1] < _LOW:
        return f"confidence in {shown} is low: {values[-1]:.2f}"
    covered = f"frames {tables.number(frames[0])} to {tables.number(frames[-1])}"
    return f"covers {covered}, {len(frames)} frames without an annotation; confidence in {shown} is {values[-1]:.2f}"


def _visible_objects(tables: RunTables, index: int) -> dict[str, ObjectRow]:
    """Return the objects that are visible on a frame: what is hidden cannot be annotated."""
    return {name: row for name, row in tables.objects.get(index, {}).items() if row.state not in UNSEEN}


def annotated_neighbours(frame: int, annotated: Set[int], frames: int) -> tuple[int, int]:
    """Return the nearest annotated frames before and after a frame; -1 and `frames` where there is none."""
    before = max((one for one in annotated if one < frame), default=-1)
    return before, min((one for one in annotated if one > frame), default=frames)
