"""Our own table of keypoints: frame, name, x, y, visible, confidence."""

import csv
from pathlib import Path

from timecycle.files import atomic_text
from timecycle.formats.format import Format
from timecycle.formats.video_labels import VideoFacts, VideoLabels, points_of
from timecycle.labels.keypoints import COLUMNS, Keypoints, keypoints_csv, read_keypoints


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read the points of all frames; the column `frame` has frame numbers."""
    points = {video.index(number): one for number, one in read_keypoints(path).items()}
    return VideoLabels(kind=Keypoints, labels=points, video=VideoFacts(name=str(path)))


def write(labels: VideoLabels, path: Path) -> None:
    """Write one row per point and frame."""
    with atomic_text(path) as text:
        csv.writer(text, lineterminator="\n").writerow(COLUMNS)
        for index, points in labels.labels.items():
            text.write(keypoints_csv({labels.video.number(index): points_of(points)}).partition("\n")[2])


def _recognises(path: Path) -> bool:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        columns = next(csv.reader([file.readline(1000)]), [])
    return {"frame", "name", "x", "y"} <= {column.strip() for column in columns}


FORMAT = Format(
    name="csv",
    title="Table of keypoints (frame, name, x, y, visible, confidence)",
    suffixes=(".csv",),
    kinds=("keypoints",),
    loses="size, rate and number of frames; frames without any point",
    read=read,
    write=write,
    recognises=_recognises,
)
