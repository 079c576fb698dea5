"""The output folder of a run: its layout, lock, record and tables.

A folder may come from anyone: no link in it is followed, and what it says is validated before it is used.
"""

import csv
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import OutputError, VideoError, first_line
from timecycle.files import clear_unfinished, lock, make_folder, write_text, writing
from timecycle.labels import Labels
from timecycle.propagation.video import LabelledFrame
from timecycle.runs.measurement_plot import plot_measurements
from timecycle.runs.measurements import GeometryByFrame, MeasurementConfig, write_measurements
from timecycle.runs.outputs import LabelFiles, write_confidence, write_labels
from timecycle.runs.record import read_record
from timecycle.runs.tables import (
    FrameRow,
    ObjectsByFrame,
    RunTables,
    check_objects,
    frame_row,
    object_rows,
    read_frames,
    read_objects,
)
from timecycle.video import Video, open_video

RECORD = "run.json"
FILES = (
    *("frames.csv", "objects.csv", "overlay.mp4", "contact.png", "keypoints.csv"),
    *("measurements.csv", "measurements.png"),
)
REVIEW_FILES = ("report.html", "review.json", "review.png")  # written by `check`
_FOLDERS = ("labels", "confidence", "exports", "history", "review", ".work", ".correction", ".passes")


def is_run(path: str | Path) -> bool:
    """Return whether a path is the folder of a run, finished or not."""
    return (Path(path) / RECORD).is_file()


