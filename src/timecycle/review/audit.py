"""Audit labels made by any tool: do masks or keypoints fit the video they belong to?

No frame is trusted. Labels of a frame are propagated to later frames and compared with the labels there. Correct labels
move with the video. Wrong labels do not, even where they agree with each other, because the image under them moves
differently. This also finds tracks whose labels belong to other frames than their files are named for.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from timecycle.confidence.signals import CYCLE_TOLERANCE_CELLS, Covered
from timecycle.errors import LabelError
from timecycle.labels import Labels
from timecycle.labels.label_map import Extent, overlap
from timecycle.labels.space import is_point_space
from timecycle.matching.forward_backward import forward_backward
from timecycle.matching.neighbours import Packing, packed_like
from timecycle.matching.window import Window
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.progress import OnProgress
from timecycle.propagation.frame_encoder import FrameEncoder
from timecycle.propagation.prefetch import encoding_workers, prefetch_features
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import fit_labels, space_of
from timecycle.video import Video

FindingKind = Literal["shift", "swap", "jump", "dropped", "frozen", "drift"]

_MIN_DIFFERENCE = 0.005  # in overlap: smaller ones do not tell two shifts apart
_ONE_DIRECTION = 0.75  # of the total slip: back and forth is noise of the features
_SHOWN = 10  # findings in a repr
_MIN_CELLS = 4  # of an object, to measure how it moved
_MIN_MATCHED = 0.25  # share of an object that must be matched to measure where it went

PerObject = Float64[np.ndarray, " objects"]
_Encoded = tuple[FeatureMap, Packing]
# How much further labels moved than the image under them, in sizes of the object, up to a position among the frames.
_Slip = tuple[int, Float64[np.ndarray, "2"]]


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """Thresholds of the findings. Set on the synthetic world and a few composites; see benchmarks/audit.py."""

    span_frames: int = 5  # over which labels are propagated for drift and shift
    max_shift_frames: int = 6  # by which a whole track may be off
    shift_gain: float = 0.015  # in overlap: how much better another shift has to fit
    shift_agreement: float = 0.75  # and on what share of the frames that distinguish the shifts
    jump: float = 0.4  # share of what is matched that keeps its label; less is a jump
    swap: float = 0.25  # in overlap: how much better another object fits
    dropped: float = 0.3  # share of the object that the video still shows
    frozen_frames: int = 3  # how many frames labels stay exactly the same
    frozen: float = 0.15  # of an object's size: how far the image under it moves meanwhile
    drift: float = 0.5  # of an object's size: how far labels moved off what they were on


@dataclass(frozen=True)
class Finding:
    """A suspected error in the labels: its kind, its frames and its strength."""

    kind: FindingKind
    first: int
    last: int
    object: str
    strength: float  # relative to the threshold
    message: str


@dataclass(frozen=True, eq=False)
class Audit:
    """The findings, the strongest first, and how well the labels of every frame fit those before."""

    frames: Sequence[int]
    findings: Sequence[Finding]
    overlap: Float64[np.ndarray, "frames objects"]  # with labels propagated from the frame before; NaN on the first

    def __repr__(self) -> str:
        count = len(self.findings)
        more = [f"  and {count - _SHOWN} more"] if count > _SHOWN else []
        lines = [f"  {one.kind} ({one.strength:.1f}): {one.message}" for one in self.findings[:_SHOWN]]
        head = f"Audit({len(self.frames)} frames, {count or 'no'} finding{'' if count == 1 else 's'})"
        return "\n".join((head, *lines, *more))


def audit(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    encoder: Encoder,
    config: PropagateConfig,
    limits: AuditConfig | None = None,
    progress: OnProgress | None = None,
) -> Audit:
    """Follow the labels through the video and find identity swaps, jumps, dropped objects, frozen labels, drift and
    shifted tracks."""
    limits = limits or AuditConfig()
    labels = fit_labels(video, labels)
    if len(labels) < 3:
        raise LabelError(f"there are labels on {len(labels)} frames only", remedy="give labels on at least 3 frames")
    track = _follow(video, labels, encoder, config, limits, progress)
    # Over a longer gap an object may be anywhere, so nothing can be said.
    steps = [step for step in track.steps if step.index - step.index_before <= limits.span_frames]
    findings = [
        *_shifts(track, limits),
        *_swaps(steps, track.names, limits),
        # Keypoints that end are not reported: whether a point is visible is for people to say.
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
    """The best match of each feature cell in an earlier frame, and whether it is forward-backward consistent."""

    there: Int[Tensor, " cells"]
    consistent: Bool[Tensor, " cells"]


@dataclass(frozen=True, eq=False)
class _Step:
    """From one labelled frame to the next: the labels of every object there, and propagated to there."""

    index_before: int
    index: int
    number: int  # of the frame, for people
    area_before: PerObject  # in cells
    area: PerObject
    matched: PerObject  # area of the frame before with consistent matches
    matched_same: PerObject  # and the same label at the match
    overlap: PerObject  # of propagated labels with the labels here
    cross_overlap: Float64[np.ndarray, "objects others"]  # the same between objects
    unchanged: Bool[np.ndarray, " objects"]  # whether the labels are exactly where they were
    motion: Float64[np.ndarray, "objects 2"]  # of the image under the labels, in cells


@dataclass(eq=False)
class _Track:
    """What was measured along the labels. Coverage maps are kept only of the frames still needed."""

    names: tuple[str, ...]
    limits: AuditConfig
    numbers: Sequence[int]  # of the video's frames, for people
    columns: int = 0  # of the grid
    frames: list[int] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    fits: list[list[float]] = field(default_factory=list)  # by frame, for every shift
    slips: list[list[_Slip]] = field(init=False)  # by object
    covered: deque[Covered] = field(init=False)  # of the last frames, as many as a shift to either side needs
    matches: deque[_Match] = field(init=False)  # of the last frames with the frame `span_frames` labels earlier

    def __post_init__(self) -> None:
        self.slips = [[] for _ in self.names]
        self.covered = deque(maxlen=self.limits.span_frames + 2 * self.limits.max_shift_frames + 2)
        self.matches = deque(maxlen=self.limits.max_shift_frames + 1)

    @property
    def consecutive(self) -> bool:
        return self.frames[-1] - self.frames[0] == len(self.frames) - 1

    def add_match(self, match: _Match) -> None:
        """Add the match of the last frame with the one `span_frames` labels earlier, and measure what it allows."""
        self.matches.append(match)
        if (len(self.frames) - 1) % self.limits.span_frames == 0:
            for object_, slips in enumerate(self.slips):
                slips.extend(_slip(self, match, object_))
        most = self.limits.max_shift_frames
        first = 2 * most + self.limits.span_frames  # with labels for every shift to either side
        if self.consecutive and len(self.frames) > first:
            self.fits.append([_fit(self, shift) for shift in range(-most, most + 1)])


def _follow(
    video: Video,
    labels: Mapping[int, Labels],
    encoder: Encoder,
    config: PropagateConfig,
    limits: AuditConfig,
    progress: OnProgress | None,
) -> _Track:
    space = space_of(labels)
    frame_encoder = FrameEncoder(encoder, config)
    is_point = is_point_space(space)
    track = _Track(space.objects, limits, video.numbers)
    recent: deque[_Encoded] = deque(maxlen=limits.span_frames)
    frames = (frame for frame in video.frames(min(labels), max(labels) + 1) if frame.index in labels)
    for frame in prefetch_features(frames, frame_encoder.encode, workers=encoding_workers(encoder)):
        features = frame.features
        grid = features.grid.rescaled(*frame.frame.image.shape[:2])
        extent = space.extent(space.encode(labels[frame.frame.index], grid))
        window = config.window(features.grid, annotated=False)
        encoded = features, packed_like(features.cells, (packing for _, packing in recent))
        track.columns = extent.shape[1]
        track.frames.append(frame.frame.index)
        track.covered.append((_dilated(extent) if is_point else extent).flatten(0, 1).half())
        if len(recent) == limits.span_frames:
            track.add_match(_match(encoded, recent[0], window))
        if recent:
            track.steps.append(_step(track, _match(encoded, recent[-1], window)))
        recent.append(encoded)
        if progress is not None:
            progress(len(track.frames), len(labels))
    return track


@torch.inference_mode()
def _match(now: _Encoded, earlier: _Encoded, window: Window | None) -> _Match:
    (here, packing), (there, other_packing) = now, earlier
    cycle = forward_backward(here.cells, there.cells, window, packing=packing, other_packing=other_packing)
    return _Match(cycle.forward.int().cpu(), (cycle.error_cells <= CYCLE_TOLERANCE_CELLS).cpu())


def _dilated(extent: Extent) -> Extent:
    """Dilate keypoints by two cells on every side, so that they cover some of the image around them."""
    return torch.nn.functional.max_pool2d(extent.permute(2, 0, 1), 5, stride=1, padding=2).permute(1, 2, 0)


def _step(track: _Track, match: _Match) -> _Step:
    """Measure the last step of a track."""
    before, now = (track.covered[at].float() for at in (-2, -1))
    propagated = before[match.there.long()]
    matched = propagated * match.consistent[:, None]
    return _Step(
        index_before=track.frames[-2],
        index=track.frames[-1],
        number=track.numbers[track.frames[-1]],
        area_before=_area(before),
        area=_area(now),
        matched=_area(matched),
        matched_same=_area(torch.minimum(matched, now)),
        overlap=overlap(propagated, now).double().numpy(),
        cross_overlap=_cross_overlap(propagated, now),
        unchanged=(before == now).all(dim=0).numpy(),
        motion=_motion(now, match, track.columns),
    )


def _area(covered: Covered) -> PerObject:
    area: np.ndarray = covered.sum(dim=0).double().numpy()
    return area


def _motion(now: Covered, match: _Match, columns: int) -> Float64[np.ndarray, "objects 2"]:
    """Return the mean motion of the consistently matched cells under each object; 0 where there are too few."""
    motion = _positions(torch.arange(len(now)), columns) - _positions(match.there.long(), columns)
    weight = ((now > 0.5) & match.consistent[:, None]).double()
    count = weight.sum(dim=0)[:, None]
    mean: np.ndarray = torch.where(count >= _MIN_CELLS, weight.T @ motion / count.clamp_min(1), 0.0).numpy()
    return mean


def _cross_overlap(one: Covered, other: Covered) -> Float64[np.ndarray, "objects others"]:
    """Return the intersection over union of every object with every other."""
    both = one.T @ other
    either = one.sum(dim=0)[:, None] + other.sum(dim=0)[None] - both
    overlaps: np.ndarray = (both / either.clamp_min(1e-6)).double().numpy()
    return overlaps


# Findings


def _shifts(track: _Track, limits: AuditConfig) -> list[Finding]:
    """Find a track that fits the video better some frames earlier or later."""
    if not track.consecutive or len(track.fits) < 8:
        return []
    fits = np.array(track.fits)
    fits = fits[np.isfinite(fits).all(axis=1)]  # frames that show an object at every shift
    if len(fits) < 8:
        return []
    best = int(fits.mean(axis=0).argmax())
    gain = fits[:, best] - fits[:, limits.max_shift_frames]
    distinct = np.abs(gain) > _MIN_DIFFERENCE
    agreement = float((gain[distinct] > 0).mean()) if distinct.any() else 0.0
    strength = min(gain.mean() / limits.shift_gain, agreement / limits.shift_agreement)
    by = best - limits.max_shift_frames
    if by == 0 or strength < 1:
        return []
    count = f"{abs(by)} frame{'s' if abs(by) > 1 else ''}"
    file = track.numbers[track.frames[0]]
    message = f"the labels are {count} {'early' if by > 0 else 'late'}: file {file} shows frame {file + by}"
    return [Finding("shift", track.frames[0], track.frames[-1], "", round(float(strength), 2), message)]


def _fit(track: _Track, shift: int) -> float:
    """Return the overlap of labels `shift` frames off with themselves propagated over `span_frames` frames.

    It is measured at the frame `max_shift_frames` before the last, where labels exist for every shift.
    """
    match, back = track.matches[0], track.limits.max_shift_frames + shift
    propagated = track.covered[-1 - back - track.limits.span_frames][match.there.long()].float()
    there = track.covered[-1 - back].float()
    either = torch.maximum(propagated, there).sum()
    # Over all objects together, so that hidden objects do not count as fitting.
    return float(torch.minimum(propagated, there).sum() / either) if either > 0 else float("nan")


def _swaps(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find two objects that exchange their labels from one frame to the next."""
    findings = []
    for step in steps:
        for i in range(len(names)):
            for j in range(i + 1, len(names)):
                gain = _swap_gain(step, i, j)
                if gain >= limits.swap:
                    pair = f"{names[i]} and {names[j]}"
                    message = f"objects {pair} swap identities at frame {step.number}"
                    strength = round(float(gain / limits.swap), 2)
                    findings.append(Finding("swap", step.index, step.index, pair, strength, message))
    return findings


