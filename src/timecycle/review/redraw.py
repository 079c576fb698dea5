"""The overlay video and the contact sheet of a run, drawn again only where labels changed."""

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from timecycle.labels import Labels
from timecycle.outputs import ContactSheet, Show, label_path
from timecycle.propagation.propagate import LabelledFrame, Source
from timecycle.render import overlay
from timecycle.video import Frame, Video, VideoWriter
from timecycle.video.splice import key_frames, splice

Draw = Callable[[LabelledFrame], None]


@dataclass(eq=False)
class Redraw:
    """Draws into `aside`; labels that are not there are those of the run in `folder`."""

    folder: Path
    aside: Path
    video: Video
    kind: type[Labels]
    annotated: Set[int]
    _sheet: ContactSheet = field(init=False)
    _keys: list[bool] = field(init=False)  # of the overlay video as it is
    _segments: dict[int, Path] = field(init=False, default_factory=dict)  # by their first frame
    _whole: bool = field(init=False)  # whether the overlay video has to be drawn from its first frame to its last

    def __post_init__(self) -> None:
        self._sheet = ContactSheet(len(self.video), self.annotated)
        self._keys = key_frames(self.folder / "overlay.mp4")
        self._whole = len(self._keys) != len(self.video)

    @contextmanager
    def span(self, first: int, last: int) -> Iterator[Draw]:
        """Gives what draws the frames from `first` to `last`, in order."""
        # What follows must not depend on what is replaced. It starts with an annotated frame, which is a key frame in
        # every overlay video that was not made by someone else.
        if self._whole or not (last + 1 == len(self.video) or self._keys[last + 1]):
            self._whole = True
            yield lambda _: None
            return
        path = self.aside / f"overlay-{first}.mp4"
        with VideoWriter(path, self.video.size, self.video.time_base) as movie:
            yield Show(movie, self._sheet).add
        self._segments[first] = path

    def finish(self, names: Mapping[str, str]) -> None:
        """Write overlay.mp4 and contact.png, once all spans are drawn and labels and tables are written."""
        path = self.aside / "overlay.mp4"
        if self._whole or not splice(self.folder / "overlay.mp4", self._segments, path):
            with VideoWriter(path, self.video.size, self.video.time_base) as movie:
                show = Show(movie, self._sheet)
                for frame in self.video.frames():
                    show.add(self._labelled(frame))
        for index in self._sheet.missing:
            labelled = self._labelled(self.video[index])
            self._sheet.add(labelled, overlay(labelled.image, labelled.labels))
        self._sheet.write(self.aside, self.kind, names)

    def _labelled(self, frame: Frame) -> LabelledFrame:
        new, old = (label_path(place / "labels", frame.number, self.kind) for place in (self.aside, self.folder))
        labels = self.kind.read(new if new.is_file() else old)
        source: Source = "given" if frame.index in self.annotated else "carried"
        return LabelledFrame(
            frame.index, frame.pts, frame.time_seconds, frame.image, labels, source, number=frame.number
        )