class OutputFolder:
    """Paths of an output folder, and reading and writing of its record and tables.

    Staged corrections and entries of the history have the same layout.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / RECORD
        self.frames_csv = path / "frames.csv"
        self.objects_csv = path / "objects.csv"
        self.keypoints_csv = path / "keypoints.csv"
        self.measurements_csv = path / "measurements.csv"
        self.measurements_plot = path / "measurements.png"
        self.overlay = path / "overlay.mp4"
        self.contact_sheet = path / "contact.png"
        self.labels = path / "labels"
        self.confidence = path / "confidence"
        self.exports = path / "exports"  # the labels in other formats
        self.history = path / "history"
        self.review = path / "review"
        self.work = path / ".work"  # of an unfinished run
        self.staging = path / ".correction"  # of an unfinished correction
        self.pass_cache = path / ".passes"  # label maps of both passes, for corrections; it may be removed

    def label_file(self, number: int, kind: type[Labels]) -> Path:
        """Return the label file of a frame, by its number in the video (`Frame.number`)."""
        return self.labels / f"{number:05d}{kind.suffix}"

    def confidence_file(self, number: int) -> Path:
        return self.confidence / f"{number:05d}.png"

    def read_labels(self, number: int, kind: type[Labels]) -> Labels:
        return kind.read(self.label_file(number, kind))

    def write_frame(self, labelled: LabelledFrame, names: Mapping[str, str], label_files: LabelFiles) -> list[str]:
        """Write the labels and the confidence of a frame; returns its rows of frames.csv and, perhaps, objects.csv."""
        make_folder(self.labels)
        write_labels(self.label_file(labelled.number, type(labelled.labels)), labelled.labels, label_files)
        if labelled.confidence is None:
            return [frame_row(labelled)]
        make_folder(self.confidence)
        write_confidence(self.confidence_file(labelled.number), labelled.confidence)
        return [frame_row(labelled), object_rows(labelled, names)]

    def write_measurements(
        self,
        tables: "OutputFolder",
        geometry: GeometryByFrame,
        kind: type[Labels],
        names: Mapping[str, str],
        config: MeasurementConfig,
    ) -> None:
        """Join the geometry of all frames with the tables of a run, and plot the result."""
        write_measurements(
            self.measurements_csv,
            geometry,
            tables.frames_csv,
            tables.objects_csv,
            kind=kind,
            names=names,
            config=config,
        )
        plot_measurements(self.measurements_plot, self.measurements_csv, kind, names)

    # Record

    def read_record(self) -> dict[str, Any]:
        """Read and validate the record of a run, finished or not."""
        return read_record(self.record_file)

    def finished_record(self) -> dict[str, Any]:
        """Read and validate the record of a finished run; refuse an unfinished one."""
        record = self.read_record()
        if record["status"] != "finished":
            raise OutputError(f"the run in {self.path} is not finished", remedy="resume it: pass --resume to propagate")
        return record

    def write_record(self, record: Mapping[str, Any]) -> None:
        write_text(self.record_file, json.dumps(record, indent=2) + "\n")

    # Tables

    def tables(self) -> RunTables:
        """Read the tables of a finished run; refuse a run without confidence."""
        record = self.finished_record()
        with self._reading_tables():
            frames, objects = read_frames(self.frames_csv), read_objects(self.objects_csv)
            if len(frames) != record["video"]["frames"]:
                raise ValueError("frames.csv does not have one line for every frame")
            check_objects(objects, len(frames), record["labels"]["kind"])
        if not objects:
            raise OutputError(
                f"the run in {self.path} has no confidence",
                remedy="propagate again with --overwrite and without --no-confidence",
            )
        return RunTables(self.path, record, frames, objects)

    def objects(self, *, growing: bool = False) -> ObjectsByFrame:
        """Read objects.csv; empty where it is missing. A `growing` table is one of an unfinished run."""
        with self._reading_tables():
            return read_objects(self.objects_csv, growing=growing) if self.objects_csv.is_file() else {}

    def frames(self, *, growing: bool = False) -> list[FrameRow]:
        """Read frames.csv; of an unfinished run (`growing`), the frames that are written."""
        with self._reading_tables():
            if growing and not self.frames_csv.is_file():
                return []
            return read_frames(self.frames_csv, growing=growing)

    def frame_numbers(self) -> list[int]:
        """Return the numbers of the frames in the video, in order."""
        return [frame.number for frame in self.frames()]

    # Video

    def open_video(self, moved: str | Path | np.ndarray | None = None) -> Video:
        """Open the video that was labelled, as it was opened then; refuse another one in its place.

        moved: the video, if it is not where the record says.
        """
        record = self.finished_record()
        about, origin = record["video"], record.get("origin") or {}
        source = origin.get("video") if moved is None else moved
        if source is None:
            raise OutputError(
                f"{self.path} does not say where its video is",
                remedy="in Python, pass video and encoder; or propagate again from a video file",
            )
        try:
            # Damage was accepted when the labels were propagated.
            video = open_video(
                source, fps=about.get("assumed_fps", origin.get("fps")), allow_damaged=bool(about.get("damage"))
            )
        except VideoError as error:
            if not isinstance(source, str | Path) or Path(source).exists():
                raise OutputError(
                    f"the video of {self.path} cannot be opened as it was when it was labelled: {error.problem}",
                    remedy="put the original video back, or propagate again",
                ) from error
            if moved is not None:
                raise
            raise OutputError(
                f"the video of {self.path} is not at {source} any more",
                remedy="put it back, or say where it is now: timecycle correct OUT --video FILE, in Python video=",
            ) from error
        try:
            self.check_video(video, record)
        except BaseException:
            video.close()
            raise
        return video

    def check_video(self, video: Video, record: Mapping[str, Any]) -> None:
        """Refuse a video that is not the one that was labelled, or that has other times."""
        if video.fingerprint() != record["video"]["sha256"]:
            raise OutputError(
                f"the video is not the one that was labelled in {self.path}",
                remedy="put the original video back, or propagate again",
            )
        fps = record["video"].get("assumed_fps", video.assumed_fps)
        if video.assumed_fps != fps:
            raise OutputError(
                f"the video was opened with fps={video.assumed_fps}, but labelled in {self.path} with fps={fps}",
                remedy=f"open it with fps={fps}",
            )

    @contextmanager
    def _reading_tables(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise OutputError(
                f"the tables in {self.path} cannot be read: {first_line(error)}",
                remedy="propagate again with --overwrite",
            ) from error

    # Safety

    @contextmanager
    def lock_finished(self) -> Iterator[None]:
        """Hold the folder of a finished run for this process. A folder without one is refused before it is touched."""
        self.refuse_links()
        self.finished_record()
        with lock(self.path):
            yield

    def refuse_links(self) -> None:
        """Refuse a folder in which a name that a run uses is a link, a pipe or a device.

        Writing through a link would replace a file elsewhere, and reading a pipe would never end.
        """
        names = (RECORD, ".lock", *FILES, *REVIEW_FILES, *_FOLDERS)
        special = next((path for name in names for path in _special_files(self.path / name)), None)
        if special is not None:
            raise OutputError(
                f"{special} is a {'link' if special.is_symlink() else 'pipe or device'}, not a file of the run",
                remedy="copy the folder without it, and do not trust a folder that arrived like this",
            )

    # Clearing

    def clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else."""
        with writing(self.path):
            for name in _FOLDERS:
                if (self.path / name).is_dir():
                    shutil.rmtree(self.path / name)
            for name in (*FILES, *REVIEW_FILES):
                (self.path / name).unlink(missing_ok=True)

    def clear_partial_files(self) -> None:
        """Remove files that a killed process was writing."""
        for folder in (self.path, self.labels, self.confidence):
            clear_unfinished(folder)

    def remove_review_files(self) -> None:
        for name in REVIEW_FILES:
            (self.path / name).unlink(missing_ok=True)


def _special_files(path: Path) -> Iterator[Path]:
    """Find what is neither a file nor a folder, at a path and below it."""
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        yield path
    elif path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _special_files(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
