"""Propagate the annotations of some frames to every frame of a video, as a stream.

Every object is propagated forward from each frame it is annotated on and, with direction `both`, backward too. Between
two annotated frames the passes are blended (blend.py). The backward pass runs first and leaves its label maps on disk,
so only the memory bank is held in memory.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Generic, Literal

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from PIL import Image
from torch import Tensor
from typing_extensions import TypeVar

from timecycle.confidence.estimator import ConfidenceEstimator
from timecycle.confidence.fusion import UNSEEN, Confidence, ConfidenceConfig
from timecycle.confidence.history import History, blend_histories
from timecycle.confidence.signals import Signals
from timecycle.display import Displayed
from timecycle.errors import LabelError
from timecycle.grid import Grid
from timecycle.kernel.library import find_kernel
from timecycle.labels.fitting import absent_where_empty, fit_sizes, refuse_empty
from timecycle.labels.label_map import LabelMap
from timecycle.labels.space import Labels, Space, remove_objects
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.blend import Pass, PerChannel, blend
from timecycle.propagation.frame_encoder import FrameEncoder
from timecycle.propagation.memory import memory_signals
from timecycle.propagation.nearest import FramePerChannel, NearestAnnotated
from timecycle.propagation.pass_cache import Direction, PassCache, PassKey
from timecycle.propagation.prefetch import EncodedFrame, encoding_workers, prefetch_features
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.spool import FeatureSpool
from timecycle.propagation.workfolder import BackwardFrame, WorkFolder
from timecycle.video import Frame, Video

_SNAPSHOT_FRAMES = 50  # work lost to an interruption, against about 10 MB written

# Annotated on this frame, propagated to it from one side or blended from both, or unknown: before the first annotated
# frame, if nothing is propagated backward.
Source = Literal["annotated", "propagated", "blended", "unknown"]


# What a frame is labelled with: whoever propagates Masks gets frames with Masks, which type checkers can follow.
LabelsT_co = TypeVar("LabelsT_co", bound=Labels, covariant=True, default=Labels)


@dataclass(frozen=True, eq=False)
class LabelledFrame(Displayed, Generic[LabelsT_co]):
    """A frame of the video with its labels; `source` says where they come from."""

    index: int
    pts: int
    time_seconds: float
    image: UInt8[np.ndarray, "height width 3"]
    labels: LabelsT_co
    source: Source
    label_map: LabelMap | None = None  # the soft labels; None if the labels were read back from disk
    confidence: Confidence | None = None  # None if it was not asked for, or nothing is known
    number: int = field(kw_only=True)  # what the video calls the frame: the number of an image file, or the index

    def __repr__(self) -> str:
        confidence = "None" if self.confidence is None else f"{self.confidence.value:.2f}"
        at = f"index={self.index}, time_seconds={self.time_seconds:.6g}"
        return f"LabelledFrame({at}, labels={self.labels}, confidence={confidence}, source={self.source!r})"

    def show(self) -> Image.Image:
        """Return the frame with its labels drawn over it."""
        return self.labels.show(self.image)


def propagate(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    encoder: Encoder,
    config: PropagateConfig | None = None,
    confidence: ConfidenceConfig | None = None,
    work: WorkFolder | None = None,
    cache: PassCache | None = None,
    on_step: Callable[[], None] | None = None,
    before_snapshot: Callable[[], None] | None = None,
) -> Iterator[LabelledFrame]:
    """Yield every frame of the video with its labels, in order, as soon as they are known.

    `labels` maps frame indices to annotations of one kind. With `confidence`, the confidence of every frame is
    estimated. A `work` folder lets an interrupted run resume: the stream then starts after the last frame of its
    snapshot, and yields what the uninterrupted stream would have yielded. `cache` keeps the label maps of each pass; a
    frame with a cached map of the same inputs is not matched again, which does not change the result. `on_step` is
    called after every frame of either pass, `count_steps` times in all; `before_snapshot` is called before a snapshot
    records that all frames yielded so far are done with.
    """
    labels = fit_labels(video, labels)  # now, not when the first frame is asked for
    check_min_confidence(labels, confidence)

    def run(work: WorkFolder, *, keeps_snapshots: bool) -> Iterator[LabelledFrame]:
        return _Run(
            video=video,
            labels=labels,
            space=space_of(labels),
            encoder=encoder,
            config=config or PropagateConfig(),
            confidence=confidence,
            work=work,
            cache=cache,
            keeps_snapshots=keeps_snapshots,
            on_step=on_step or (lambda: None),
            before_snapshot=before_snapshot or (lambda: None),
        ).stream()

    return (
        _in_temporary_folder(partial(run, keeps_snapshots=False)) if work is None else run(work, keeps_snapshots=True)
    )


def _in_temporary_folder(run: Callable[[WorkFolder], Iterator[LabelledFrame]]) -> Iterator[LabelledFrame]:
    """Stream a run whose work folder is removed afterwards."""
    folder = tempfile.mkdtemp(prefix="timecycle-")
    remove = weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)  # at the latest when the program ends
    try:
        yield from run(WorkFolder(Path(folder)))
    finally:
        remove()


def check_min_confidence(labels: Mapping[int, Labels], confidence: ConfidenceConfig | None) -> None:
    """Refuse a minimum confidence for labels that cannot be left out."""
    if confidence is not None and confidence.min_confidence and space_of(labels).objects == ("frame",):
        raise LabelError(
            "coordinates have no background that could replace uncertain ones",
            remedy="leave min_confidence at 0, and use the confidence of every pixel",
        )


def check_labels(video: Video, labels: Mapping[int, Labels]) -> dict[int, Labels]:
    """Return the annotations of a video as they are meant, or refuse them before any work is done.

    Beside frames that hold an object, a mask without any object says that the objects are absent.
    """
    fitted = fit_labels(video, labels)
    refuse_empty(fitted, video.numbers)
    return absent_where_empty(fitted, space_of(fitted).objects, video.numbers)


def fit_labels(video: Video, labels: Mapping[int, Labels]) -> dict[int, Labels]:
    """Resize the labels to the video's size; refuse those that cannot belong to this video."""
    if not labels:
        raise LabelError("no labels were given", remedy="give labels for at least one frame")
    for index in labels:
        if not 0 <= index < len(video):
            raise LabelError(
                f"labels were given for frame {index} but {video.name} has frames 0 to {len(video) - 1}",
                remedy="number frames from 0 in the order they are shown",
            )
    space_of(labels)
    return fit_sizes(labels, video.size.height_px, video.size.width_px, video.numbers)


