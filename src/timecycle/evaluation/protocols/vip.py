"""VIP (validation): human parts of the first frame are given; mIoU of classes or AP of part instances is scored.

ROOT/Images/CLIP/000000000001.jpg              ROOT is the folder VIP_Fine
ROOT/Annotations/Category_ids/CLIP/....png     a class per pixel, 0 to 19, 255 for void
ROOT/Annotations/Human_ids/CLIP/....png        a person per pixel, 0 for none
ROOT/lists/val_videos.txt                      one clip per line

The annotations may also be in ROOT itself, without the folder Annotations. One frame in 25 is annotated, and only the
annotated frames are run, about a second apart, as UVC, CRW and VFS do.

mIoU and AP count the first frame, whose labels are given, because published numbers do: UVC, CRW and VFS score it like
any other frame, and ATEN's evaluator of part instances, made for methods that are given nothing, pools all frames.
Scores without it are called first_out.
"""

import csv
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64, UInt16

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, Scores, choose_clips
from timecycle.evaluation.metrics.parts import (
    FrameMatches,
    PredictedInstance,
    ap_r,
    confusion,
    iou_per_class,
    match_frame,
    mean_iou,
)
from timecycle.evaluation.protocols.dataset import find_folder, find_images, first_and_count, read_clip_names
from timecycle.evaluation.protocols.propagated_labels import SCORES, propagate_labels
from timecycle.labels import Masks, Parts
from timecycle.labels.file import open_image
from timecycle.progress import OnProgress

Task = Literal["semantic", "parts"]
Ids = UInt16[np.ndarray, "_ _"]
Confusion = Int64[np.ndarray, "20 20"]

# fmt: off
CLASSES = (
    "background", "hat", "hair", "sun-glasses", "upper-clothes", "dress", "coat", "socks", "pants", "gloves", "scarf",
    "skirt", "torso-skin", "face", "right-arm", "left-arm", "right-leg", "left-leg", "right-shoe", "left-shoe",
)
# fmt: on

_CLIPS = 50  # in the validation set
_VOID = 255

log = logging.getLogger("timecycle")


@dataclass(frozen=True)
class Vip:
    """The validation clips that are on disk, for one of the two tasks."""

    task: Task
    annotations: Path
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        return f"vip-{self.task}"

    @property
    def ground_truth_files(self) -> list[Path]:
        kinds = ("Category_ids",) if self.task == "semantic" else ("Category_ids", "Human_ids")
        frames = [frame for clip in self.clips for frame in clip.frames]
        return [_annotation(self.annotations / kind, frame) for frame in frames for kind in kinds]

    predict_clip = staticmethod(propagate_labels)

    def score(self, predictions: Path, *, progress: OnProgress | None = None) -> Scores:
        """Score every clip by itself, and all frames of all clips together."""
        return (self._score_classes if self.task == "semantic" else self._score_parts)(predictions, progress)

    def _score_classes(self, predictions: Path, progress: OnProgress | None) -> Scores:
        all_clips: list[list[Confusion]] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, clip in enumerate(self.clips, start=1):
            frames = [self._confusion(frame, path) for frame, path in _predicted(clip, predictions)]
            all_clips.append(frames)
            per_sequence[clip.name] = {**_mean_ious([frames]), "frames": len(frames)}
            if progress:
                progress(done, len(self.clips))
        overall = _mean_ious(all_clips)
        if overall["mIoU_first_out"] is None:
            raise LabelError(f"{predictions} has no frame to score", remedy="score clips of more than one frame")
        per_class = zip(CLASSES, iou_per_class(_sum(frame for frames in all_clips for frame in frames)), strict=True)
        ious = {f"IoU_{name}": round(float(iou), 6) for name, iou in per_class if np.isfinite(iou)}
        return Scores(overall={**overall, **ious}, per_sequence=per_sequence)

    def _score_parts(self, predictions: Path, progress: OnProgress | None) -> Scores:
        all_frames: list[_Matched] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, clip in enumerate(self.clips, start=1):
            files = _predicted(clip, predictions)
            scores = _read_scores(predictions / clip.name / SCORES)
            matched = [self._match(frame, path, scores, index) for index, (frame, path) in enumerate(files)]
            all_frames += matched
            per_sequence[clip.name] = {**_average_precisions(matched), "frames": len(matched)}
            if progress:
                progress(done, len(self.clips))
        overall = _average_precisions(all_frames)
        if "AP_vol_first_out" not in overall:
            raise LabelError(f"{predictions} has no frame to score", remedy="score clips of more than one frame")
        return Scores(overall=overall, per_sequence=per_sequence)

    def _confusion(self, frame: Path, path: Path) -> Confusion:
        ground_truth, predicted = _read_ids(_annotation(self.annotations / "Category_ids", frame)), _read_ids(path)
        _check_size(path, predicted, ground_truth)
        return confusion(predicted, ground_truth, len(CLASSES), ignore=_VOID)

    def _match(self, frame: Path, path: Path, scores: "_PartScores | None", index: int) -> "_Matched":
        ground_truth, predicted = _read_parts(self.annotations, frame), Parts.read(path)
        _check_size(path, predicted.part, ground_truth.part)
        classes, true_classes = _class_of_pairs(predicted), _class_of_pairs(ground_truth)
        equal = {pair: PredictedInstance(klass, 1.0) for pair, klass in classes.items()}
        ranked = equal if scores is None else {p: PredictedInstance(k, scores.of(index, p)) for p, k in classes.items()}
        return _Matched(
            ranked=match_frame(predicted.pairs, ranked, ground_truth.pairs, true_classes),
            equal=match_frame(predicted.pairs, equal, ground_truth.pairs, true_classes),
            is_first=index == 0,
        )


