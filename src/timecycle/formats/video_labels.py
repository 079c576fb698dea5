"""The labels of a whole video, which every format is read into and written from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import UInt16

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Labels
from timecycle.labels.file import note
from timecycle.labels.masks import IdLabels
from timecycle.labels.names import check_names
from timecycle.labels.reading import index_of
from timecycle.video import Video

if TYPE_CHECKING:
    LabelsByFrame = Mapping[int, Labels]
else:  # checks of types at run time, as in the tests, would read a frame to look at it
    LabelsByFrame = Mapping

_RATE_TOLERANCE = 0.01  # 29.97 and 30 frames per second are often confused, and differ by 0.1 %
MAX_FRAMES = 10_000_000  # of a file: over 90 hours at 30 frames per second


class Known(NamedTuple):
    """What is known of one object on one frame, beside its labels."""

    confidence: float | None = None
    state: str = ""  # visible, uncertain, occluded, absent or lost
    annotated: bool = False  # by a person, on this very frame


@dataclass(frozen=True, kw_only=True)
class VideoFacts:
    """What is known of a video; None for what is not."""

    name: str = "video"
    frames: int | None = None
    size: tuple[int, int] | None = None  # (height, width)
    fps: float | None = None
    fps_is_assumed: bool = False  # for images, which have no times
    numbers: Sequence[int] | None = None  # of the frames, as their image files are called; None: their indices
    source: Video | None = field(default=None, repr=False, compare=False)  # the video itself, if it is open

    def number(self, index: int) -> int:
        """Return what the video calls a frame."""
        return self.numbers[index] if self.numbers is not None and index < len(self.numbers) else index

    def index(self, number: int) -> int:
        """Return the index of the frame with this number."""
        return index_of(number, self.numbers)


@dataclass(frozen=True, kw_only=True, eq=False)
class VideoLabels:
    """Labels by frame index, in order, with what else a file says of their video and objects.

    `labels` may read each frame only when it is asked for (`LazyLabels`), so that long videos need little memory.
    """

    kind: type[Labels]
    labels: LabelsByFrame
    video: VideoFacts = field(default_factory=VideoFacts)
    names: Mapping[str, str] = field(default_factory=dict)  # of objects that only have numbers
    known: Mapping[int, Mapping[str, Known]] = field(default_factory=dict)

    @property
    def frames(self) -> int:
        """The number of frames of the video; where it is not known, up to the last one with labels."""
        return self.video.frames if self.video.frames is not None else max(self.labels, default=-1) + 1

    def on_video(self, video: VideoFacts) -> "VideoLabels":
        """Return the labels with all facts of a video; refuse a video that they do not fit."""
        check_fits(self, video)
        return replace(self, video=video)


class LazyLabels(Mapping[int, Labels]):
    """Labels by frame index, each made when it is asked for."""

    def __init__(self, indices: Sequence[int], read: Callable[[int], Labels]) -> None:
        self._indices, self._read = dict.fromkeys(sorted(indices)), read

    def __getitem__(self, index: int) -> Labels:
        if index not in self._indices:
            raise KeyError(index)
        return self._read(index)

    def __contains__(self, index: object) -> bool:
        return index in self._indices

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


def facts_of(video: Video) -> VideoFacts:
    """Return everything about an open video."""
    frames = len(video)
    seconds = float((video.pts[-1] - video.pts[0]) * video.time_base) if frames > 1 else 0.0
    mean_fps = (frames - 1) / seconds if seconds else None
    return VideoFacts(
        name=Path(video.name).name,
        frames=frames,
        size=video.size.shape,
        fps=video.assumed_fps or mean_fps,
        fps_is_assumed=video.assumed_fps is not None,
        numbers=video.numbers,
        source=video,
    )


def size_of(labels: VideoLabels) -> tuple[int, int]:
    """Return the (height, width) of the video, or else of the labels; refuse labels of which neither is known."""
    size = labels.video.size or next((one.size() for one in labels.labels.values() if one.size()), None)
    if size is None:
        raise LabelError("the size of the video is not known", remedy="say which video it is: --video VIDEO")
    return size


def ids_of(labels: Labels) -> UInt16[np.ndarray, "height width"]:
    """Return the ids of masks or parts."""
    if not isinstance(labels, IdLabels):
        raise LabelError(f"{labels.kind} have no ids of objects", remedy="convert masks")
    return labels.object_ids.astype(np.uint16)


def points_of(labels: Labels) -> Keypoints:
    """Return keypoints as what they are."""
    if not isinstance(labels, Keypoints):
        raise LabelError(f"{labels.kind} have no points", remedy="convert keypoints")
    return labels


def usable_names(names: Mapping[str, str], file: Path) -> dict[str, str]:
    """Return the names of objects that can be used here; without the others, and with a note about them."""
    usable: dict[str, str] = {}
    for number, name in names.items():
        try:
            usable = check_names({**usable, number: name})
        except LabelError as error:
            note(f"{file}: {error.problem}; the object keeps its number only")
    return usable


def check_fits(labels: VideoLabels, video: VideoFacts) -> None:
    """Refuse labels whose number of frames, size or rate is not that of the video."""
    ours, name = labels.video, labels.video.name
    if ours.frames is not None and video.frames is not None and ours.frames != video.frames:
        raise LabelError(
            f"{name} is of a video of {ours.frames} frames but {video.name} has {video.frames}",
            remedy="give the video that was labelled, not a copy that was cut or converted to another rate",
        )
    last = max(labels.labels, default=0)
    if video.frames is not None and last >= video.frames:
        raise LabelError(
            f"{name} has labels of frame {last} but {video.name} has frames 0 to {video.frames - 1}",
            remedy="give the video that was labelled; frames are counted from 0",
        )
    if ours.size is not None and video.size is not None and ours.size != video.size:
        (height, width), (video_height, video_width) = ours.size, video.size
        raise LabelError(
            f"{name} is of frames of {width}x{height} but {video.name} has {video_width}x{video_height}",
            remedy="give the video that was labelled, at its original size",
        )
    assumed = ours.fps_is_assumed or video.fps_is_assumed
    if ours.fps and video.fps and not assumed and abs(ours.fps / video.fps - 1) > _RATE_TOLERANCE:
        raise LabelError(
            f"{name} is of a video of {ours.fps:.6g} frames per second but {video.name} has {video.fps:.6g}",
            remedy="give the video that was labelled, not a copy at another rate",
        )
