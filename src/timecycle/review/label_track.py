"""Follow labels through a video: how far they move with the image under them.

Every labelled frame is matched with the one before it, and with one some labels earlier. What the matches say of each
object is measured at once, so that only the maps of a few frames are held.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from timecycle.confidence.signals import CYCLE_TOLERANCE_CELLS, Covered
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
from timecycle.propagation.video import space_of
from timecycle.video import Video

_MIN_CELLS = 4  # of an object, to measure how it moved

PerObject = Float64[np.ndarray, " objects"]
_Encoded = tuple[FeatureMap, Packing]
# How much further labels moved than the image under them, in sizes of the object, up to a position among the frames.
Slip = tuple[int, Float64[np.ndarray, "2"]]


@dataclass(frozen=True, eq=False)
class Match:
    """The best match of each feature cell in an earlier frame, and whether it is forward-backward consistent."""

    there: Int[Tensor, " cells"]
    consistent: Bool[Tensor, " cells"]


@dataclass(frozen=True, eq=False)
class Step:
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
class Track:
    """What was measured along the labels. Coverage maps are kept only of the frames still needed."""

    names: tuple[str, ...]
    numbers: Sequence[int]  # of the video's frames, for people
    span_frames: int  # labels over which a match is made for drift and shift
    max_shift_frames: int  # by which the whole track may be off
    columns: int = 0  # of the grid
    frames: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    fits: list[list[float]] = field(default_factory=list)  # by frame, for every shift
    slips: list[list[Slip]] = field(init=False)  # by object
    covered: deque[Covered] = field(init=False)  # of the last frames, as many as a shift to either side needs
    matches: deque[Match] = field(init=False)  # of the last frames with the frame `span_frames` labels earlier

    def __post_init__(self) -> None:
        self.slips = [[] for _ in self.names]
        self.covered = deque(maxlen=self.span_frames + 2 * self.max_shift_frames + 2)
        self.matches = deque(maxlen=self.max_shift_frames + 1)

    @property
    def consecutive(self) -> bool:
        return self.frames[-1] - self.frames[0] == len(self.frames) - 1

    def add_match(self, match: Match) -> None:
        """Add the match of the last frame with the one `span_frames` labels earlier, and measure what it allows."""
        self.matches.append(match)
        if (len(self.frames) - 1) % self.span_frames == 0:
            for object_, slips in enumerate(self.slips):
                slips.extend(_slip(self, match, object_))
        most = self.max_shift_frames
        first = 2 * most + self.span_frames  # with labels for every shift to either side
        if self.consecutive and len(self.frames) > first:
            self.fits.append([_fit(self, shift) for shift in range(-most, most + 1)])


def follow(
    video: Video,
    labels: Mapping[int, Labels],
    encoder: Encoder,
    config: PropagateConfig,
    *,
    span_frames: int,
    max_shift_frames: int,
    progress: OnProgress | None = None,
) -> Track:
    """Match every labelled frame with the one before it and the one `span_frames` labels earlier, and measure both."""
    space = space_of(labels)
    frame_encoder = FrameEncoder(encoder, config)
    is_point = is_point_space(space)
    track = Track(space.objects, video.numbers, span_frames, max_shift_frames)
    recent: deque[_Encoded] = deque(maxlen=span_frames)
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
        if len(recent) == span_frames:
            track.add_match(_match(encoded, recent[0], window))
        if recent:
            track.steps.append(_step(track, _match(encoded, recent[-1], window)))
        recent.append(encoded)
        if progress is not None:
            progress(len(track.frames), len(labels))
    return track


@torch.inference_mode()
def _match(now: _Encoded, earlier: _Encoded, window: Window | None) -> Match:
    (here, packing), (there, other_packing) = now, earlier
    cycle = forward_backward(here.cells, there.cells, window, packing=packing, other_packing=other_packing)
    return Match(cycle.forward.int().cpu(), (cycle.error_cells <= CYCLE_TOLERANCE_CELLS).cpu())


def _dilated(extent: Extent) -> Extent:
    """Dilate keypoints by two cells on every side, so that they cover some of the image around them."""
    return torch.nn.functional.max_pool2d(extent.permute(2, 0, 1), 5, stride=1, padding=2).permute(1, 2, 0)


def _step(track: Track, match: Match) -> Step:
    """Measure the last step of a track."""
    before, now = (track.covered[at].float() for at in (-2, -1))
    propagated = before[match.there.long()]
    matched = propagated * match.consistent[:, None]
    return Step(
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


def _motion(now: Covered, match: Match, columns: int) -> Float64[np.ndarray, "objects 2"]:
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


def _fit(track: Track, shift: int) -> float:
    """Return the overlap of labels `shift` frames off with themselves propagated over `span_frames` frames.

    It is measured at the frame `max_shift_frames` before the last, where labels exist for every shift.
    """
    match, back = track.matches[0], track.max_shift_frames + shift
    propagated = track.covered[-1 - back - track.span_frames][match.there.long()].float()
    there = track.covered[-1 - back].float()
    either = torch.maximum(propagated, there).sum()
    # Over all objects together, so that hidden objects do not count as fitting.
    return float(torch.minimum(propagated, there).sum() / either) if either > 0 else float("nan")


def _slip(track: Track, match: Match, object_: int) -> Iterator[Slip]:
    """Measure the slip over the last `span_frames` labels; nothing where too little of the object is on both frames."""
    before, now = (track.covered[at].float() for at in (-1 - track.span_frames, -1))
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
