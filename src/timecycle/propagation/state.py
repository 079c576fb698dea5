"""The state of one video: what it remembers, and one step per frame."""

from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from PIL import Image
from torch import Tensor

from timecycle.errors import LabelError, SettingsError, VideoError
from timecycle.grid import Grid
from timecycle.labels.fitting import absent_where_empty, fit_sizes, refuse_empty
from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Labels, Space, combine
from timecycle.model.encoder import Encoder, FeatureMap, checked
from timecycle.propagation.ahead import live_worker
from timecycle.propagation.election import Elected, elect
from timecycle.propagation.memory import Memory, Remembered
from timecycle.propagation.neighbours import packed_like
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.trail import Trail
from timecycle.video import Frame, Video
from timecycle.video.frame import rgb_of


@dataclass(frozen=True, eq=False)
class Carried:
    """One frame's soft labels, the channels they are about, and the grid over the frame at its own size."""

    soft: SoftMap
    knows: Bool[Tensor, " channels"]
    grid: Grid

    def __repr__(self) -> str:
        rows, columns, channels = self.soft.shape
        return f"Carried({columns}x{rows} cells, {int(self.knows.sum())} of {channels} channels known)"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything a state needs to continue exactly as it would have: its memory, and what it knows of the stream."""

    frames: tuple[Remembered, ...]
    anchors: tuple[int, ...]  # by index
    past: tuple[int, ...]
    trail: Trail | None
    space: Space | None
    steps: int
    image_size: tuple[int, int] | None
    kind: str | None


@dataclass(eq=False)
class Propagation:
    """Carries labels through one video, in either direction of time, a frame at a time.

    state = Propagation(encoder)
    state.step(first_image, labels)
    for image in camera: labels = state.step(image)
    """

    encoder: Encoder
    config: PropagateConfig = field(default_factory=PropagateConfig)
    space: Space | None = None
    steps: int = 0
    memory: Memory = field(init=False)
    latest: Remembered | None = field(init=False, default=None)  # the frame of the last step, as it is remembered
    trail: Trail | None = field(init=False, default=None)  # kept for whoever judges
    image_size: tuple[int, int] | None = field(init=False, default=None)
    kind: str | None = field(init=False, default=None)

    def __repr__(self) -> str:
        size = "" if self.image_size is None else f", {self.image_size[1]}x{self.image_size[0]}"
        return f"Propagation({self.encoder.name}, {self.steps} steps{size}, {len(list(self.memory))} frames remembered)"

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder):
            raise SettingsError(
                f"the encoder of a stream was passed as {type(self.encoder).__name__}",
                remedy="load it first: Propagation(tc.load_encoder('rgb'))",
            )
        if not isinstance(self.config, PropagateConfig):
            raise SettingsError(
                f"the settings of a stream were passed as {type(self.config).__name__}",
                remedy="read them first: Propagation(encoder, tc.propagate_config('fast'))",
            )
        self.memory = Memory(past_frames=self.config.past_frames, anchor_frames=self.config.anchor_frames)

    def step(self, image: Frame | UInt8[np.ndarray, "height width 3"], labels: Labels | None = None) -> Labels:
        """The labels of the next frame of a stream; give `labels` on any frame to start or correct objects.

        A step that is refused changes nothing.
        """
        image = rgb_of(image)
        if self.space is None and labels is None:
            raise LabelError(
                "the stream has no labels yet", remedy="pass labels with its first frame: step(image, labels)"
            )
        self._check_image(self.steps, image)
        if labels is not None:
            labels = self._check_labels(image, labels)
        features = self._encode_live(image)
        if labels is not None:
            self._widen(labels)
            self.kind = labels.kind
        carried = self.advance(self.steps, image, labels, features=features)
        return self.decide(carried, labels)

    @torch.inference_mode()
    def advance(
        self,
        index: int,
        image: UInt8[np.ndarray, "height width 3"],
        labels: Labels | None = None,
        *,
        features: FeatureMap | None = None,
        elected: Elected | None = None,
    ) -> Carried:
        """The soft labels of frame `index`, which is remembered.

        `features` where it has been encoded already, `elected` where the memory has been matched with it already.
        """
        space = self._known_space()
        self._check_image(index, image)
        features = features or self.encode(image)
        grid = features.grid.rescaled(*image.shape[:2])
        packing = packed_like(features.cells, (frame.packing for frame in self.memory))
        if elected is None:
            elected = elect(features, list(self.memory), space=space, config=self.config, packing=packing)
        soft, knows = elected.soft.to(features.cells.device), elected.knows.to(features.cells.device)
        speaks = None
        if labels is not None:
            speaks = space.speaks(labels)
            given = space.to_soft(labels, grid).to(soft.device)
            decides = speaks.to(soft.device)
            soft = combine(given, soft, speaks=decides, exclusive=space.exclusive)
            knows = knows | decides
        self.image_size = image.shape[:2]
        self.latest = Remembered(index, features.cells, soft, knows, speaks, packing)
        self.memory.remember(self.latest)
        self.steps += 1
        return Carried(soft.cpu(), knows.cpu(), grid)

    def decide(self, carried: Carried, labels: Labels | None) -> Labels:
        """Labels at image size; what was given on this frame comes back exactly."""
        space = self._known_space()
        decided: Labels = space.from_soft(carried.soft, carried.grid)
        return decided if labels is None else space.put_back(labels, decided)

    @torch.inference_mode()  # here too: it is called from other threads, where the mode of this one does not hold
    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        """The features of a frame at the size the settings ask for."""
        return checked(self.encoder.encode(resize(image, self.config)), self.encoder)

    def encode_frame(self, video: Video, index: int) -> FeatureMap:
        """The features of a frame of a video, with a grid over the frame at its own size."""
        image = video[index].image
        features = self.encode(image)
        return FeatureMap(features.cells, features.grid.rescaled(*image.shape[:2]))

    def snapshot(self) -> Snapshot:
        """The state as it is now, for `restore`; later steps do not change it."""
        frames = {frame.index: frame for frame in self.memory}
        return Snapshot(
            tuple(frames.values()),
            tuple(frame.index for frame in self.memory.anchors),
            tuple(frame.index for frame in self.memory.past),
            self.trail,
            self.space,
            self.steps,
            self.image_size,
            self.kind,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of a state with the same encoder and settings."""
        frames = {frame.index: frame for frame in snapshot.frames}
        self.memory.anchors = [frames[index] for index in snapshot.anchors]
        self.memory.past = [frames[index] for index in snapshot.past]
        self.trail = snapshot.trail
        self.space = snapshot.space
        self.steps = snapshot.steps
        self.image_size = snapshot.image_size
        self.kind = snapshot.kind
        self.latest = None

    def _encode_live(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        """As `encode`, beside the thread that matches."""
        worker = self._worker
        return self.encode(image) if worker is None else worker.submit(self.encode, image).result()

    @cached_property
    def _worker(self) -> Executor | None:
        return live_worker(self.encoder)  # ends when this state does

    def __getstate__(self) -> dict[str, object]:
        """Everything but the worker: a copy of a state makes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_worker"}

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
            known = self.snapshot()
            self.restore(replace(known, frames=tuple(_padded(frame, extra) for frame in known.frames)))

    def _check_image(self, index: int, image: UInt8[np.ndarray, "height width 3"]) -> None:
        height, width, _ = image.shape
        if self.image_size not in (None, (height, width)):
            was_height, was_width = self.image_size or (0, 0)
            raise VideoError(
                f"frame {index} is {width}x{height} but the frames before it are {was_width}x{was_height}",
                remedy="resize the frames to one size, or start a new state for each size",
            )

    def _check_labels(self, image: UInt8[np.ndarray, "height width 3"], labels: Labels) -> Labels:
        """Return the labels as they are meant; refuse those that do not fit the stream."""
        if not isinstance(labels, Labels):
            raise LabelError(
                f"the labels of frame {self.steps} were passed as {type(labels).__name__}",
                remedy="pass tc.Masks.of(array), tc.Masks.read(path) or labels of another kind",
            )
        given = fit_sizes({self.steps: labels}, image.shape[0], image.shape[1])
        if self.kind not in (None, labels.kind):
            raise LabelError(
                f"the stream carries {self.kind} but frame {self.steps} was given {labels.kind}",
                remedy="use one state for each kind of labels",
            )
        if self.space is None:
            refuse_empty(given)
        return absent_where_empty(given, self.space.objects if self.space else ())[self.steps]


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


def _padded(frame: Remembered, extra: int) -> Remembered:
    """The frame with `extra` channels it knows nothing about."""
    soft = torch.cat([frame.soft, frame.soft.new_zeros(*frame.soft.shape[:2], extra)], dim=-1)
    unknown = frame.knows.new_zeros(extra)
    speaks = None if frame.speaks is None else torch.cat([frame.speaks, frame.speaks.new_zeros(extra)])
    return replace(frame, soft=soft, knows=torch.cat([frame.knows, unknown]), speaks=speaks)
