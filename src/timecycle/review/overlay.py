"""The overlay video and the contact sheet of a corrected run, drawn again only where labels changed."""

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from timecycle.labels import Labels
from timecycle.propagation.video import LabelledFrame, Source
from timecycle.runs.folder import OutputFolder
from timecycle.runs.outputs import ContactSheet, OverlayWriter
from timecycle.video import Frame, Video, VideoWriter
from timecycle.video.writer import keyframe_flags, splice

Draw = Callable[[LabelledFrame], None]


@dataclass(eq=False)
class OverlayUpdate:
    """Draws the overlay video and the contact sheet of the run in `folder` into `staged`."""

    folder: OutputFolder
    staged: OutputFolder
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
        self._keys = keyframe_flags(self.folder.overlay)
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
        path = self.staged.path / f"overlay-{first}.mp4"
        with VideoWriter(path, self.video.size, self.video.time_base) as segment:
            yield OverlayWriter(segment, self._sheet).add
        self._segments[first] = path

    def finish(self, names: Mapping[str, str]) -> None:
        """Write overlay.mp4 and contact.png, once all segments, labels and tables are written."""
        if self._whole or not splice(self.folder.overlay, self._segments, self.staged.overlay):
            with VideoWriter(self.staged.overlay, self.video.size, self.video.time_base) as whole:
                writer = OverlayWriter(whole, self._sheet)
                for frame in self.video.frames():
                    writer.add(self._labelled(frame))
        for index in self._sheet.missing:
            labelled = self._labelled(self.video[index])
            self._sheet.add(labelled, labelled.labels.overlay(labelled.image))
        self._sheet.write(self.staged.contact_sheet, self.staged.frames_csv, self.kind, names)

    def _labelled(self, frame: Frame) -> LabelledFrame:
        labels = self.kind.read(self.label_file(frame.number))
        source: Source = "annotated" if frame.index in self.annotated else "propagated"
        return LabelledFrame(
            frame.index, frame.pts, frame.time_seconds, frame.image, labels, source, number=frame.number
        )
