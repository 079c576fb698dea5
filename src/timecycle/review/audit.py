"""Can these labels be right? Masks or points made by any tool, held against the video they are said to belong to.

Nothing is trusted: labels of a frame are carried to the next ones by what the video shows, and compared with the labels
there. Right labels move with the video. Labels of two frames that both lie on the wrong place do not, as what is under
them moves differently: this also tells labels that belong to other frames than they are named for.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.labels import Labels
from timecycle.labels.soft import Extent
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.ahead import encode_ahead, workers_for
from timecycle.propagation.cycle import Cycle, go_and_return
from timecycle.propagation.neighbours import Packing, packed_like
from timecycle.propagation.propagate import check_labels, space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import Propagation
from timecycle.propagation.window import Window
from timecycle.runs import Progress
from timecycle.video import Video

Fault = Literal["shift", "swap", "jump", "dropped", "frozen", "drift"]

_TELLING = 0.005  # difference in overlap from which a frame can tell two shifts apart
_ONE_WAY = 0.75  # of the way that labels slipped: to and fro is what features cannot tell
_ENOUGH = 0.25  # of an object that must be seen again to tell where it went

Covered = Float[Tensor, "cells objects"]


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """When something is suspicious. The limits keep clean labels of composites quiet (benchmarks/audit.py)."""

    reach: int = 5  # frames over which labels are carried for drift and shift
    most_shift: int = 6  # frames by which a whole track is tried to be off
    shift_gain: float = 0.015  # in overlap: how much better another shift has to fit
    shift_sureness: float = 0.75  # and on what share of the frames that can tell
    jump: float = 0.4  # share of what is surely seen again that still has its label
    swap: float = 0.25  # in overlap: how much better another object fits
    dropped: float = 0.3  # share of the object that the video still shows
    frozen_frames: int = 3
    frozen: float = 0.9  # overlap of what moved with what stood still
    drift: float = 0.5  # of an object's size: how far labels crept away from what they were on


@dataclass(frozen=True)
class Finding:
    """Something suspicious: what, on which frames, and how strong."""

    fault: Fault
    first: int
    last: int
    object: str
    strength: float  # above 1 is beyond the limit
    words: str


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found, the worst first, and how well the labels of every frame fit those before."""

    frames: Sequence[int]
    findings: Sequence[Finding]
    overlap: Float64[np.ndarray, "frames objects"]  # with what was carried from the frame before; NaN on the first


