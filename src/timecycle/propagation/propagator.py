"""Propagate labels through one video, one frame at a time."""

from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch

from timecycle.confidence.history import History
from timecycle.device import host_tensor
from timecycle.errors import LabelError, SettingsError, VideoError
from timecycle.labels.fitting import absent_where_empty, fit_sizes, refuse_empty
from timecycle.labels.guided import guide_of, guided_argmax
from timecycle.labels.label_map import Decide, LabelMap, upsample_argmax
from timecycle.labels.space import Labels, Space, combine
from timecycle.matching.neighbours import packed_like
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.aggregate import aggregate
from timecycle.propagation.frame_encoder import FrameEncoder, RgbImage
from timecycle.propagation.memory import Memory, MemoryFrame
from timecycle.propagation.prefetch import live_worker
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.target import TargetModel, fit_target
from timecycle.video import Frame
from timecycle.video.frame import rgb_of


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything a propagator needs to continue exactly: its memory, and what it knows of the stream."""

    frames: tuple[MemoryFrame, ...]
    anchors: tuple[int, ...]  # by index
    past: tuple[int, ...]
    history: History | None
    space: Space | None
    steps: int
    image_size: tuple[int, int] | None
    kind: str | None
    target: TargetModel | None = None


@dataclass(eq=False)
class Propagator:
    """The state of one video: its memory bank, and one `step` per frame, in either direction of time.

    propagator = Propagator(encoder)
    propagator.step(first_image, labels)
    for image in camera: labels = propagator.step(image)
    """

    encoder: Encoder
    config: PropagateConfig = field(default_factory=PropagateConfig)
    space: Space | None = None
    steps: int = 0
    memory: Memory = field(init=False)
    latest: MemoryFrame | None = field(init=False, default=None)  # the frame of the last step
    history: History | None = field(init=False, default=None)  # kept for the confidence estimator
    target: TargetModel | None = field(init=False, default=None)
    image_size: tuple[int, int] | None = field(init=False, default=None)
    kind: str | None = field(init=False, default=None)

    def __repr__(self) -> str:
        size = "" if self.image_size is None else f", {self.image_size[1]}x{self.image_size[0]}"
        return f"Propagator({self.encoder.name}, {self.steps} steps{size}, {len(self.memory)} memory frames)"

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder):
            raise SettingsError(
                f"the encoder was passed as {type(self.encoder).__name__}",
                remedy="load it first: Propagator(tc.load_encoder('rgb'))",
            )
        if not isinstance(self.config, PropagateConfig):
            raise SettingsError(
                f"the settings were passed as {type(self.config).__name__}",
                remedy="read them first: Propagator(encoder, tc.propagate_config('fast'))",
            )
        self.memory = Memory(
            past_frames=self.config.past_frames,
            anchor_frames=self.config.anchor_frames,
            older_frames=self.config.older_frames,
            older_interval=self.config.older_interval,
        )

    def step(self, image: Frame | RgbImage, labels: Labels | None = None) -> Labels:
        """Return the labels of the next frame; pass `labels` on any frame to annotate it.

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
            self._extend_space(labels)
            self.kind = labels.kind
        label_map = self.advance(self.steps, image, labels, features=features)
        return self.decode(label_map, labels, image)

    @torch.inference_mode()
    def advance(
        self,
        index: int,
        image: RgbImage,
        labels: Labels | None = None,
        *,
        features: FeatureMap | None = None,
        aggregated: LabelMap | None = None,
    ) -> LabelMap:
        """Return the label map of frame `index`, and add the frame to the memory.

        Pass `features` if the frame is encoded already, and `aggregated` if it is matched with the memory already.
        """
        space = self._require_space()
        self._check_image(index, image)
        features = features or self.frame_encoder.encode(image)
        subcells = self.config.subcells_of(space)
        grid = features.grid.rescaled(*image.shape[:2]).subdivided(subcells)
        packing = packed_like(features.cells, (frame.packing for frame in self.memory))
        if aggregated is None:
            aggregated = aggregate(
                features, list(self.memory), space=space, config=self.config, packing=packing, target=self.target
            )
        device = features.cells.device
        values, known = aggregated.values.to(device), aggregated.known
        annotated = None
        if labels is not None:
            annotated = space.annotated_channels(labels)
            encoded = space.encode(labels, grid).to(device)
            values = combine(encoded, values, annotated_channels=annotated, exclusive=space.exclusive)
            known = known | annotated
        self.image_size = image.shape[:2]
        self.latest = MemoryFrame(index, features, LabelMap(values, known, grid, subcells), annotated, packing)
        self.memory.add(self.latest)
        self._fit_target(self.latest, space)
        self.steps += 1
        return LabelMap(host_tensor(values, "labels"), known, grid, subcells)

    def _fit_target(self, latest: MemoryFrame, space: Space) -> None:
        """Fit the target model where it is due, which is counted from the last annotated frame."""
        if not (self.config.target_weight and space.exclusive and self.memory.anchors):
            return
        since = abs(latest.index - self.memory.anchors[-1].index)
        if since % self.config.target_interval == 0:
            self.target = fit_target(self.memory, None if latest.is_annotated else self.target)

    def decode(self, label_map: LabelMap, labels: Labels | None, image: RgbImage) -> Labels:
        """Decode the label map of an image at its size; `labels`, annotated on this frame, are restored exactly."""
        space = self._require_space()
        decide: Decide = upsample_argmax
        if self.config.guided_filter:
            decide = partial(guided_argmax, image=guide_of(image), subcells=label_map.subcells)
        decoded: Labels = space.decode(label_map.values, label_map.grid, decide)
        return decoded if labels is None else space.restore_annotated(labels, decoded)

    @cached_property
    def frame_encoder(self) -> FrameEncoder:
        """The encoder, with the settings that say how images are resized for it."""
        return FrameEncoder(self.encoder, self.config)

    def snapshot(self) -> Snapshot:
        """Return the state as it is now, for `restore`; later steps do not change it."""
        frames = {frame.index: frame for frame in self.memory}
        return Snapshot(
            tuple(frames.values()),
            tuple(frame.index for frame in self.memory.anchors),
            tuple(frame.index for frame in self.memory.past),
            self.history,
            self.space,
            self.steps,
            self.image_size,
            self.kind,
            self.target,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of a propagator with the same encoder and settings."""
        frames = {frame.index: frame for frame in snapshot.frames}
        self.memory.anchors = [frames[index] for index in snapshot.anchors]
        self.memory.past = [frames[index] for index in snapshot.past]
        self.history = snapshot.history
        self.space = snapshot.space
        self.steps = snapshot.steps
        self.image_size = snapshot.image_size
        self.kind = snapshot.kind
        self.target = snapshot.target
        self.latest = None

    def _encode_live(self, image: RgbImage) -> FeatureMap:
        """Encode in a worker beside the thread that matches, where there is one."""
        encode, worker = self.frame_encoder.encode, self._worker
        return encode(image) if worker is None else worker.submit(encode, image).result()

    @cached_property
    def _worker(self) -> Executor | None:
        return live_worker(self.encoder)  # ends with this object

    def __getstate__(self) -> dict[str, object]:
        """Return everything but the worker: a copy makes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_worker"}

    def _require_space(self) -> Space:
        if self.space is None:
            raise LabelError("no labels were given", remedy="give labels for at least one frame")
        return self.space

    def _extend_space(self, labels: Labels) -> None:
        """Add channels for new objects, which are unknown on the frames already in memory."""
        if self.space is None:
            self.space = type(labels).space([labels])
            return
        extended = self.space.extended(labels)
        extra = extended.channels - self.space.channels
        self.space = extended
        if extra:
            snapshot = self.snapshot()
            frames = tuple(_with_channels(frame, extra) for frame in snapshot.frames)
            target = None if self.target is None else self.target.with_channels(extra)
            self.restore(replace(snapshot, frames=frames, target=target))

    def _check_image(self, index: int, image: RgbImage) -> None:
        height, width, _ = image.shape
        if self.image_size not in (None, (height, width)):
            known_height, known_width = self.image_size or (0, 0)
            raise VideoError(
                f"frame {index} is {width}x{height} but the frames before it are {known_width}x{known_height}",
                remedy="resize the frames to one size, or start a new propagator for each size",
            )

    def _check_labels(self, image: RgbImage, labels: Labels) -> Labels:
        """Return the annotation as it is meant; refuse labels that do not fit the stream."""
        if not isinstance(labels, Labels):
            raise LabelError(
                f"the labels of frame {self.steps} were passed as {type(labels).__name__}",
                remedy="pass tc.Masks.of(array), tc.Masks.read(path) or labels of another kind",
            )
        fitted = fit_sizes({self.steps: labels}, image.shape[0], image.shape[1])
        if self.kind not in (None, labels.kind):
            raise LabelError(
                f"the stream propagates {self.kind} but frame {self.steps} was annotated with {labels.kind}",
                remedy="use one propagator for each kind of labels",
            )
        if self.space is None:
            refuse_empty(fitted)
        return absent_where_empty(fitted, self.space.objects if self.space else ())[self.steps]


def _with_channels(frame: MemoryFrame, extra: int) -> MemoryFrame:
    """Return the frame with `extra` unknown channels."""
    values, known = frame.labels.values, frame.labels.known
    values = torch.cat([values, values.new_zeros(*values.shape[:2], extra)], dim=-1)
    known = torch.cat([known, known.new_zeros(extra)])
    annotated = None if frame.annotated is None else torch.cat([frame.annotated, frame.annotated.new_zeros(extra)])
    return replace(frame, labels=replace(frame.labels, values=values, known=known), annotated=annotated)
