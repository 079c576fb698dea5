"""A finished run, opened from its output folder to look at its results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from timecycle.display import Displayed
from timecycle.errors import LabelError
from timecycle.labels import KINDS, Labels
from timecycle.runs.folder import OutputFolder
from timecycle.runs.tables import FrameRow, ObjectRow
from timecycle.video import Video

Table = TypeVar("Table")


class Run(Displayed):
    """A finished run in its output folder: `Run("out")`, or what `propagate_to_folder` returns.

    `folder` is the path of an output folder. Nothing is held in memory but tables; labels are read when they are asked
    for, and after corrections they are the corrected ones.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._files = OutputFolder(self.folder)
        self._files.refuse_links()
        self._files.finished_record()
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
        return self._files.finished_record()

    @property
    def frames(self) -> Sequence[FrameRow]:
        """One row per frame: index, number, time_seconds, source, confidence and state, as in frames.csv."""
        return self._table(self._files.frames_csv, self._files.frames)

    @property
    def confidence(self) -> Mapping[int, Mapping[str, ObjectRow]]:
        """The confidence and state of every object by frame index and object, as in objects.csv.

        Empty if confidence was not estimated.
        """
        return self._table(self._files.objects_csv, self._files.objects)

    @property
    def frames_to_review(self) -> list[int]:
        """The indexes of the frames whose labels are uncertain or lost, in order; `check` ranks them."""
        return [frame.index for frame in self.frames if frame.needs_review]

    @property
    def labels(self) -> Mapping[int, Labels]:
        """The labels by frame index, each read from its file when it is asked for."""
        kind = KINDS[self.record["labels"]["kind"]]
        return _LabelFiles(self._files, [frame.number for frame in self.frames], kind)

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
            raise LabelError(
                f"{self._files.path} has no labels of frame {index}",
                remedy=f"ask for an index from 0 to {len(self) - 1}",
            )
        return self._files.read_labels(self._numbers[index], self._kind)

    def __contains__(self, index: object) -> bool:
        return index in range(len(self))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"<{self._kind.kind} of {len(self)} frames in {str(self._files.labels)!r}, read when asked for>"