def space_of(labels: Mapping[int, Labels]) -> Space:
    """Return the channels that hold all objects of the annotated frames."""
    kinds = {type(annotation) for annotation in labels.values()}
    if len(kinds) > 1:
        raise LabelError(
            f"labels of different kinds were given: {', '.join(sorted(kind.kind for kind in kinds))}",
            remedy="propagate one kind at a time",
        )
    return kinds.pop().space([labels[index] for index in sorted(labels)])


def count_steps(
    video: Video, labels: Mapping[int, Labels], config: PropagateConfig, work: WorkFolder | None = None
) -> int:
    """Count the frames that both passes together still have to process."""
    last = _last_annotated(labels, config)
    forward = work.next_index("forward") if work else None
    backward = work.next_index("backward") if work else None
    backward_steps = 0 if last == 0 else (last if backward is None else backward) + 1
    return len(video) - (forward or 0) + backward_steps


def source_of(index: int, labels: Mapping[int, Labels], config: PropagateConfig) -> Source:
    """Return where a frame's labels come from."""
    if index in labels:
        return "annotated"
    if config.direction == "forward":
        return "unknown" if index < min(labels) else "propagated"
    return "blended" if min(labels) < index < max(labels) else "propagated"


def with_confidence(labels: Labels, confidence: Confidence | None) -> Labels:
    """Add the confidence to keypoints, and hide those that are lost or occluded; other labels stay as they are."""
    if confidence is None:
        return labels
    values = {name: one.value for name, one in confidence.objects.items()}
    unseen = {name for name, one in confidence.objects.items() if one.state in (*UNSEEN, "lost")}
    return labels.with_confidence(values, unseen=unseen)


def _last_annotated(labels: Mapping[int, Labels], config: PropagateConfig) -> int:
    """Return the frame at which the backward pass starts; 0 if there is no backward pass."""
    return max(labels) if config.direction == "both" else 0