def find_vip(root: Path, *, task: Task, names: Sequence[str] = ()) -> Vip:
    """Find the validation clips in `root`, the folder VIP_Fine; a warning says if some are missing."""
    listing = root / "lists" / "val_videos.txt"
    if not listing.is_file():
        raise SettingsError(
            f"there is no list {listing}", remedy="ROOT is the folder VIP_Fine: Images, Annotations, lists"
        )
    images = find_folder(root / "Images", what="VIP frames")
    annotations = root if (root / "Category_ids").is_dir() else root / "Annotations"
    find_folder(annotations / "Category_ids", what="VIP classes")
    if task == "parts":
        find_folder(annotations / "Human_ids", what="VIP people")
    clip_names = [Path(name).name for name in read_clip_names(listing)]  # some copies list paths
    available = [name for name in clip_names if (images / name).is_dir()]
    if not available:
        raise SettingsError(
            f"none of the {len(clip_names)} clips listed in {listing} is in {images}",
            remedy="unpack the frames of VIP_Fine there: CLIP/000000000001.jpg",
        )
    if len(available) != _CLIPS and not names:
        log.warning("%d of %d validation clips of VIP are in %s", len(available), _CLIPS, root)
    chosen = choose_clips(available, names)
    return Vip(task, annotations, tuple(_clip(images / name, annotations, task) for name in chosen))


@dataclass(frozen=True)
class _PartScores:
    """The score of each part instance of each frame, which ranks it."""

    path: Path
    scores: Mapping[tuple[int, int], float]  # by frame and pair

    def of(self, frame: int, pair: int) -> float:
        if (frame, pair) not in self.scores:
            raise LabelError(
                f"{self.path} has no score of {pair} on frame {frame}",
                remedy="give every predicted part instance a score, or delete the file to rank all of them equal",
            )
        return self.scores[frame, pair]


@dataclass(frozen=True)
class _Matched:
    """A frame's part instances, matched with their predicted scores and with equal scores."""

    ranked: FrameMatches
    equal: FrameMatches
    is_first: bool


def _clip(folder: Path, annotations: Path, task: Task) -> Clip:
    classes = find_images(annotations / "Category_ids" / folder.name, what=f"classes of {folder.name}")
    annotated = {path.stem for path in classes}
    frames = tuple(path for path in find_images(folder, what=f"frames of {folder.name}") if path.stem in annotated)
    missing = sorted(annotated - {path.stem for path in frames})
    if missing:
        raise LabelError(
            f"{folder} lacks the annotated frame {first_and_count(missing)}", remedy="restore it from VIP_Fine"
        )
    if task == "parts":
        for frame in frames:
            _annotation(annotations / "Human_ids", frame)
    read_annotation = partial(_first_classes if task == "semantic" else _read_parts, annotations, frames[0])
    return Clip(name=folder.name, frames=frames, read_annotation=read_annotation)


def _first_classes(annotations: Path, frame: Path) -> Masks:
    ids = _read_ids(_annotation(annotations / "Category_ids", frame))
    # Every pixel is annotated: a class without a pixel is absent. Void cannot be propagated as a class.
    return Masks.of(np.where(ids == _VOID, 0, ids), exhaustive=True)


def _read_parts(annotations: Path, frame: Path) -> Parts:
    """Read the parts of people; a pixel with a class but no person, or the reverse, has no part instance."""
    part, person = (_read_ids(_annotation(annotations / kind, frame)) for kind in ("Category_ids", "Human_ids"))
    _check_size(_annotation(annotations / "Human_ids", frame), person, part)
    both = (part > 0) & (part != _VOID) & (person > 0)
    return Parts(
        np.where(both, part, 0).astype(np.uint16), np.where(both, person, 0).astype(np.uint16), exhaustive=True
    )


