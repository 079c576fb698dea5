"""Labels on some frames of a video in, labels on every frame out, as a stream.

Every object is carried forward from each frame it was drawn on and, with direction `both`, backward too. Between two
drawings the passes are blended (blend.py).
The backward pass runs first and leaves its soft maps on disk, so memory holds only the remembered frames.
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
from torch import Tensor
from typing_extensions import TypeVar

from timecycle.errors import LabelError
from timecycle.grid import Grid
from timecycle.kernel.library import find_kernel
from timecycle.labels.fitting import absent_where_empty, fit_sizes, refuse_empty
from timecycle.labels.keypoints import Keypoints
from timecycle.labels.space import Labels, Space, silence
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.ahead import EncodedFrame, encode_ahead, workers_for
from timecycle.propagation.blend import Blended, Pass, blend
from timecycle.propagation.confidence import UNSEEN, Confidence, TrustConfig
from timecycle.propagation.election import Elected
from timecycle.propagation.evidence import Evidence
from timecycle.propagation.judge import Judge
from timecycle.propagation.nearest import FramePerChannel, NearestAnnotated
from timecycle.propagation.passes import Direction, PassKey, PassMaps
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.spool import FeatureSpool
from timecycle.propagation.state import Carried, Propagation
from timecycle.propagation.trail import Trail, joined
from timecycle.propagation.workfolder import Backward, WorkFolder
from timecycle.video import Frame, Video

_SNAPSHOT_FRAMES = 50  # work lost to an interruption, against about 10 MB written

# Drawn on this frame, carried to it from one side or from both, or unknown: before the first drawing, with nothing
# carried back.
Source = Literal["given", "carried", "blended", "unknown"]


# What a frame is labelled with: whoever propagates Masks gets frames with Masks, which type checkers can follow.
LabelsT_co = TypeVar("LabelsT_co", bound=Labels, covariant=True, default=Labels)


@dataclass(frozen=True, eq=False)
class LabelledFrame(Generic[LabelsT_co]):
    """A frame of the video with its labels."""

    index: int
    pts: int
    time_seconds: float
    image: UInt8[np.ndarray, "height width 3"]
    labels: LabelsT_co
    source: Source
    carried: Carried | None = None  # the soft labels that were decided on; none where they were read back from disk
    confidence: Confidence | None = None  # none where it was not asked for, or nothing is known
    number: int = field(kw_only=True)  # what the video calls the frame: the number of an image file, or the index

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", {self.confidence}"
        at = f"index={self.index}, time_seconds={self.time_seconds:.6g}"
        return f"LabelledFrame({at}, {self.source}, {self.labels}{sure})"


def propagate(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    encoder: Encoder,
    config: PropagateConfig | None = None,
    trust: TrustConfig | None = None,
    work: WorkFolder | None = None,
    maps: PassMaps | None = None,
    on_step: Callable[[], None] | None = None,
    before_snapshot: Callable[[], None] | None = None,
) -> Iterator[LabelledFrame]:
    """Every frame of the video with its labels, in order, as soon as they are known.

    `labels` maps frame numbers to labels of one kind. With `trust` every frame says how far to trust it.
    A `work` folder lets an interrupted run go on: the stream then starts after the last frame of its snapshot, and
    gives what the uninterrupted stream would have given. `maps` keeps what each pass finds; where it has a map of the
    same causes, a frame is not matched again, which changes nothing of what is given. `on_step` is called after every
    frame of either pass, `count_steps` times in all; `before_snapshot` before it is recorded that the frames given so
    far are done with.
    """
    labels = fit_labels(video, labels)  # now, not when the first frame is asked for
    check_trust(labels, trust)

    def run(work: WorkFolder, *, keeps_snapshots: bool) -> Iterator[LabelledFrame]:
        return _Run(
            video=video,
            labels=labels,
            space=space_of(labels),
            encoder=encoder,
            config=config or PropagateConfig(),
            trust=trust,
            work=work,
            maps=maps,
            keeps_snapshots=keeps_snapshots,
            on_step=on_step or (lambda: None),
            before_snapshot=before_snapshot or (lambda: None),
        ).stream()

    return _in_passing(partial(run, keeps_snapshots=False)) if work is None else run(work, keeps_snapshots=True)


def _in_passing(run: Callable[[WorkFolder], Iterator[LabelledFrame]]) -> Iterator[LabelledFrame]:
    """The stream of a run whose work folder is not needed afterwards."""
    folder = tempfile.mkdtemp(prefix="timecycle-")
    remove = weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)  # at the latest when the program ends
    try:
        yield from run(WorkFolder(Path(folder)))
    finally:
        remove()


def check_trust(labels: Mapping[int, Labels], trust: TrustConfig | None) -> None:
    """Refuse to leave out what cannot be left out."""
    if trust is not None and trust.least and space_of(labels).objects == ("frame",):
        raise LabelError(
            "coordinates have no background to put in place of a guess",
            remedy="leave the least confidence at 0, and read the confidence of every pixel",
        )


def check_labels(video: Video, labels: Mapping[int, Labels]) -> dict[int, Labels]:
    """Return the annotations of a video as they are meant, or refuse them before any work is done.

    Beside frames that hold an object, a mask that holds none says that the objects are absent.
    """
    fitted = fit_labels(video, labels)
    refuse_empty(fitted, video.numbers)
    return absent_where_empty(fitted, space_of(fitted).objects, video.numbers)


def fit_labels(video: Video, labels: Mapping[int, Labels]) -> dict[int, Labels]:
    """Return the labels at the video's size; refuse those that cannot belong to this video."""
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
    """The channels that hold everything the frames are labelled with."""
    kinds = {type(given) for given in labels.values()}
    if len(kinds) > 1:
        raise LabelError(
            f"labels of different kinds were given: {', '.join(sorted(kind.kind for kind in kinds))}",
            remedy="propagate one kind at a time",
        )
    return kinds.pop().space([labels[index] for index in sorted(labels)])