@dataclass(kw_only=True)
class _Run:
    """One propagation: what stays the same over all its frames."""

    video: Video
    labels: Mapping[int, Labels]
    space: Space
    encoder: Encoder
    config: PropagateConfig
    confidence: ConfidenceConfig | None
    work: WorkFolder
    cache: PassCache | None
    keeps_snapshots: bool
    on_step: Callable[[], None]
    before_snapshot: Callable[[], None]
    _absent_on: dict[int, Bool[Tensor, " channels"]] = field(default_factory=dict)  # by annotated frame

    def stream(self) -> Iterator[LabelledFrame]:
        last = _last_annotated(self.labels, self.config)
        if last > 0:
            self._propagate_backward(last)
        propagator, key = self._propagator("forward"), self._key("forward")
        for frame, features in self._frames():
            annotation = self.labels.get(frame.index)
            backward = self._read_backward(frame.index) if frame.index < last else None
            if features is None:
                label_map = self._unknown()
            else:
                label_map = self._advance(propagator, frame, features, "forward", key)
                self._update_history(propagator, label_map)
                if annotation is not None:  # later frames are compared with it
                    self._spool.write(frame.index, features)
            signals = backward.signals if backward is not None else None
            history = propagator.history
            if backward is not None:
                label_map, share = self._blend(frame.index, label_map, backward.labels)
                if history is not None:
                    history = blend_histories(history, backward.history, self._estimator.per_object(share))
            if features is not None:
                signals = self._signals(propagator, label_map, history, frame)
            confidence = self._estimate(frame.index, signals, label_map)
            labels = propagator.decode(self._without_uncertain(label_map, confidence), annotation, frame.image)
            yield LabelledFrame(
                frame.index,
                frame.pts,
                frame.time_seconds,
                frame.image,
                with_confidence(labels, confidence),
                source_of(frame.index, self.labels, self.config),
                label_map,
                confidence,
                number=frame.number,
            )
            # The caller is back, so it has taken this frame; once it is done with it a snapshot may say so.
            if self.keeps_snapshots and (frame.index + 1) % _SNAPSHOT_FRAMES == 0:
                self.before_snapshot()
                self.work.save_snapshot("forward", frame.index + 1, propagator.snapshot())
            self.work.drop_backward(frame.index - _SNAPSHOT_FRAMES)
            self.on_step()

    def _propagate_backward(self, last: int) -> None:
        """Propagate from the last annotated frame to the first frame, leaving label maps in the work folder."""
        start = self.work.next_index("backward")
        if start == -1:
            return
        propagator, key = self._propagator("backward"), self._key("backward")
        for encoded in self._encoded(self.video.backwards(last if start is None else start)):
            frame = encoded.frame
            label_map = self._advance(propagator, frame, encoded.features, "backward", key)
            self._update_history(propagator, label_map)
            backward_only = frame.index < self._first
            signals = self._signals(propagator, label_map, propagator.history, frame) if backward_only else None
            if not backward_only:
                self._spool.write(frame.index, encoded.features)
            self.work.write_backward(frame.index, BackwardFrame(label_map, propagator.history, signals))
            if self.keeps_snapshots and frame.index % _SNAPSHOT_FRAMES == 0:
                self.work.save_snapshot("backward", frame.index - 1, propagator.snapshot())
            self.on_step()

    def _advance(
        self, propagator: Propagator, frame: Frame, features: FeatureMap, direction: Direction, key: PassKey
    ) -> LabelMap:
        """Process the next frame of a pass, without matching if its label map is cached."""
        annotation = self.labels.get(frame.index)
        if self.cache is None or annotation is not None:
            return propagator.advance(frame.index, frame.image, annotation, features=features)
        frame_key = key.at(frame.index, self._annotation_bytes)
        cached = self.cache.read(direction, frame.index, frame_key, self._label_grid, self.space.channels)
        label_map = propagator.advance(frame.index, frame.image, features=features, aggregated=cached)
        if cached is None:
            self.cache.write(direction, frame.index, frame_key, label_map)
        return label_map

    def _key(self, direction: Direction) -> PassKey:
        encoder, space = f"{self.encoder.sha256} {self.encoder.description}", f"{type(self.space)} {self.space.objects}"
        settings = f"{encoder} {self.config} {space} {self.space.channels} {find_kernel().rounding}"
        return PassKey(direction, settings, self.labels)

    def _annotation_bytes(self, index: int) -> bytes:
        """Serialise what an annotated frame contributes to a pass."""
        index_in_video = index + (self.cache.offset if self.cache is not None else 0)
        values = self.space.encode(self.labels[index], self._label_grid)
        return f"{index_in_video} {self._annotated_channels[index].tolist()}".encode() + values.numpy().tobytes()

    def _frames(self) -> Iterator[tuple[Frame, FeatureMap | None]]:
        """Yield the frames of the forward pass; those before the first annotated frame need no features."""
        start = self.work.next_index("forward") or 0
        first = max(start, self._first)
        for frame in self.video.frames(start, first):
            yield frame, None
        for encoded in self._encoded(self.video.frames(first)):
            yield encoded.frame, encoded.features

    def _encoded(self, frames: Iterator[Frame]) -> Iterator[EncodedFrame]:
        workers = encoding_workers(self.encoder)
        return prefetch_features(frames, self._frame_encoder.encode, workers=workers, known=self._spool.read)

    def _propagator(self, name: str) -> Propagator:
        """Return the propagator of one pass, restored from its last snapshot."""
        propagator = Propagator(self.encoder, self.config, self.space)
        if self.work.next_index(name) is not None:
            propagator.restore(
                self.work.load_snapshot(name, self._features, self.space, len(self.video), self._subcells)
            )
        return propagator

    def _features(self, index: int) -> FeatureMap:
        """Return the features of any frame, encoded once, with the grid of the frame at its own size."""
        features = self._spool.read(index)
        if features is None:
            features = self._frame_encoder.encode(self.video[index].image)
            self._spool.write(index, features)
        return replace(features, grid=features.grid.rescaled(self.video.size.height_px, self.video.size.width_px))

    def _read_backward(self, index: int) -> BackwardFrame:
        backward = self.work.read_backward(index, self._label_grid, self.space.channels)
        return replace(backward, labels=replace(backward.labels, subcells=self._subcells))

    def _unknown(self) -> LabelMap:
        """Return the label map of the forward pass before the first annotated frame."""
        grid = self._label_grid
        values = torch.zeros(grid.y.cells, grid.x.cells, self.space.channels)
        if self.space.exclusive:
            values[..., 0] = 1
        return LabelMap(values, torch.zeros(self.space.channels, dtype=torch.bool), grid, self._subcells)

    def _update_history(self, propagator: Propagator, label_map: LabelMap) -> None:
        if self.confidence is not None and propagator.latest is not None:
            history = self._estimator.history_after(propagator.latest.index, label_map, propagator.history)
            propagator.history = history

    def _signals(
        self, propagator: Propagator, label_map: LabelMap, history: History | None, frame: Frame
    ) -> Signals | None:
        """Compute the signals of the propagator's latest frame; None where they are not needed."""
        latest = propagator.latest
        if history is None or latest is None or self._estimator.is_fully_annotated(latest.index):
            return None
        return memory_signals(
            self._estimator,
            latest,
            label_map,
            memory=propagator.memory,
            history=history,
            config=self.config,
            image=frame.image,
        )

    def _estimate(self, index: int, signals: Signals | None, label_map: LabelMap) -> Confidence | None:
        if self.confidence is None:
            return None
        return self._estimator.confidence(index, signals, self._grid, known=label_map.known)

    def _without_uncertain(self, label_map: LabelMap, confidence: Confidence | None) -> LabelMap:
        """Remove objects below the minimum confidence from what is decoded; the memory keeps them."""
        if self.confidence is None or confidence is None or not self.confidence.min_confidence:
            return label_map
        minimum = self.confidence.min_confidence
        confident = {name for name, one in confidence.objects.items() if one.value >= minimum}
        uncertain = torch.tensor([name not in confident for name in self.space.objects])
        return replace(label_map, values=remove_objects(label_map.values, self.space, uncertain))

    def _blend(self, index: int, forward: LabelMap, backward: LabelMap) -> tuple[LabelMap, PerChannel]:
        before, after = self._nearest.around(index)
        return blend(
            Pass(forward, index - before, self._absent(before, forward.grid)),
            Pass(backward, after - index, self._absent(after, forward.grid)),
            exclusive=self.space.exclusive,
        )

    def _absent(self, annotated: FramePerChannel, grid: Grid) -> Bool[Tensor, " channels"]:
        """Return which channels are annotated as absent on the annotated frame that applies to each."""
        absent = torch.zeros(self.space.channels, dtype=torch.bool)
        for frame in {int(index) for index in annotated} & self.labels.keys():
            if frame not in self._absent_on:
                values = self.space.encode(self.labels[frame], grid)
                self._absent_on[frame] = self._annotated_channels[frame] & (values.sum(dim=(0, 1)) == 0)
            absent |= (annotated == frame) & self._absent_on[frame]
        return absent

    @cached_property
    def _estimator(self) -> ConfidenceEstimator:
        return ConfidenceEstimator(
            space=self.space, labels=self.labels, encode=self._features, sharpening=self.config.sharpening
        )

    @cached_property
    def _frame_encoder(self) -> FrameEncoder:
        return FrameEncoder(self.encoder, self.config)

    @cached_property
    def _spool(self) -> FeatureSpool:
        return FeatureSpool(self.work.path / "features")

    @cached_property
    def _first(self) -> int:
        return min(self.labels)

    @cached_property
    def _annotated_channels(self) -> dict[int, Bool[Tensor, " channels"]]:
        return {frame: self.space.annotated_channels(annotation) for frame, annotation in self.labels.items()}

    @cached_property
    def _nearest(self) -> NearestAnnotated:
        return NearestAnnotated.of(self._annotated_channels)

    @cached_property
    def _grid(self) -> Grid:
        """The grid of the feature cells over the frames at their own size."""
        return self._features(self._first).grid

    @cached_property
    def _label_grid(self) -> Grid:
        return self._grid.subdivided(self._subcells)

    @cached_property
    def _subcells(self) -> int:
        return self.config.subcells_of(self.space)