def _swap_gain(step: _Step, i: int, j: int) -> float:
    """Return how much better both objects fit the other's labels than their own."""
    cross = step.cross_overlap
    return float(min(cross[i, j] - cross[i, i], cross[j, i] - cross[j, j]))


def _drops(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find objects that end from one frame to the next; an object that leaves or is hidden shrinks first."""
    findings = []
    usual = _median_areas(steps)
    for step in steps:
        for i, name in enumerate(names):
            share = float(step.matched[i] / max(step.area_before[i], 1e-6))
            if step.area[i] == 0 and step.area_before[i] >= max(usual[i] / 2, 1) and share >= limits.dropped:
                message = f"object {name} ends at frame {step.number}, though the video still shows it"
                strength = round(share / limits.dropped, 2)
                findings.append(Finding("dropped", step.index, step.index, name, strength, message))
    return findings


def _median_areas(steps: Sequence[_Step]) -> Float64[np.ndarray, " objects"]:
    """Return the median area of each object over the frames that show it: a sliver of an object says little."""
    areas = np.array([step.area_before for step in steps])
    return np.array([np.median(of[of > 0]) if (of > 0).any() else 0.0 for of in areas.T])


def _jumps(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find labels that suddenly leave what they were on; an object that is half hidden has not jumped."""
    findings = []
    usual = _median_areas(steps)
    for step in steps:
        for i, name in enumerate(names):
            small = min(step.area_before[i], step.area[i]) < max(usual[i] / 2, 1)
            if small or step.matched[i] < _MIN_MATCHED * step.area_before[i]:
                continue
            if any(_swap_gain(step, i, j) >= limits.swap for j in range(len(names)) if j != i):
                continue
            share = float(step.matched_same[i] / step.matched[i])
            if share < limits.jump:
                message = f"object {name} jumps at frame {step.number}: {share:.0%} of it is where it should be"
                strength = round((1 - share) / (1 - limits.jump), 2)
                findings.append(Finding("jump", step.index, step.index, name, strength, message))
    return findings


def _freezes(steps: Sequence[_Step], names: Sequence[str], limits: AuditConfig) -> list[Finding]:
    """Find labels that stay exactly the same while the image under them moves."""
    findings = []
    for i, name in enumerate(names):
        run: list[_Step] = []
        for step in [*steps, None]:
            if step is not None and step.unchanged[i] and step.area[i] > 0:
                run.append(step)
                continue
            if len(run) >= limits.frozen_frames:
                # Motions add up as vectors, so that noise of the features cancels out.
                moved = float(np.linalg.norm(sum(one.motion[i] for one in run)) / run[0].area[i] ** 0.5)
                if moved >= limits.frozen:
                    frames = f"frames {run[0].number} to {run[-1].number}"
                    message = f"object {name} is frozen on {frames} while the video moves"
                    strength = round(min(moved / limits.frozen, 10.0), 2)
                    findings.append(Finding("frozen", run[0].index, run[-1].index, name, strength, message))
            run = []
    return findings


def _drifts(track: _Track, limits: AuditConfig) -> list[Finding]:
    """Find labels that slowly move off an object in one direction, too little to see from frame to frame."""
    findings = []
    for name, slips in zip(track.names, track.slips, strict=True):
        if len(slips) < 3:
            continue
        offsets = np.array([offset for _, offset in slips])
        drifted, total = np.linalg.norm(offsets.sum(axis=0)), np.linalg.norm(offsets, axis=1).sum()
        strength = float(drifted / limits.drift)
        if strength >= 1 and drifted >= _ONE_DIRECTION * total:
            first, last = track.frames[slips[0][0] - limits.span_frames], track.frames[slips[-1][0]]
            frames = f"between frames {track.numbers[first]} and {track.numbers[last]}"
            message = f"object {name} drifts by {drifted:.0%} of its size {frames}"
            findings.append(Finding("drift", first, last, name, round(strength, 2), message))
    return findings


def _slip(track: _Track, match: _Match, object_: int) -> Iterator[_Slip]:
    """Measure the slip over the last `span_frames` labels; nothing where too little of the object is on both frames."""
    before, now = (track.covered[at].float() for at in (-1 - track.limits.span_frames, -1))
    area_before, area = float(before[:, object_].sum()), float(now[:, object_].sum())
    # An object that is partly hidden moves its centre too.
    if min(area_before, area) < _MIN_CELLS or not 0.8 <= area / area_before <= 1.25:
        return
    motion = _motion(now, match, track.columns)[object_]
    labels_motion = _centre(now[:, object_], track.columns) - _centre(before[:, object_], track.columns)
    yield len(track.frames) - 1, (labels_motion - motion) / area**0.5


def _positions(cells: Int[Tensor, " chosen"], columns: int) -> Float[Tensor, "chosen 2"]:
    return torch.stack([cells % columns, cells // columns], dim=1).double()


def _centre(covered: Float[Tensor, " cells"], columns: int) -> Float64[np.ndarray, "2"]:
    weight = covered.double()
    positions = _positions(torch.arange(len(weight)), columns)
    return np.asarray((weight @ positions / weight.sum()).numpy())