def audit(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    encoder: Encoder,
    config: PropagateConfig,
    limits: AuditConfig | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Follow the labels through the video and say what does not fit."""
    limits = limits or AuditConfig()
    check_labels(video, labels)
    if len(labels) < 3:
        raise LabelError(
            f"there are labels on {len(labels)} frames", remedy="give a labelled track, of 3 frames at least"
        )
    track = _follow(video, labels, encoder, config, limits, progress)
    steps = [_Step(track, place) for place in range(1, len(track.frames))]
    findings = [
        *_shifts(track, limits),
        *_swaps(steps, limits),
        *(_drops(steps, limits) if space_of(labels).exclusive else ()),  # whether a point is seen is for people to say
        *_jumps(steps, limits),
        *_freezes(steps, limits),
        *_drifts(track, limits),
    ]
    overlap = np.array([np.full(len(track.names), np.nan), *(step.overlap for step in steps)])
    return Audit(track.frames, sorted(findings, key=lambda one: -one.strength), overlap)


# Following


@dataclass(eq=False)
class _Track:
    """Labels on the grid, and for every labelled frame the matches in the one before and in one further back."""

    names: tuple[str, ...]
    frames: list[int] = field(default_factory=list)
    covered: list[Covered] = field(default_factory=list)
    before: list[Cycle | None] = field(default_factory=list)  # in the labelled frame before
    further: list[Cycle | None] = field(default_factory=list)  # in the one `reach` labels back
    columns: int = 0  # of the grid


def _follow(
    video: Video,
    labels: Mapping[int, Labels],
    encoder: Encoder,
    config: PropagateConfig,
    limits: AuditConfig,
    progress: Progress | None,
) -> _Track:
    space = space_of(labels)
    state = Propagation(encoder, config, space)
    is_point = not space.exclusive and len(space.objects) == space.channels
    track = _Track(space.objects)
    recent: deque[_Seen] = deque(maxlen=limits.reach)
    frames = (frame for frame in video.frames(min(labels), max(labels) + 1) if frame.index in labels)
    for encoded in encode_ahead(frames, state.encode, workers=workers_for(encoder)):
        features = encoded.features
        grid = features.grid.rescaled(*encoded.frame.image.shape[:2])
        extent = space.extent(space.to_soft(labels[encoded.frame.index], grid))
        window = config.window(features.grid, labelled=False)
        seen = _Seen(features, packed_like(features.cells, (other.packing for other in recent)))
        with torch.inference_mode():
            track.before.append(_cycle(seen, recent[-1], window) if recent else None)
            track.further.append(_cycle(seen, recent[0], window) if len(recent) == limits.reach else None)
        track.frames.append(encoded.frame.index)
        track.covered.append((_widened(extent) if is_point else extent).flatten(0, 1).float())
        track.columns = extent.shape[1]
        recent.append(seen)
        if progress is not None:
            progress(len(track.frames), len(labels))
    return track


@dataclass(frozen=True, eq=False)
class _Seen:
    features: FeatureMap
    packing: Packing


def _cycle(now: _Seen, other: _Seen, window: Window | None) -> Cycle:
    return go_and_return(
        now.features.cells, other.features.cells, window, packing=now.packing, other_packing=other.packing
    )


def _widened(extent: Extent) -> Extent:
    """Points as large as what is around them: two cells more on every side."""
    return torch.nn.functional.max_pool2d(extent.permute(2, 0, 1), 5, stride=1, padding=2).permute(1, 2, 0)


class _Step:
    """From one labelled frame to the next: what the video makes of the labels, and what they are."""

    def __init__(self, track: _Track, place: int) -> None:
        cycle = track.before[place]
        if cycle is None:
            raise ValueError(f"there is no frame before place {place}")
        self.index, self.names = track.frames[place], track.names
        self.was, self.now = track.covered[place - 1], track.covered[place]
        self.carried = self.was[cycle.there]
        self.surely = self.carried * (cycle.gap <= 1.5)[:, None]
        self.overlap = _overlaps(self.carried, self.now).numpy().astype(np.float64)
        self.across = _cross_overlaps(self.carried, self.now)


def _overlaps(one: Covered, other: Covered) -> Float[Tensor, " objects"]:
    """Intersection over union; where both are empty they agree."""
    either = torch.maximum(one, other).sum(dim=0)
    return torch.where(either > 0, torch.minimum(one, other).sum(dim=0) / either.clamp_min(1e-6), 1.0)


def _cross_overlaps(one: Covered, other: Covered) -> Float[np.ndarray, "objects others"]:
    """Of every object with every other."""
    both = one.T @ other
    either = one.sum(dim=0)[:, None] + other.sum(dim=0)[None] - both
    return (both / either.clamp_min(1e-6)).numpy()


# Faults


def _shifts(track: _Track, limits: AuditConfig) -> list[Finding]:
    """Whether the whole track fits the video better some frames earlier or later."""
    consecutive = all(b - a == 1 for a, b in pairwise(track.frames))
    count = len(track.frames)
    shifts = range(-limits.most_shift, limits.most_shift + 1)
    places = [
        place
        for place in range(limits.most_shift + limits.reach, count - limits.most_shift)
        if track.further[place] is not None
    ]
    if not consecutive or len(places) < 8:
        return []
    fits = np.array([[_fit(track, place, shift, limits.reach) for shift in shifts] for place in places])
    fits = fits[np.isfinite(fits).all(axis=1)]  # where there is something to see whatever the shift
    if len(fits) < 8:
        return []
    best = int(fits.mean(axis=0).argmax())
    gain = fits[:, best] - fits[:, limits.most_shift]
    telling = np.abs(gain) > _TELLING
    agreed = float((gain[telling] > 0).mean()) if telling.any() else 0.0
    strength = min(gain.mean() / limits.shift_gain, agreed / limits.shift_sureness)
    if shifts[best] == 0 or strength < 1:
        return []
    by = shifts[best]
    which = f"{abs(by)} frame{'s' if abs(by) > 1 else ''} {'early' if by > 0 else 'late'}"
    words = (
        f"the labels fit the video better if each is {which}: file {track.frames[0]} shows frame {track.frames[0] + by}"
    )
    return [Finding("shift", track.frames[0], track.frames[-1], "", round(float(strength), 2), words)]


def _fit(track: _Track, place: int, shift: int, reach: int) -> float:
    """How well labels `shift` frames off are carried over `reach` frames by what the video shows at `place`."""
    cycle = track.further[place]
    if cycle is None:
        return float("nan")
    carried, there = track.covered[place - reach - shift][cycle.there], track.covered[place - shift]
    either = torch.maximum(carried, there).sum()
    # Of all objects together, so that what is hidden does not count as fitting.
    return float(torch.minimum(carried, there).sum() / either) if either > 0 else float("nan")


def _swaps(steps: Sequence[_Step], limits: AuditConfig) -> list[Finding]:
    found = []
    for step in steps:
        for i in range(len(step.names)):
            for j in range(i + 1, len(step.names)):
                gain = _swapped(step, i, j)
                if gain >= limits.swap:
                    pair = f"{step.names[i]} and {step.names[j]}"
                    words = f"objects {pair} change places at frame {step.index}"
                    strength = round(float(gain / limits.swap), 2)
                    found.append(Finding("swap", step.index, step.index, pair, strength, words))
    return found


def _swapped(step: _Step, i: int, j: int) -> float:
    """How much better both objects fit the other's labels than their own."""
    across = step.across
    return float(min(across[i, j] - across[i, i], across[j, i] - across[j, j]))


def _drops(steps: Sequence[_Step], limits: AuditConfig) -> list[Finding]:
    """Objects that end from one frame to the next; one that leaves or is hidden shrinks first."""
    found = []
    usual = _usual_area(steps)
    for step in steps:
        was, now, carried = (part.sum(dim=0).numpy() for part in (step.was, step.now, step.surely))
        for i, name in enumerate(step.names):
            still = float(carried[i] / max(was[i], 1e-6))
            if now[i] == 0 and was[i] >= max(usual[i] / 2, 1) and still >= limits.dropped:
                words = f"object {name} ends at frame {step.index}, though the video still shows it"
                found.append(Finding("dropped", step.index, step.index, name, round(still / limits.dropped, 2), words))
    return found


def _usual_area(steps: Sequence[_Step]) -> Float[np.ndarray, " objects"]:
    """The median over the frames on which an object is: a sliver of it tells little."""
    areas = np.stack([step.was.sum(dim=0).numpy() for step in steps])
    return np.array([np.median(of[of > 0]) if (of > 0).any() else 0.0 for of in areas.T])


def _jumps(steps: Sequence[_Step], limits: AuditConfig) -> list[Finding]:
    """Labels that are suddenly elsewhere than what they were on. A thing that is half hidden is where it should be."""
    found = []
    usual = _usual_area(steps)
    for step in steps:
        was, now, surely = (part.sum(dim=0).numpy() for part in (step.was, step.now, step.surely))
        staying = (torch.minimum(step.surely, step.now).sum(dim=0)).numpy()
        for i, name in enumerate(step.names):
            if min(was[i], now[i]) < max(usual[i] / 2, 1) or surely[i] < _ENOUGH * was[i]:
                continue
            if any(_swapped(step, i, j) >= limits.swap for j in range(len(step.names)) if j != i):
                continue
            share = float(staying[i] / surely[i])
            if share < limits.jump:
                words = f"object {name} jumps at frame {step.index}: {share:.0%} of it is where it should be"
                strength = round((1 - share) / (1 - limits.jump), 2)
                found.append(Finding("jump", step.index, step.index, name, strength, words))
    return found


def _freezes(steps: Sequence[_Step], limits: AuditConfig) -> list[Finding]:
    """Labels that stay exactly where they are while the video moves what is under them."""
    found = []
    for i, name in enumerate(steps[0].names if steps else ()):
        run: list[_Step] = []
        moved = 0.0
        for step in [*steps, None]:
            still = step is not None and bool(step.now[:, i].any()) and torch.equal(step.was[:, i], step.now[:, i])
            if still and step is not None:
                run.append(step)
                moved += 1 - float(step.overlap[i])
                continue
            if len(run) >= limits.frozen_frames and moved >= 1 - limits.frozen:
                words = f"object {name} stands still on frames {run[0].index} to {run[-1].index} while the video moves"
                strength = round(min(moved / (1 - limits.frozen), 10.0), 2)
                found.append(Finding("frozen", run[0].index, run[-1].index, name, strength, words))
            run, moved = [], 0.0
    return found


def _drifts(track: _Track, limits: AuditConfig) -> list[Finding]:
    """Labels that creep off what they are on, always the same way: too little to see from a frame to the next."""
    found = []
    for i, name in enumerate(track.names):
        slips = [
            slip
            for place in range(limits.reach, len(track.frames), limits.reach)
            if (slip := _slip(track, place, i, limits))
        ]
        if len(slips) < 3:
            continue
        way = np.array([slip.way for slip in slips])
        crept, trodden = np.linalg.norm(way.sum(axis=0)), np.linalg.norm(way, axis=1).sum()
        strength = float(crept / limits.drift)
        if strength >= 1 and crept >= _ONE_WAY * trodden:
            first, last = track.frames[slips[0].place - limits.reach], track.frames[slips[-1].place]
            words = f"object {name} creeps off by {crept:.0%} of its size between frames {first} and {last}"
            found.append(Finding("drift", first, last, name, round(strength, 2), words))
    return found


@dataclass(frozen=True, eq=False)
class _Slip:
    """How much further labels moved than what they are on, in sizes of the object."""

    place: int
    way: Float64[np.ndarray, "2"]


def _slip(track: _Track, place: int, object_: int, limits: AuditConfig) -> _Slip | None:
    """From the frame `reach` labels back to this one; nothing where too little is seen twice."""
    cycle = track.further[place]
    if cycle is None:
        return None
    was, now = (track.covered[at][:, object_] for at in (place - limits.reach, place))
    # What is under the labels moved as the cells that surely come back from where they are found.
    sure = ((now > 0.5) & (cycle.gap <= 1.5)).nonzero().squeeze(1)
    before, after = float(was.sum()), float(now.sum())
    if len(sure) < 4 or before < 4 or not 0.8 <= after / before <= 1.25:  # what is hidden moves the centre as well
        return None
    moved = (_places(sure, track.columns) - _places(cycle.there[sure], track.columns)).mean(dim=0)
    labels_moved = _centre(now, track.columns) - _centre(was, track.columns)
    return _Slip(place, (labels_moved - moved.numpy()) / float(now.sum()) ** 0.5)


def _places(cells: Int[Tensor, " chosen"], columns: int) -> Float[Tensor, "chosen 2"]:
    return torch.stack([cells % columns, cells // columns], dim=1).double()


def _centre(covered: Float[Tensor, " cells"], columns: int) -> Float64[np.ndarray, "2"]:
    weight = covered.double()
    places = _places(torch.arange(len(weight)), columns)
    return np.asarray((weight @ places / weight.sum()).numpy())
