"""A finished run, opened from its output folder to look at its results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from timecycle.display import Displayed
from timecycle.errors import LabelError
from timecycle.labels import KINDS, Labels
from timecycle.runs.folder import OutputFolder
from timecycle.runs.history import replaced_file
from timecycle.runs.tables import FrameRow, ObjectRow
from timecycle.video import Video

Table = TypeVar("Table")


class Run(Displayed):
    """A finished run in its output folder: `Run("out")`, or what `propagate_to_folder` returns.

    `folder` is the path of an output folder. Nothing is held in memory but tables; labels are read when they are asked
    for, and after corrections they are the corrected ones. With `unfinished`, a run that is not finished is read too;
    it has the frames that are written so far.
    """

    def __init__(self, folder: str | Path, *, unfinished: bool = False) -> None:
        self.folder = Path(folder)
        self._unfinished = unfinished
        self._files = OutputFolder(self.folder)
        self._files.refuse_links()
        _ = self.record
        self._tables: dict[Path, tuple[tuple[int, int], Any]] = {}  # with the time and size of their files

    def __repr__(self) -> str:
        name = str(self.folder) if len(str(self.folder)) <= 80 else f"...{str(self.folder)[-79:]}"
        return f"Run({name!r}, {len(self)} frames, {len(self.frames_to_review)} to review)"

    def __len__(self) -> int:
        """The number of frames of the video."""
        return len(self.frames)

    @property
    def record(self) -> Mapping[str, Any]:
        """The record of the run, run.json: settings, checksums and versions."""
        return self._files.read_record() if self._unfinished else self._files.finished_record()

    @property
    def frames(self) -> Sequence[FrameRow]:
        """One row per frame: index, number, time_seconds, source, confidence and state, as in frames.csv."""
        return self._table(self._files.frames_csv, partial(self._files.frames, growing=self._growing))

    @property
    def confidence(self) -> Mapping[int, Mapping[str, ObjectRow]]:
        """The confidence and state of every object by frame index and object, as in objects.csv.

        Empty if confidence was not estimated.
        """
        return self._table(self._files.objects_csv, partial(self._files.objects, growing=self._growing))

    @property
    def frames_to_review(self) -> list[int]:
        """The indexes of the frames whose labels are uncertain or lost, in order; `check` ranks them."""
        return [frame.index for frame in self.frames if frame.needs_review]

    @property
    def labels(self) -> Mapping[int, Labels]:
        """The labels by frame index, each read from its file when it is asked for."""
        kind = KINDS[self.record["labels"]["kind"]]
        return _LabelFiles(self._files, [frame.number for frame in self.frames], kind)

    def label_file(self, index: int) -> Path:
        """Return the path of a frame's label file."""
        kind = KINDS[self.record["labels"]["kind"]]
        frames = self.frames
        if not 0 <= index < len(frames):
            raise _no_labels(self.folder, index, len(frames))
        return self._files.label_file(frames[index].number, kind)

    def replaced_label_file(self, index: int) -> Path | None:
        """Return the label file that the last correction replaced; None where it left the frame as it was."""
        return replaced_file(self._files, self.label_file(index))

    @property
    def _growing(self) -> bool:
        return self._unfinished and self.record["status"] != "finished"

    @cached_property
    def video(self) -> Video:
        """The video that was labelled, opened where it was found then."""
        return self._files.open_video()

    @property
    def overlay(self) -> Path:
        """The overlay video, overlay.mp4."""
        return self._files.overlay

    def show(self) -> Image.Image:
        """Return the contact sheet: about twelve frames with their labels."""
        with Image.open(self._files.contact_sheet) as image:
            return image.convert("RGB")

    def _table(self, path: Path, read: Callable[[], Table]) -> Table:
        """Read a table again only if its file has changed, as corrections change it."""
        stat = path.stat() if path.is_file() else None
        stamp = (stat.st_mtime_ns, stat.st_size) if stat else (0, 0)
        if path not in self._tables or self._tables[path][0] != stamp:
            self._tables[path] = (stamp, read())
        table: Table = self._tables[path][1]
        return table


class _LabelFiles(Mapping[int, Labels]):
    """Label files by frame index."""

    def __init__(self, files: OutputFolder, numbers: Sequence[int], kind: type[Labels]) -> None:
        self._files, self._numbers, self._kind = files, numbers, kind

    def __getitem__(self, index: int) -> Labels:
        if not 0 <= index < len(self):
            raise _no_labels(self._files.path, index, len(self))
        return self._files.read_labels(self._numbers[index], self._kind)

    def __contains__(self, index: object) -> bool:
        return index in range(len(self))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"<{self._kind.kind} of {len(self)} frames in {str(self._files.labels)!r}, read when asked for>"


def _no_labels(folder: Path, index: int, frames: int) -> LabelError:
    return LabelError(f"{folder} has no labels of frame {index}", remedy=f"ask for an index from 0 to {frames - 1}")
