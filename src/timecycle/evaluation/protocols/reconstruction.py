"""Frame reconstruction: rebuild a frame from an earlier one by dense correspondence, and score the colour error.

ROOT/JPEGImages/480p/CLIP/00000.jpg     any videos in the layout of DAVIS; no annotations are needed
ROOT/ImageSets/2017/val.txt             or 2016/val.txt or 480p/val.txt: the clips; without a list, all of them

For every frame t and gap g, frame t - g is warped along the flow from frame t to frame t - g and compared with frame t.
Images are matched at the image size of the settings, in the window for annotated frames, but warped and compared at
their own size. Colours are in 0..255.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, OnFrame, Scores, choose_clips
from timecycle.evaluation.methods.method import Method
from timecycle.evaluation.protocols.dataset import find_folder, find_images, read_clip_names
from timecycle.labels import Labels
from timecycle.progress import OnProgress
from timecycle.propagation.flow import warp
from timecycle.propagation.frame_encoder import RgbImage
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import open_video

ERRORS = "l1.csv"
COLUMNS = ("gap", "frame", "mean_of_channels", "sum_of_channels")

_LISTS = ("2017/val.txt", "2016/val.txt", "480p/val.txt")


@dataclass(frozen=True)
class L1:
    """Absolute colour difference (0..255), averaged over pixels."""

    mean_of_channels: float  # 0..255
    sum_of_channels: float  # red, green and blue added: 0..765


@dataclass(frozen=True)
class Reconstruction:
    """Videos whose frames are rebuilt from those `gaps` frames earlier."""

    gaps: tuple[int, ...]
    stride: int  # frames from one rebuilt frame to the next
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        """Includes the gaps, as results of different gaps are not comparable."""
        every = f"-every-{self.stride}" if self.stride > 1 else ""
        return f"reconstruction-{'-'.join(map(str, self.gaps))}{every}"

    @property
    def ground_truth_files(self) -> list[Path]:
        return []  # the frames themselves are the ground truth

    def predict_clip(
        self, clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame
    ) -> None:
        """Write the errors of all rebuilt frames; the frames themselves are not kept."""
        rows: list[tuple[int, int, str, str]] = []
        with open_video(clip.frames) as video:
            recent: deque[RgbImage] = deque(maxlen=max(self.gaps) + 1)
            for frame in video:
                recent.append(frame.image)
                for gap in self.gaps:
                    if frame.index in self._rebuilt(gap, clip):
                        error = _rebuild(frame.image, recent[-1 - gap], method, config)
                        rows.append((gap, frame.index, f"{error.mean_of_channels:.6f}", f"{error.sum_of_channels:.6f}"))
                on_frame()
        with (folder / ERRORS).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])

    def score(self, predictions: Path, *, progress: OnProgress | None = None) -> Scores:
        """Average the errors over the frames of a clip, then over clips. Lower is better."""
        per_sequence: dict[str, dict[str, Any]] = {}
        all_scores: dict[str, list[float]] = {}
        for done, clip in enumerate(self.clips, start=1):
            folder = find_folder(predictions / clip.name, what="errors of rebuilt frames", remedy="predict it first")
            scores = self._score_clip(clip, folder / ERRORS)
            for name, score in scores.items():
                all_scores.setdefault(name, []).append(score)
            per_sequence[clip.name] = {**scores, "frames": len(clip.frames)}
            if progress:
                progress(done, len(self.clips))
        overall = {name: round(float(np.mean(scores)), 4) for name, scores in all_scores.items()}
        return Scores(overall=overall, per_sequence=per_sequence)

    def _score_clip(self, clip: Clip, path: Path) -> dict[str, float]:
        """Return L1_5: channels added (the paper's numbers fit this unit), and L1_5_mean_of_channels: averaged."""
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
            if rebuilt:  # a clip shorter than the gap has no score for it
                clip_errors = [errors[gap, frame] for frame in rebuilt]
                scores[f"L1_{gap}"] = round(float(np.mean([error.sum_of_channels for error in clip_errors])), 4)
                mean = float(np.mean([error.mean_of_channels for error in clip_errors]))
                scores[f"L1_{gap}_mean_of_channels"] = round(mean, 4)
        return scores

    def _rebuilt(self, gap: int, clip: Clip) -> range:
        return range(gap, len(clip.frames), self.stride)


def find_reconstruction(
    root: Path, *, gaps: Sequence[int] = (5, 10), stride: int = 1, names: Sequence[str] = ()
) -> Reconstruction:
    """Find the videos of `root` that its validation list names; one frame in `stride` is rebuilt.

    The order and the repetition of gaps do not matter.
    """
    if not gaps or min(gaps) < 1:
        raise SettingsError(f"gaps is {tuple(gaps)}", remedy="give numbers of frames, each 1 or more")
    if stride < 1:
        raise SettingsError(f"stride is {stride}", remedy="give 1 to rebuild every frame, or more to skip some")
    images = find_folder(root / "JPEGImages" / "480p", what="DAVIS frames")
    clips = tuple(
        Clip(name=name, frames=find_images(images / name, what=f"frames of {name}"), read_annotation=_no_labels)
        for name in choose_clips(_clip_names(root, images), names)
    )
    longest = max(len(clip.frames) for clip in clips)
    if longest <= max(gaps):
        raise SettingsError(
            f"no clip has a frame {max(gaps)} frames before another: the longest has {longest} frames",
            remedy="give smaller gaps, or longer clips",
        )
    return Reconstruction(tuple(sorted(set(gaps))), stride, clips)


def l1(reconstructed: UInt8[np.ndarray, "height width 3"], frame: UInt8[np.ndarray, "_ _ 3"]) -> L1:
    """Return L1 of one frame in both units: the paper does not say which it reports, but its numbers fit the sum."""
    if reconstructed.shape != frame.shape or not frame.size:
        raise LabelError(
            f"the reconstruction has the shape {reconstructed.shape} but the frame {frame.shape}",
            remedy="compare images (height, width, 3) of one size",
        )
    difference = np.abs(reconstructed.astype(np.int16) - frame)
    return L1(mean_of_channels=float(difference.mean()), sum_of_channels=float(difference.sum(axis=-1).mean()))


def _rebuild(frame: RgbImage, earlier: RgbImage, method: Method, config: PropagateConfig) -> L1:
    return l1(warp(earlier, method.flow(frame, earlier, config)), frame)


def _clip_names(root: Path, images: Path) -> list[str]:
    for name in _LISTS:
        path = root / "ImageSets" / name
        if path.is_file():
            return read_clip_names(path)
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
