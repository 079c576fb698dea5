"""Contents of an output folder: label and confidence files, the overlay video and the contact sheet."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from timecycle.confidence.fusion import Confidence
from timecycle.files import atomic_write
from timecycle.labels import Labels
from timecycle.labels.drawing import RGB
from timecycle.propagation.video import LabelledFrame, Source
from timecycle.render import Captioned, Picture, contact_sheet, save_picture, thumbnail
from timecycle.video import Frame, Video, VideoWriter
from timecycle.video.writer import keyframe_flags, splice

_CONTACT_FRAMES = 12

Draw = Callable[[LabelledFrame], None]
LabelFiles = Literal["palette", "grey"]  # how mask files are written: PNGs with a palette, or plain grey ones


def write_labels(path: Path, labels: Labels, label_files: LabelFiles) -> None:
    """Write the label file of one frame; `label_files` concerns masks with ids up to 255 only."""
    if label_files == "grey":
        labels.write_grey(path)
    else:
        labels.write(path)


def write_confidence(path: Path, confidence: Confidence) -> None:
    """Write the confidence of a frame as a grey image: one pixel per feature cell, 255 for confidence 1."""
    grey = (confidence.cells * 255).round().byte().numpy()
    with atomic_write(path) as file:
        Image.fromarray(grey).save(file, format="PNG")


class ContactSheet:
    """A sheet of small pictures of a few frames over the video, annotated ones among them, with a legend."""

    def __init__(self, frames: int, annotated: Iterable[int] = ()) -> None:
        self._wanted = _sheet_frames(frames, sorted(annotated))
        self._pictures: dict[int, Picture] = {}
        self._legends: dict[int, dict[str, RGB]] = {}

    @property
    def missing(self) -> list[int]:
        """The frames that are still to be added, in order."""
        return sorted(self._wanted - self._pictures.keys())

    def add(self, labelled: LabelledFrame, picture: Picture) -> None:
        """Add the picture of a frame if the sheet shows that frame."""
        if labelled.index in self._wanted:
            self._pictures[labelled.index] = thumbnail(picture)
            self._legends[labelled.index] = labelled.labels.legend()

    def write(self, path: Path, frames_csv: Path, kind: type[Labels], names: Mapping[str, str]) -> None:
        """Write the sheet; its captions come from frames.csv, which a resumed run has in full."""
        captioned = _captioned(frames_csv, self._pictures)
        sheet = [captioned[index] for index in sorted(self._pictures)]
        colours = {name: colour for _, legend in sorted(self._legends.items()) for name, colour in legend.items()}
        legend = {kind.display_name(name, names): colour for name, colour in colours.items()}
        save_picture(path, contact_sheet(sheet, legend=legend))


def _captioned(frames_csv: Path, pictures: Mapping[int, Picture]) -> dict[int, Captioned]:
    captioned = {}
    with frames_csv.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            index = int(row["index"])
            if index in pictures:
                annotated = row["source"] == "annotated"
                confidence = f"confidence {float(row['confidence']):.2f}" if row["confidence"] else "confidence unknown"
                frame = (f"frame {row['frame_number']}", f"{float(row['time_seconds']):.2f} s")
                caption = "   ".join((*frame, "annotated" if annotated else confidence))
                captioned[index] = Captioned(pictures[index], caption, framed=annotated)
    return captioned


def _sheet_frames(frames: int, annotated: Sequence[int]) -> set[int]:
    """Choose evenly spaced frames; the first few annotated frames replace the chosen frames nearest to them."""
    wanted = sorted({round(index) for index in np.linspace(0, frames - 1, min(frames, _CONTACT_FRAMES))})
    free = set(wanted) - set(annotated)
    for index in annotated[: _CONTACT_FRAMES // 2]:
        if index not in wanted and free:
            nearest = min(free, key=lambda one: (abs(one - index), one))
            free.remove(nearest)
            wanted[wanted.index(nearest)] = index
    return set(wanted)


def draw_overlay(video: VideoWriter, sheet: ContactSheet, labelled: LabelledFrame) -> None:
    """Draw the next frame of the overlay video, and show it to the contact sheet.

    Annotated frames become key frames, so that a correction can replace those between.
    """
    picture = labelled.labels.overlay(labelled.image)
    video.write(picture, labelled.pts, key=labelled.source == "annotated")
    sheet.add(labelled, picture)


@dataclass(eq=False)
class OverlayUpdate:
    """The overlay video and the contact sheet of a corrected run, drawn again only where labels changed."""

    overlay: Path  # as it was before
    staging: Path  # folder for the segments
    video: Video
    kind: type[Labels]
    annotated: Set[int]
    label_file: Callable[[int], Path]  # of a frame number, staged or not
    _sheet: ContactSheet = field(init=False)
    _keys: list[bool] = field(init=False)  # which frames of the overlay video are key frames
    _segments: dict[int, Path] = field(init=False, default_factory=dict)  # by their first frame
    _whole: bool = field(init=False)  # whether the whole overlay video has to be drawn again

    def __post_init__(self) -> None:
        self._sheet = ContactSheet(len(self.video), self.annotated)
        self._keys = keyframe_flags(self.overlay)
        self._whole = len(self._keys) != len(self.video)

    @contextmanager
    def segment(self, first: int, last: int) -> Iterator[Draw]:
        """Yield a function that draws the frames from `first` to `last`, in order."""
        # What follows must not depend on what is replaced. It starts with an annotated frame, which is a key frame in
        # every overlay video that a run wrote.
        if self._whole or not (last + 1 == len(self.video) or self._keys[last + 1]):
            self._whole = True
            yield lambda _: None
            return
        path = self.staging / f"overlay-{first}.mp4"
        with VideoWriter(path, self.video.size, self.video.time_base) as segment:
            yield partial(draw_overlay, segment, self._sheet)
        self._segments[first] = path

    def finish(self, overlay: Path) -> ContactSheet:
        """Write the overlay video, once all segments and labels are written; returns the contact sheet."""
        if self._whole or not splice(self.overlay, self._segments, overlay):
            with VideoWriter(overlay, self.video.size, self.video.time_base) as whole:
                for frame in self.video.frames():
                    draw_overlay(whole, self._sheet, self._labelled(frame))
        for index in self._sheet.missing:
            labelled = self._labelled(self.video[index])
            self._sheet.add(labelled, labelled.labels.overlay(labelled.image))
        return self._sheet

    def _labelled(self, frame: Frame) -> LabelledFrame:
        labels = self.kind.read(self.label_file(frame.number))
        source: Source = "annotated" if frame.index in self.annotated else "propagated"
        return LabelledFrame(
            frame.index, frame.pts, frame.time_seconds, frame.image, labels, source, number=frame.number
        )
