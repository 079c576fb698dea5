"""Can these labels be right? Masks or points made by any tool, held against the video they are said to belong to.

Nothing is trusted: labels of a frame are carried to the next ones by what the video shows, and compared with the labels
there. Right labels move with the video. Labels of two frames that both lie on the wrong place do not, as what is under
them moves differently: this also tells labels that belong to other frames than they are named for.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.labels import Labels
from timecycle.labels.soft import Extent, overlap
from timecycle.labels.space import is_of_points
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.ahead import encode_ahead, workers_for
from timecycle.propagation.cycle import go_and_return
from timecycle.propagation.evidence import HOME_CELLS
from timecycle.propagation.neighbours import Packing, packed_like
from timecycle.propagation.propagate import fit_labels, space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import Propagation
from timecycle.propagation.window import Window
from timecycle.runs import Progress
from timecycle.video import Video

Fault = Literal["shift", "swap", "jump", "dropped", "frozen", "drift"]

_TELLING = 0.005  # difference in overlap from which a frame can tell two shifts apart
_ONE_WAY = 0.75  # of the way that labels slipped: back and forth is what features cannot tell
_FEWEST_CELLS = 4  # of an object, to tell how it moved
_ENOUGH = 0.25  # of an object that must be seen again to tell where it went

Covered = Float[Tensor, "cells objects"]
PerObject = Float64[np.ndarray, " objects"]


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """When something is suspicious. Set on the synthetic world and a few composites; see benchmarks/audit.py."""

    reach: int = 5  # frames over which labels are carried for drift and shift
    most_shift: int = 6  # frames by which a whole track is tried to be off
    shift_gain: float = 0.015  # in overlap: how much better another shift has to fit
    shift_sureness: float = 0.75  # and on what share of the frames that can tell
    jump: float = 0.4  # share of what is surely seen again that still has its label
    swap: float = 0.25  # in overlap: how much better another object fits
    dropped: float = 0.3  # share of the object that the video still shows
    frozen_frames: int = 3
    frozen: float = 0.15  # of an object's size: how far what is under it moves meanwhile
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
    labels = fit_labels(video, labels)
    if len(labels) < 3:
        raise LabelError(
            f"there are labels on {len(labels)} frames", remedy="give a labelled track, of 3 frames at least"
        )
    track = _follow(video, labels, encoder, config, limits, progress)
    # Over a longer gap things may be anywhere: what is not seen from a frame to the next says nothing.
    steps = [step for step in track.steps if step.index - step.index_before <= limits.reach]
    findings = [
        *_shifts(track, limits),
        *_swaps(steps, track.names, limits),
        # Whether a point is seen is for people to say.
        *(_drops(steps, track.names, limits) if space_of(labels).exclusive else ()),
        *_jumps(steps, track.names, limits),
        *_freezes(steps, track.names, limits),
        *_drifts(track, limits),
    ]
    fits = np.array([np.full(len(track.names), np.nan), *(step.overlap for step in track.steps)])
    return Audit(track.frames, sorted(findings, key=lambda one: -one.strength), fits)


# Following


@dataclass(frozen=True, eq=False)
class _Match:
    """Where each cell is best found in an earlier frame, and whether the way back from there ends where it began."""

    there: Int[Tensor, " cells"]
    sure: Bool[Tensor, " cells"]


@dataclass(frozen=True, eq=False)
class _Step:
    """From one labelled frame to the next, of every object: what the video makes of the labels, and what they are."""

    index_before: int
    index: int
    number: int  # what people call the frame
    was: PerObject  # area in cells, on the frame before
    now: PerObject
    surely: PerObject  # of the frame before, what is surely seen again
    staying: PerObject  # and still has its label
    overlap: PerObject  # of labels carried here with the labels here
    across: Float64[np.ndarray, "objects others"]  # the same between objects
    still: Bool[np.ndarray, " objects"]  # whether the labels are exactly where they were
    way: Float64[np.ndarray, "objects 2"]  # how far what is under the labels moved, in cells


@dataclass(eq=False)
class _Track:
    """What was measured on the way through the labels. Maps of cells are kept only of the frames still needed."""

    names: tuple[str, ...]
    limits: AuditConfig
    numbers: Sequence[int]  # of the video's frames, for people
    columns: int = 0  # of the grid
    frames: list[int] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    fits: list[list[float]] = field(default_factory=list)  # frame by frame, of every shift
    slips: list[list["_Slip"]] = field(init=False)  # object by object
    covered: deque[Covered] = field(init=False)  # of the last frames, as many as a shift to either side needs
    further: deque[_Match] = field(init=False)  # of the last frames, in the frame `reach` labels back

    def __post_init__(self) -> None:
        self.slips = [[] for _ in self.names]
        self.covered = deque(maxlen=self.limits.reach + 2 * self.limits.most_shift + 2)
        self.further = deque(maxlen=self.limits.most_shift + 1)

    @property
    def consecutive(self) -> bool:
        return self.frames[-1] - self.frames[0] == len(self.frames) - 1

    def add_further(self, match: _Match) -> None:
        """Take the matches of the last frame with the one `reach` labels back, and measure what they allow now."""
        self.further.append(match)
        if (len(self.frames) - 1) % self.limits.reach == 0:
            for object_, slips in enumerate(self.slips):
                slips.extend(_slip(self, match, object_))
        first = 2 * self.limits.most_shift + self.limits.reach  # with labels for every shift to either side
        if self.consecutive and len(self.frames) > first:
            most = self.limits.most_shift
            self.fits.append([_fit(self, shift) for shift in range(-most, most + 1)])


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
    is_point = is_of_points(space)
    track = _Track(space.objects, limits, video.numbers)
    recent: deque[_Seen] = deque(maxlen=limits.reach)
    frames = (frame for frame in video.frames(min(labels), max(labels) + 1) if frame.index in labels)
    for encoded in encode_ahead(frames, state.encode, workers=workers_for(encoder)):
        features = encoded.features
        grid = features.grid.rescaled(*encoded.frame.image.shape[:2])
        extent = space.extent(space.to_soft(labels[encoded.frame.index], grid))
        window = config.window(features.grid, labelled=False)
        seen = _Seen(features, packed_like(features.cells, (other.packing for other in recent)))
        track.columns = extent.shape[1]
        track.frames.append(encoded.frame.index)
        track.covered.append((_widened(extent) if is_point else extent).flatten(0, 1).half())
        if len(recent) == limits.reach:
            track.add_further(_match(seen, recent[0], window))
        if recent:
            track.steps.append(_step(track, _match(seen, recent[-1], window)))
        recent.append(seen)
        if progress is not None:
            progress(len(track.frames), len(labels))
    return track


@dataclass(frozen=True, eq=False)
class _Seen:
    features: FeatureMap
    packing: Packing


@torch.inference_mode()
def _match(now: _Seen, other: _Seen, window: Window | None) -> _Match:
    cycle = go_and_return(
        now.features.cells, other.features.cells, window, packing=now.packing, other_packing=other.packing
    )
    return _Match(cycle.there.int().cpu(), (cycle.gap <= HOME_CELLS).cpu())


def _widened(extent: Extent) -> Extent:
    """Points as large as what is around them: two cells more on every side."""
    return torch.nn.functional.max_pool2d(extent.permute(2, 0, 1), 5, stride=1, padding=2).permute(1, 2, 0)


def _step(track: _Track, match: _Match) -> _Step:
    """The last step of a track."""
    was, now = (track.covered[at].float() for at in (-2, -1))
    carried = was[match.there.long()]
    surely = carried * match.sure[:, None]
    return _Step(
        index_before=track.frames[-2],
        index=track.frames[-1],
        number=track.numbers[track.frames[-1]],
        was=_area(was),
        now=_area(now),
        surely=_area(surely),
        staying=_area(torch.minimum(surely, now)),
        overlap=overlap(carried, now).double().numpy(),
        across=_cross_overlaps(carried, now),
        still=(was == now).all(dim=0).numpy(),
        way=_moved(now, match, track.columns),
    )


def _area(covered: Covered) -> PerObject:
    area: np.ndarray = covered.sum(dim=0).double().numpy()
    return area


def _moved(now: Covered, match: _Match, columns: int) -> Float64[np.ndarray, "objects 2"]:
    """The mean way of the cells under each object that are surely found again; nothing where there are too few."""
    cells = torch.arange(len(now))
    ways = _places(cells, columns) - _places(match.there.long(), columns)
    weight = ((now > 0.5) & match.sure[:, None]).double()
    count = weight.sum(dim=0)[:, None]
    mean: np.ndarray = torch.where(count >= _FEWEST_CELLS, weight.T @ ways / count.clamp_min(1), 0.0).numpy()
    return mean


def _cross_overlaps(one: Covered, other: Covered) -> Float64[np.ndarray, "objects others"]:
    """Of every object with every other."""
    both = one.T @ other
    either = one.sum(dim=0)[:, None] + other.sum(dim=0)[None] - both
    overlaps: np.ndarray = (both / either.clamp_min(1e-6)).double().numpy()
    return overlaps


# Faults


def _shifts(track: _Track, limits: AuditConfig) -> list[Finding]:
    """Whether the whole track fits the video better some frames earlier or later."""
    shifts = range(-limits.most_shift, limits.most_shift + 1)
    if not track.consecutive or len(track.fits) < 8:
        return []
    fits = np.array(track.fits)
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
    count_of = f"{abs(by)} frame{'s' if abs(by) > 1 else ''}"
    file = track.numbers[track.frames[0]]
    words = f"the labels are {count_of} {'early' if by > 0 else 'late'}: file {file} shows frame {file + by}"
    return [Finding("shift", track.frames[0], track.frames[-1], "", round(float(strength), 2), words)]


def _fit(track: _Track, shift: int) -> float:
    """How well labels `shift` frames off are propagated over `reach` frames by what the video shows.

    Of the frame `most_shift` before the last, whose labels are there for every shift.
    """
    match, back = track.further[0], track.limits.most_shift + shift
    carried = track.covered[-1 - back - track.limits.reach][match.there.long()].float()
    there = track.covered[-1 - back].float()
    either = torch.maximum(carried, there).sum()
    # Of all objects together, so that what is hidden does not count as fitting.
    return float(torch.minimum(carried, there).sum() / either) if either > 0 else float("nan")


def _swaps(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    found = []
    for step in steps:
        for i in range(len(names)):
            for j in range(i + 1, len(names)):
                gain = _swapped(step, i, j)
                if gain >= limits.swap:
                    pair = f"{names[i]} and {names[j]}"
                    words = f"objects {pair} change places at frame {step.number}"
                    strength = round(float(gain / limits.swap), 2)
                    found.append(Finding("swap", step.index, step.index, pair, strength, words))
    return found


def _swapped(step: _Step, i: int, j: int) -> float:
    """How much better both objects fit the other's labels than their own."""
    across = step.across
    return float(min(across[i, j] - across[i, i], across[j, i] - across[j, j]))


