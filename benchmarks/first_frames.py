"""The first frame of every sequence of DAVIS, with its true mask and the box around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timecycle.evaluation.protocols.davis import find_davis
from timecycle.labels import Masks
from timecycle.video import open_video


@dataclass(frozen=True, eq=False)
class FirstFrame:
    sequence: str
    image: np.ndarray
    ground_truth: np.ndarray  # bool, (height, width)
    box: tuple[int, int, int, int]  # its first and last columns and rows: left, top, right, bottom


def first_frames(root: Path) -> Iterator[FirstFrame]:
    """Read the first frames of DAVIS-2016, or of composites; those where no object is seen yet are left out."""
    for clip in find_davis(root, year="2016").clips:
        folders = (root / part / "480p" / clip.name for part in ("JPEGImages", "Annotations"))
        images, annotations = (min(folder.iterdir()) for folder in folders)
        ground_truth = Masks.read(annotations).ids > 0
        if not ground_truth.any():  # the object of a composite may come later
            continue
        rows, columns = (np.flatnonzero(ground_truth.any(axis=axis)) for axis in (1, 0))
        box = (int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1]))
        yield FirstFrame(clip.name, open_video(images)[0].image, ground_truth, box)