def count_steps(
    video: Video, labels: Mapping[int, Labels], config: PropagateConfig, work: WorkFolder | None = None
) -> int:
    """How many frames both passes together still have to go through."""
    last = _last_drawn(labels, config)
    forward = work.next_index("forward") if work else None
    backward = work.next_index("backward") if work else None
    back = 0 if last == 0 else (last if backward is None else backward) + 1
    return len(video) - (forward or 0) + back


def source_of(index: int, labels: Mapping[int, Labels], config: PropagateConfig) -> Source:
    """Where a frame's labels come from."""
    if index in labels:
        return "given"
    if config.direction == "forward":
        return "unknown" if index < min(labels) else "carried"
    return "blended" if min(labels) < index < max(labels) else "carried"


def with_confidence(labels: Labels, confidence: Confidence | None) -> Labels:
    """Points say themselves how sure each is; one that is lost or hidden is not visible. Other labels have no room."""
    if confidence is None or not isinstance(labels, Keypoints):
        return labels
    values = {name: one.value for name, one in confidence.objects.items()}
    unseen = {name for name, one in confidence.objects.items() if one.state in (*UNSEEN, "lost")}
    return labels.with_confidence(values, unseen=unseen)


def _last_drawn(labels: Mapping[int, Labels], config: PropagateConfig) -> int:
    """The frame the backward pass starts from; 0 where there is nothing to carry back."""
    return max(labels) if config.direction == "both" else 0