def _annotation(folder: Path, frame: Path) -> Path:
    path = folder / frame.parent.name / f"{frame.stem}.png"
    if not path.is_file():
        raise LabelError(f"there is no annotation {path}", remedy="restore it from VIP_Fine")
    return path


def _read_ids(path: Path) -> Ids:
    """Read the values of a grey or palette image unchanged: annotations of a release have no soft edges."""
    with open_image(path) as image:
        if image.mode not in ("L", "P"):
            raise LabelError(
                f"{path} is an image of mode {image.mode}", remedy="give 8-bit grey or palette PNGs of ids"
            )
        return np.array(image).astype(np.uint16)


def _predicted(clip: Clip, predictions: Path) -> list[tuple[Path, Path]]:
    """Pair every frame, including the first, with the file of its predicted labels."""
    folder = find_folder(predictions / clip.name, what="predicted labels", remedy="predict it first")
    files = [(frame, folder / f"{index:05d}.png") for index, frame in enumerate(clip.frames)]
    missing = [path.name for _, path in files if not path.is_file()]
    if missing:
        raise LabelError(
            f"{folder} lacks {first_and_count(missing)}",
            remedy=f"number the labels of the {len(files)} annotated frames of {clip.name} from 00000.png",
        )
    return files


def _read_scores(path: Path) -> _PartScores | None:
    """Read the scores of a clip's part instances; None where a method has none, which ranks all equal."""
    if not path.is_file():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = {(int(row["frame"]), int(row["pair"])): float(row["score"]) for row in csv.DictReader(file)}
    except (KeyError, TypeError, ValueError) as error:
        raise LabelError(f"{path} cannot be read: {error!r}", remedy="write rows of frame,pair,score") from error
    return _PartScores(path, rows)


def _class_of_pairs(parts: Parts) -> dict[int, int]:
    pairs, indices = np.unique(parts.pairs, return_index=True)
    classes = zip(pairs.tolist(), parts.part.ravel()[indices].tolist(), strict=True)
    return {pair: klass for pair, klass in classes if pair != 0}


def _sum(frames: Iterable[Confusion]) -> Confusion:
    return sum(frames, np.zeros((len(CLASSES), len(CLASSES)), np.int64))


def _mean_ious(clips: Sequence[Sequence[Confusion]]) -> dict[str, Any]:
    """Return mIoU over all frames together, and mIoU_first_out without the first ones; None without frames."""
    later = _sum(frame for frames in clips for frame in frames[1:])
    whole = _sum([later, *(frames[0] for frames in clips)])
    means = {"mIoU": mean_iou(whole), "mIoU_first_out": mean_iou(later)}
    return {name: round(mean, 6) if np.isfinite(mean) else None for name, mean in means.items()}


def _average_precisions(frames: Sequence[_Matched]) -> dict[str, float]:
    """Return AP^r of part instances; empty where there are none.

    AP_0.1 to AP_0.9: at that overlap. AP_vol: their mean. Instances are ranked by the mean posterior inside them, or
    equal where the method has none; the paper does not say what it ranked by.
    ..._constant: all instances ranked equal, whatever the method.
    AP_vol_first_out: without the first frames, whose labels are given.
    """
    scores: dict[str, float] = {}
    if not _has_instances(frames):
        return scores
    for suffix, matches in (("", [f.ranked for f in frames]), ("_constant", [f.equal for f in frames])):
        precision = ap_r(matches)
        scores |= {f"AP_{threshold}{suffix}": ap for threshold, ap in precision.per_threshold.items()}
        scores[f"AP_vol{suffix}"] = precision.mean
    later = [frame for frame in frames if not frame.is_first]
    if _has_instances(later):
        scores["AP_vol_first_out"] = ap_r([frame.ranked for frame in later]).mean
    return {name: round(score, 6) for name, score in scores.items()}


def _has_instances(frames: Iterable[_Matched]) -> bool:
    return any(frame.ranked.matches or frame.ranked.ground_truth_count for frame in frames)


def _check_size(path: Path, ids: Ids, classes: Ids) -> None:
    if ids.shape != classes.shape:
        raise LabelError(
            f"{path} is {ids.shape[1]}x{ids.shape[0]} but its classes are {classes.shape[1]}x{classes.shape[0]}",
            remedy="resize it with nearest neighbour to the size of the annotation in Category_ids",
        )