def _drops(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Objects that end from one frame to the next; one that leaves or is hidden shrinks first."""
    found = []
    usual = _usual_areas(steps)
    for step in steps:
        for i, name in enumerate(names):
            still = float(step.surely[i] / max(step.was[i], 1e-6))
            if step.now[i] == 0 and step.was[i] >= max(usual[i] / 2, 1) and still >= limits.dropped:
                words = f"object {name} ends at frame {step.number}, though the video still shows it"
                found.append(Finding("dropped", step.index, step.index, name, round(still / limits.dropped, 2), words))
    return found


def _usual_areas(steps: Sequence[_Step]) -> Float64[np.ndarray, " objects"]:
    """The median over the frames on which an object is: a sliver of it tells little."""
    areas = np.array([step.was for step in steps])
    return np.array([np.median(of[of > 0]) if (of > 0).any() else 0.0 for of in areas.T])


def _jumps(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Labels that are suddenly elsewhere than what they were on. A thing that is half hidden is where it should be."""
    found = []
    usual = _usual_areas(steps)
    for step in steps:
        for i, name in enumerate(names):
            if min(step.was[i], step.now[i]) < max(usual[i] / 2, 1) or step.surely[i] < _ENOUGH * step.was[i]:
                continue
            if any(_swapped(step, i, j) >= limits.swap for j in range(len(names)) if j != i):
                continue
            share = float(step.staying[i] / step.surely[i])
            if share < limits.jump:
                words = f"object {name} jumps at frame {step.number}: {share:.0%} of it is where it should be"
                strength = round((1 - share) / (1 - limits.jump), 2)
                found.append(Finding("jump", step.index, step.index, name, strength, words))
    return found


def _freezes(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Labels that stay exactly where they are while the video moves what is under them."""
    found = []
    for i, name in enumerate(names):
        run: list[_Step] = []
        for step in [*steps, None]:
            if step is not None and step.still[i] and step.now[i] > 0:
                run.append(step)
                continue
            if len(run) >= limits.frozen_frames:
                # Ways add up as vectors, so that what features cannot tell cancels out.
                far = float(np.linalg.norm(sum(one.way[i] for one in run)) / run[0].now[i] ** 0.5)
                if far >= limits.frozen:
                    first, last = run[0].index, run[-1].index
                    where = f"frames {run[0].number} to {run[-1].number}"
                    words = f"object {name} stands still on {where} while the video moves"
                    found.append(Finding("frozen", first, last, name, round(min(far / limits.frozen, 10.0), 2), words))
            run = []
    return found


def _drifts(track: _Track, limits: AuditConfig) -> list[Finding]:
    """Labels that creep off what they are on, always the same way: too little to see from a frame to the next."""
    found = []
    for name, slips in zip(track.names, track.slips, strict=True):
        if len(slips) < 3:
            continue
        way = np.array([slip.way for slip in slips])
        crept, trodden = np.linalg.norm(way.sum(axis=0)), np.linalg.norm(way, axis=1).sum()
        strength = float(crept / limits.drift)
        if strength >= 1 and crept >= _ONE_WAY * trodden:
            first, last = track.frames[slips[0].place - limits.reach], track.frames[slips[-1].place]
            where = f"between frames {track.numbers[first]} and {track.numbers[last]}"
            words = f"object {name} creeps off by {crept:.0%} of its size {where}"
            found.append(Finding("drift", first, last, name, round(strength, 2), words))
    return found


@dataclass(frozen=True, eq=False)
class _Slip:
    """How much further labels moved than what they are on, in sizes of the object."""

    place: int
    way: Float64[np.ndarray, "2"]


def _slip(track: _Track, match: _Match, object_: int) -> Iterator[_Slip]:
    """From the frame `reach` labels back to the last one; nothing where too little is seen twice."""
    was, now = (track.covered[at].float() for at in (-1 - track.limits.reach, -1))
    before, after = float(was[:, object_].sum()), float(now[:, object_].sum())
    if min(before, after) < _FEWEST_CELLS or not 0.8 <= after / before <= 1.25:  # what is hidden moves the centre too
        return
    moved = _moved(now, match, track.columns)[object_]
    labels_moved = _centre(now[:, object_], track.columns) - _centre(was[:, object_], track.columns)
    yield _Slip(len(track.frames) - 1, (labels_moved - moved) / after**0.5)


def _places(cells: Int[Tensor, " chosen"], columns: int) -> Float[Tensor, "chosen 2"]:
    return torch.stack([cells % columns, cells // columns], dim=1).double()


def _centre(covered: Float[Tensor, " cells"], columns: int) -> Float64[np.ndarray, "2"]:
    weight = covered.double()
    places = _places(torch.arange(len(weight)), columns)
    return np.asarray((weight @ places / weight.sum()).numpy())