@dataclass(kw_only=True)
class _Run:
    """One propagation: what stays the same over all its frames."""

    video: Video
    labels: Mapping[int, Labels]
    space: Space
    encoder: Encoder
    config: PropagateConfig
    trust: TrustConfig | None
    work: WorkFolder
    maps: PassMaps | None
    keeps_snapshots: bool
    on_step: Callable[[], None]
    before_snapshot: Callable[[], None]
    _missing: dict[int, Bool[Tensor, " channels"]] = field(default_factory=dict)  # by drawing: what it shows not to be

    def stream(self) -> Iterator[LabelledFrame]:
        last = _last_drawn(self.labels, self.config)
        if last > 0:
            self._go_back(last)
        state, key = self._state("forward"), self._key("forward")
        for frame, features in self._frames(state):
            given = self.labels.get(frame.index)
            backward = self._take_backward(frame.index) if frame.index < last else None
            if features is None:
                carried = self._blank()
            else:
                carried = self._advance(state, frame, features, "forward", key)
                self._follow(state, carried)
                if given is not None:  # later frames are compared with it
                    self._spool.keep(frame.index, features)
            evidence = backward.evidence if backward is not None else None
            trail = state.trail
            if backward is not None:
                blended = self._blend(frame.index, carried, backward)
                carried = replace(carried, soft=blended.soft, knows=carried.knows | backward.knows)
                if trail is not None:
                    trail = joined(trail, backward.trail, self._judge.of_objects(blended.share))
            if features is not None:
                evidence = self._evidence(state, carried, features.grid, trail)
            confidence = self._confidence(frame.index, evidence, carried)
            labels = state.decide(self._without_guesses(carried, confidence), given)
            yield LabelledFrame(
                frame.index,
                frame.pts,
                frame.time_seconds,
                frame.image,
                with_confidence(labels, confidence),
                source_of(frame.index, self.labels, self.config),
                carried,
                confidence,
                number=frame.number,
            )
            # The caller is back, so it has taken this frame; once it is done with it a snapshot may say so.
            if self.keeps_snapshots and (frame.index + 1) % _SNAPSHOT_FRAMES == 0:
                self.before_snapshot()
                self.work.save_snapshot("forward", frame.index + 1, state.snapshot())
            self.work.drop_backward(frame.index - _SNAPSHOT_FRAMES)
            self.on_step()

    def _go_back(self, last: int) -> None:
        """Carry labels from the last labelled frame to the first frame, leaving soft maps in the work folder."""
        start = self.work.next_index("backward")
        if start == -1:
            return
        state, key = self._state("backward"), self._key("backward")
        for encoded in self._encoded(state, self.video.backwards(last if start is None else start)):
            frame = encoded.frame
            carried = self._advance(state, frame, encoded.features, "backward", key)
            self._follow(state, carried)
            alone = frame.index < self._first  # the forward pass knows nothing of it
            evidence = self._evidence(state, carried, encoded.features.grid, state.trail) if alone else None
            if not alone:
                self._spool.keep(frame.index, encoded.features)
            self.work.keep_backward(frame.index, Backward(carried.soft, carried.knows, state.trail, evidence))
            if self.keeps_snapshots and frame.index % _SNAPSHOT_FRAMES == 0:
                self.work.save_snapshot("backward", frame.index - 1, state.snapshot())
            self.on_step()

    def _advance(
        self, state: Propagation, frame: Frame, features: FeatureMap, direction: Direction, key: PassKey
    ) -> Carried:
        """The next step of a pass; without matching where the same was matched before."""
        given = self.labels.get(frame.index)
        if self.maps is None or given is not None:
            return state.advance(frame.index, frame.image, given, features=features)
        now = key.at(frame.index, self._annotation)
        rows, columns, _ = features.cells.shape
        known = self.maps.read(direction, frame.index, now, (rows, columns, self.space.channels))
        carried = state.advance(frame.index, frame.image, features=features, elected=known)
        if known is None:
            self.maps.keep(direction, frame.index, now, Elected(carried.soft, carried.knows))
        return carried

    def _key(self, direction: Direction) -> PassKey:
        encoder, space = f"{self.encoder.sha256} {self.encoder.form}", f"{type(self.space)} {self.space.objects}"
        settings = f"{encoder} {self.config} {space} {self.space.channels} {find_kernel().rounding}"
        return PassKey(direction, settings, self.labels)

    def _annotation(self, index: int) -> bytes:
        """What an annotated frame tells a pass."""
        index_in_whole = index + (self.maps.offset if self.maps is not None else 0)
        soft = self.space.to_soft(self.labels[index], self._grid)
        return f"{index_in_whole} {self._speaks[index].tolist()}".encode() + soft.numpy().tobytes()

    def _frames(self, state: Propagation) -> Iterator[tuple[Frame, FeatureMap | None]]:
        """The frames the forward pass still has to go through; those before the first drawing need no features."""
        start = self.work.next_index("forward") or 0
        first = max(start, self._first)
        for frame in self.video.frames(start, first):
            yield frame, None
        for encoded in self._encoded(state, self.video.frames(first)):
            yield encoded.frame, encoded.features

    def _encoded(self, state: Propagation, frames: Iterator[Frame]) -> Iterator[EncodedFrame]:
        return encode_ahead(frames, state.encode, workers=workers_for(self.encoder), known=self._spool.read)

    def _state(self, name: str) -> Propagation:
        """A state for one pass, with what it remembered when its last snapshot was taken."""
        state = Propagation(self.encoder, self.config, self.space)
        if self.work.next_index(name) is not None:
            encode = lambda index: self._features(index).cells  # noqa: E731
            state.restore(self.work.load_snapshot(name, encode, self.space, len(self.video)))
        return state

    def _features(self, index: int) -> FeatureMap:
        """The features of any frame, encoded once for all who ask again, with a grid over the frame at its own size."""
        features = self._spool.read(index)
        if features is None:
            features = Propagation(self.encoder, self.config, self.space).encode(self.video[index].image)
            self._spool.keep(index, features)
        return replace(features, grid=features.grid.rescaled(self.video.size.height_px, self.video.size.width_px))

    def _take_backward(self, index: int) -> Backward:
        return self.work.take_backward(index, (self._grid.y.cells, self._grid.x.cells, self.space.channels))

    def _blank(self) -> Carried:
        """A frame before the first labelled one, as the forward pass sees it: nothing is known."""
        grid = self._grid
        soft = torch.zeros(grid.y.cells, grid.x.cells, self.space.channels)
        if self.space.exclusive:
            soft[..., 0] = 1
        return Carried(soft, torch.zeros(self.space.channels, dtype=torch.bool), grid)

    def _follow(self, state: Propagation, carried: Carried) -> None:
        if self.trust is not None and state.latest is not None:
            state.trail = self._judge.trail_after(state.latest.index, carried.soft, state.trail)

    def _evidence(self, state: Propagation, carried: Carried, grid: Grid, trail: Trail | None) -> Evidence | None:
        """What speaks for the labels of the frame of the last step; `grid` is that of its features."""
        if trail is None or state.latest is None or self._judge.is_drawn(state.latest.index):
            return None
        return self._judge.evidence(state.latest, carried.soft, trail, state.memory, grid)

    def _confidence(self, index: int, evidence: Evidence | None, carried: Carried) -> Confidence | None:
        if self.trust is None:
            return None
        return self._judge.confidence(index, evidence, carried.grid, knows=carried.knows)

    def _without_guesses(self, carried: Carried, confidence: Confidence | None) -> Carried:
        """The soft labels without objects that are less sure than is asked for. What is remembered keeps them."""
        if self.trust is None or confidence is None or not self.trust.least:
            return carried
        sure = {name for name, one in confidence.objects.items() if one.value >= self.trust.least}
        guessed = torch.tensor([name not in sure for name in self.space.objects])
        return replace(carried, soft=silence(carried.soft, self.space, guessed))

    def _blend(self, index: int, forward: Carried, backward: Backward) -> Blended:
        before, after = self._nearest.around(index)
        return blend(
            Pass(forward.soft, forward.knows, index - before, self._absent(before, forward.grid)),
            Pass(backward.soft, backward.knows, after - index, self._absent(after, forward.grid)),
            exclusive=self.space.exclusive,
        )

    def _absent(self, drawings: FramePerChannel, grid: Grid) -> Bool[Tensor, " channels"]:
        """Which objects are not on the drawing that speaks for each."""
        absent = torch.zeros(self.space.channels, dtype=torch.bool)
        for frame in {int(drawing) for drawing in drawings} & self.labels.keys():
            if frame not in self._missing:
                soft = self.space.to_soft(self.labels[frame], grid)
                self._missing[frame] = self._speaks[frame] & (soft.sum(dim=(0, 1)) == 0)
            absent |= (drawings == frame) & self._missing[frame]
        return absent

    @cached_property
    def _judge(self) -> Judge:
        return Judge(space=self.space, labels=self.labels, encode=self._features, config=self.config)

    @cached_property
    def _spool(self) -> FeatureSpool:
        return FeatureSpool(self.work.path / "features")

    @cached_property
    def _first(self) -> int:
        return min(self.labels)

    @cached_property
    def _speaks(self) -> dict[int, Bool[Tensor, " channels"]]:
        return {frame: self.space.speaks(given) for frame, given in self.labels.items()}

    @cached_property
    def _nearest(self) -> NearestAnnotated:
        return NearestAnnotated.of(self._speaks)

    @cached_property
    def _grid(self) -> Grid:
        return self._features(self._first).grid
