"""Frame reconstruction: a frame rebuilt from an earlier one by dense correspondence, and how far its colours are off.

ROOT/JPEGImages/480p/CLIP/00000.jpg     any videos in the layout of DAVIS; no annotations are needed
ROOT/ImageSets/2017/val.txt             or 2016/val.txt or 480p/val.txt: which clips; without a list, all of them

For every frame t and gap g, the flow from frame t to frame t - g says where each pixel is found there, and the earlier
frame read along it should look like frame t. Images are matched at the size of the settings, in the window for labelled
frames, but warped and compared at their own size. Colours go from 0 to 255.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, OnFrame, Progress, Scores, choose
from timecycle.evaluation.layout import folder_of, images_in, listed
from timecycle.evaluation.methods import Method, Picture
from timecycle.evaluation.metrics.reconstruction import L1, l1
from timecycle.labels import Labels
from timecycle.propagation.flow import warp
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import open_video

ERRORS = "l1.csv"
COLUMNS = ("gap", "frame", "mean_of_channels", "sum_of_channels")

_LISTS = ("2017/val.txt", "2016/val.txt", "480p/val.txt")


@dataclass(frozen=True)
class Reconstruction:
    """Videos whose frames are rebuilt from those `gaps` frames earlier."""

    gaps: tuple[int, ...]
    stride: int  # every how many frames one is rebuilt
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        """With the gaps: results of other gaps are not comparable."""
        every = f"-every-{self.stride}" if self.stride > 1 else ""
        return f"reconstruction-{'-'.join(map(str, self.gaps))}{every}"

    @property
    def truth_files(self) -> list[Path]:
        return []  # the frames themselves are the truth

    def predict_clip(
        self, clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame
    ) -> None:
        """Write the errors of all rebuilt frames; the frames themselves are not kept."""
        rows: list[tuple[int, int, str, str]] = []
        with open_video(clip.frames) as video:
            recent: deque[Picture] = deque(maxlen=max(self.gaps) + 1)
            for frame in video:
                recent.append(frame.image)
                for gap in self.gaps:
                    if frame.index in self._rebuilt(gap, clip):
                        error = _rebuild(frame.image, recent[-1 - gap], method, config)
                        rows.append((gap, frame.index, f"{error.mean_of_channels:.6f}", f"{error.sum_of_channels:.6f}"))
                on_frame()
        with (folder / ERRORS).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])

    def score(self, predictions: Path, *, progress: Progress | None = None) -> Scores:
        """Errors averaged over the frames of a clip, then over clips. Lower is better."""
        per_sequence: dict[str, dict[str, Any]] = {}
        of_all: dict[str, list[float]] = {}
        for done, clip in enumerate(self.clips, start=1):
            folder = folder_of(predictions / clip.name, what="errors of rebuilt frames", remedy="predict it first")
            scores = self._score_clip(clip, folder / ERRORS)
            for name, score in scores.items():
                of_all.setdefault(name, []).append(score)
            per_sequence[clip.name] = {**scores, "frames": len(clip.frames)}
            if progress:
                progress(done, len(self.clips))
        overall = {name: round(float(np.mean(scores)), 4) for name, scores in of_all.items()}
        return Scores(overall=overall, per_sequence=per_sequence)

    def _score_clip(self, clip: Clip, path: Path) -> dict[str, float]:
        """L1_5: red, green and blue added (the paper's numbers fit this unit). L1_5_mean_of_channels: averaged."""
        errors = _read_errors(path)
        scores: dict[str, float] = {}
        for gap in self.gaps:
            rebuilt = self._rebuilt(gap, clip)
            missing = [frame for frame in rebuilt if (gap, frame) not in errors]
            if missing:
                raise LabelError(
                    f"{path} has no error of frame {missing[0]} at gap {gap}",
                    remedy="predict the clip again with the same gaps and stride",
                )
            if rebuilt:  # a clip shorter than the gap says nothing about it
                found = [errors[gap, frame] for frame in rebuilt]
                scores[f"L1_{gap}"] = round(float(np.mean([one.sum_of_channels for one in found])), 4)
                mean = float(np.mean([one.mean_of_channels for one in found]))
                scores[f"L1_{gap}_mean_of_channels"] = round(mean, 4)
        return scores

    def _rebuilt(self, gap: int, clip: Clip) -> range:
        return range(gap, len(clip.frames), self.stride)


def find_reconstruction(
    root: Path, *, gaps: Sequence[int] = (5, 10), stride: int = 1, names: Sequence[str] = ()
) -> Reconstruction:
    """The videos of `root` that its validation list names; with a `stride` only every so many frames are rebuilt.

    The order of the gaps, and whether one is given twice, changes nothing.
    """
    if not gaps or min(gaps) < 1:
        raise SettingsError(f"gaps is {tuple(gaps)}", remedy="give numbers of frames, each 1 or more")
    if stride < 1:
        raise SettingsError(f"stride is {stride}", remedy="give 1 to rebuild every frame, or more to leave some out")
    images = folder_of(root / "JPEGImages" / "480p", what="DAVIS frames")
    clips = tuple(
        Clip(name=name, frames=images_in(images / name, what=f"frames of {name}"), given=_no_labels)
        for name in choose(_clip_names(root, images), names)
    )
    longest = max(len(clip.frames) for clip in clips)
    if longest <= max(gaps):
        raise SettingsError(
            f"no clip has a frame {max(gaps)} frames before another: the longest has {longest} frames",
            remedy="give smaller gaps, or longer clips",
        )
    return Reconstruction(tuple(sorted(set(gaps))), stride, clips)


def _rebuild(now: Picture, earlier: Picture, method: Method, config: PropagateConfig) -> L1:
    return l1(warp(earlier, method.flow(now, earlier, config)), now)


def _clip_names(root: Path, images: Path) -> list[str]:
    for name in _LISTS:
        path = root / "ImageSets" / name
        if path.is_file():
            return listed(path)
    names = sorted(path.name for path in images.iterdir() if path.is_dir())
    if not names:
        raise SettingsError(f"{images} holds no clips", remedy="it should hold folders of frames: CLIP/00000.jpg")
    return names


def _no_labels() -> Labels:
    raise LabelError("frame reconstruction has no labels", remedy="use the frames alone, or another benchmark")


def _read_errors(path: Path) -> dict[tuple[int, int], L1]:
    if not path.is_file():
        raise LabelError(f"there is no file {path}", remedy="predict the clip first")
    try:
        return dict(_errors(path))
    except (KeyError, TypeError, ValueError) as error:
        raise LabelError(f"{path} cannot be read: {error!r}", remedy=f"its columns are {','.join(COLUMNS)}") from error


def _errors(path: Path) -> Iterator[tuple[tuple[int, int], L1]]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = L1(float(row["mean_of_channels"]), float(row["sum_of_channels"]))
            yield (int(row["gap"]), int(row["frame"])), values
