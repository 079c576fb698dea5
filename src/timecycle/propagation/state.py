"""The state of one video: what it remembers, and one step per frame."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from timecycle.errors import LabelError, SettingsError, VideoError
from timecycle.grid import Grid
from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Labels, Space, combine, settle
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.memory import Memory, Remembered
from timecycle.propagation.neighbours import (
    Reference,
    Shape,
    Weighting,
    Window,
    neighbours,
    neighbours_of_groups,
    vote,
)


@dataclass(frozen=True, kw_only=True)
class PropagateConfig:
    """How labels are carried. Sizes are pixels of the image as it is encoded."""

    image_size_px: int = 480  # shorter side of the encoded image; a smaller video is never enlarged
    square: bool = False  # ignore the aspect ratio, as the 2019 release did
    past_frames: int = 7  # K of the paper: the last frames that vote besides the labelled ones
    anchor_frames: int = 8  # labelled frames that go on voting; more cost time, not memory over the video's length
    neighbours: int = 10  # more smooth the labels and blur small objects
    weighting: Weighting = "joint"
    temperature: float = 0.07  # lower trusts the best match more; 1 is the paper's Eq. 1, nearly a plain mean
    window_px: float | None = 96  # how far something may move between a frame and the next ones; None: anywhere
    anchor_window_px: float | None = 96  # the same for labelled frames, which may be long ago; None: anywhere
    window_shape: Shape = "disc"
    stretch: bool = False  # stretch every channel to [0, 1] in every frame, as the 2019 release did
    repeat_first: bool = False  # early frames count the first one for each past frame they lack (2019 release)
    direction: Literal["both", "forward"] = "both"  # both: also carry labels back in time from where they were drawn

    def window(self, grid: Grid, *, labelled: bool) -> Window | None:
        """The window through which a frame is seen, in cells of the grid of the encoded image."""
        reach_px = self.anchor_window_px if labelled else self.window_px
        return None if reach_px is None else Window(reach_px / grid.x.stride_px, self.window_shape)

    def __post_init__(self) -> None:
        positive = (
            "image_size_px",
            "anchor_frames",
            "neighbours",
            "temperature",
            "window_px",
            "anchor_window_px",
        )
        for name in positive:
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise SettingsError(f"{name} is {value}", remedy=f"set {name} to a finite number above 0")
        if self.past_frames < 0:
            raise SettingsError(f"past_frames is {self.past_frames}", remedy="set past_frames to 0 or more")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SettingsError(f"{name} is {getattr(self, name)!r}", remedy=f"choose one of {', '.join(allowed)}")


_CHOICES = {
    "weighting": ("joint", "per_reference"),
    "window_shape": ("disc", "square"),
    "direction": ("both", "forward"),
}


@dataclass(frozen=True, eq=False)
class Carried:
    """One frame's soft labels, the channels they are about, and the grid over the frame at its own size."""

    soft: SoftMap
    knows: Bool[Tensor, " channels"]
    grid: Grid


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a state needs to go on later: everything it remembers except features, which can be made again."""

    frames: tuple[Remembered, ...]
    anchors: tuple[int, ...]
    past: tuple[int, ...]


@dataclass(eq=False)
class Propagation:
    """Carries labels through one video, in either direction of time, a frame at a time.

    >>> state = Propagation(encoder)                                    # doctest: +SKIP
    >>> state.step(first_image, labels)                                 # doctest: +SKIP
    >>> for image in camera: labels = state.step(image)                 # doctest: +SKIP
    """

    encoder: Encoder
    config: PropagateConfig = field(default_factory=PropagateConfig)
    space: Space | None = None
    steps: int = 0
    memory: Memory = field(init=False)
    image_size: tuple[int, int] | None = field(init=False, default=None)
    kind: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.memory = Memory(past_frames=self.config.past_frames, anchor_frames=self.config.anchor_frames)

    def step(self, image: UInt8[np.ndarray, "height width 3"], labels: Labels | None = None) -> Labels:
        """The labels of the next frame of a stream; give `labels` on any frame to start or correct objects."""
        if self.space is None and labels is None:
            raise LabelError(
                "the stream has no labels yet", remedy="pass labels with its first frame: step(image, labels)"
            )
        if labels is not None:
            self._check_labels(image, labels)
            self._widen(labels)
        carried = self.advance(self.steps, image, labels)
        return self.decide(carried, labels)

    @torch.inference_mode()
    def advance(self, index: int, image: UInt8[np.ndarray, "height width 3"], labels: Labels | None = None) -> Carried:
        """The soft labels of frame `index`, which is remembered."""
        space = self._known_space()
        self._check_image(index, image)
        features = self.encode(image)
        grid = features.grid.rescaled(*image.shape[:2])
        soft, knows = self._elect(features)
        speaks = None
        if labels is not None:
            speaks = space.speaks(labels)
            given = space.to_soft(labels, grid).to(soft.device)
            decides = speaks.to(soft.device)
            soft = combine(given, soft, speaks=decides, exclusive=space.exclusive)
            knows = knows | decides
        self.memory.remember(Remembered(index, features.cells, soft, knows, speaks))
        self.steps += 1
        return Carried(soft.cpu(), knows.cpu(), grid)

    def decide(self, carried: Carried, labels: Labels | None) -> Labels:
        """Labels at image size; what was given on this frame comes back exactly."""
        space = self._known_space()
        decided: Labels = space.from_soft(carried.soft, carried.grid)
        return decided if labels is None else space.put_back(labels, decided)

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        """The features of a frame at the size the settings ask for."""
        return self.encoder.encode(resize(image, self.config))

    def snapshot(self) -> Snapshot:
        frames = {frame.index: frame for frame in self.memory}
        return Snapshot(
            tuple(frames.values()),
            tuple(frame.index for frame in self.memory.anchors),
            tuple(frame.index for frame in self.memory.past),
        )

    def restore(self, snapshot: Snapshot) -> None:
        frames = {frame.index: frame for frame in snapshot.frames}
        self.memory.anchors = [frames[index] for index in snapshot.anchors]
        self.memory.past = [frames[index] for index in snapshot.past]

    def _elect(self, features: FeatureMap) -> tuple[SoftMap, Bool[Tensor, " channels"]]:
        """What the remembered frames say about this one: soft labels, and the channels any of them knows."""
        space, config = self._known_space(), self.config
        rows, columns, _ = features.cells.shape
        voters = list(self.memory)
        device = features.cells.device
        if not voters:
            nothing = torch.zeros(rows, columns, space.channels, device=device)
            return nothing, torch.zeros(space.channels, dtype=torch.bool, device=device)
        references = [self._reference(frame, features.grid) for frame in voters]
        labels = torch.cat([frame.soft.flatten(0, 1) for frame in voters])
        knows = torch.stack([frame.knows for frame in voters])
        agreed = bool((knows == knows[0]).all())
        if agreed or config.weighting == "per_reference":
            found = neighbours(
                features.cells,
                references,
                k=config.neighbours,
                temperature=config.temperature,
                weighting=config.weighting,
            )
            votes = vote(found, labels)
        if not agreed:
            # A frame that knows nothing of an object, as it is from before its drawing, has no vote on it.
            if config.weighting == "joint":
                votes = self._vote_by_knowledge(features, references, labels, knows)
            else:
                entitled = vote(found, knows.float().repeat_interleave(rows * columns, dim=0))
                votes = torch.where(entitled > 0, votes / entitled.clamp_min(1e-12), 0)
        if config.stretch and space.stretchable:
            votes = _stretched(votes)
        elif not agreed:
            votes = settle(votes[None])[0] if space.exclusive else votes
        else:
            votes = votes / found.weight.sum(dim=1, keepdim=True)
        return votes.reshape(rows, columns, space.channels), knows.any(dim=0)

    def _vote_by_knowledge(
        self,
        features: FeatureMap,
        references: Sequence[Reference],
        labels: Float[Tensor, "cells channels"],
        knows: Bool[Tensor, "voters channels"],
    ) -> Float[Tensor, "queries channels"]:
        """Channels known by the same frames are voted on by the nearest cells of just those frames."""
        groups, member = torch.unique(knows, dim=1, return_inverse=True)
        known = groups.any(dim=0).nonzero().squeeze(1)
        elected = neighbours_of_groups(
            features.cells,
            references,
            groups[:, known],
            k=self.config.neighbours,
            temperature=self.config.temperature,
        )
        votes = labels.new_zeros(features.grid.cells, labels.shape[1])
        for group, found in zip(known.tolist(), elected, strict=True):
            channels = (member == group).nonzero().squeeze(1)
            votes[:, channels] = vote(found, labels[:, channels])
        return votes

    def _reference(self, frame: Remembered, grid: Grid) -> Reference:
        config = self.config
        window = config.window(grid, labelled=frame.labelled)
        copies = 1
        if config.repeat_first and frame is next(iter(self.memory)):
            copies += max(config.past_frames + 1 - len(self.memory), 0)
        return Reference(frame.cells, window, copies)

    def _known_space(self) -> Space:
        if self.space is None:
            raise LabelError("no labels were given", remedy="give labels for at least one frame")
        return self.space

    def _widen(self, labels: Labels) -> None:
        """Make room for objects never seen before; frames already remembered know nothing of them."""
        if self.space is None:
            self.space = type(labels).space([labels])
            return
        wider = self.space.widened(labels)
        extra = wider.channels - self.space.channels
        self.space = wider
        if extra:
            self.restore(
                Snapshot(
                    tuple(_padded(frame, extra) for frame in self.memory),
                    self.snapshot().anchors,
                    self.snapshot().past,
                )
            )

    def _check_image(self, index: int, image: UInt8[np.ndarray, "height width 3"]) -> None:
        height, width, _ = image.shape
        if self.image_size not in (None, (height, width)):
            was_height, was_width = self.image_size or (0, 0)
            raise VideoError(
                f"frame {index} is {width}x{height} but the frames before it are {was_width}x{was_height}",
                remedy="resize the frames to one size, or start a new state for each size",
            )
        self.image_size = (height, width)

    def _check_labels(self, image: UInt8[np.ndarray, "height width 3"], labels: Labels) -> None:
        """Refuse labels that do not fit the stream before anything of them is taken up."""
        check_size(labels, self.steps, image.shape[0], image.shape[1])
        if self.kind not in (None, labels.kind):
            raise LabelError(
                f"the stream carries {self.kind} but frame {self.steps} was given {labels.kind}",
                remedy="use one state for each kind of labels",
            )
        self.kind = labels.kind


def check_size(labels: Labels, index: int, height: int, width: int) -> None:
    """Refuse labels that were not drawn on this frame at its own size."""
    size = labels.size()
    if size is not None and size != (height, width):
        raise LabelError(
            f"the labels of frame {index} are {size[1]}x{size[0]} but the frame is {width}x{height}",
            remedy="draw them on the frame itself, or resize them with nearest neighbour",
        )


def resize(image: UInt8[np.ndarray, "height width 3"], config: PropagateConfig) -> UInt8[np.ndarray, "h w 3"]:
    """The image at the size it is encoded at."""
    height, width, _ = image.shape
    if config.square:
        wanted = (config.image_size_px, config.image_size_px)
    else:
        scale = min(config.image_size_px / min(height, width), 1.0)
        wanted = (max(round(height * scale), 1), max(round(width * scale), 1))
    if wanted == (height, width):
        return image
    small = Image.fromarray(image).resize((wanted[1], wanted[0]), Image.Resampling.BILINEAR)
    return np.array(small)


def _stretched(votes: Float[Tensor, "queries channels"]) -> Float[Tensor, "queries channels"]:
    low, high = votes.amin(dim=0), votes.amax(dim=0)
    return torch.where(high > low, (votes - low) / (high - low).clamp_min(1e-12), 0)


def _padded(frame: Remembered, extra: int) -> Remembered:
    """The frame with `extra` channels it knows nothing about."""
    soft = torch.cat([frame.soft, frame.soft.new_zeros(*frame.soft.shape[:2], extra)], dim=-1)
    unknown = frame.knows.new_zeros(extra)
    speaks = None if frame.speaks is None else torch.cat([frame.speaks, frame.speaks.new_zeros(extra)])
    return Remembered(frame.index, frame.cells, soft, torch.cat([frame.knows, unknown]), speaks)
