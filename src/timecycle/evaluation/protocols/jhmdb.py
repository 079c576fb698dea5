"""JHMDB, the test clips of split 1: the 15 joints of the first frame are given; PCK of the others is scored.

ROOT/Rename_Images/CLASS/CLIP/00001.png
ROOT/joint_positions/CLASS/CLIP/joint_positions.mat    pos_img: (x, y) from 1 of 15 joints in every frame
ROOT/splits/CLASS_test_split1.txt                      "CLIP.avi 2" for a test clip, 1 for a training clip

A joint is correct within alpha * 0.6 * the diagonal of the box around the frame's true joints. As in CRW's evaluator,
joints that the prediction marks as hidden enter neither the box nor the score; `counted` is the share of the others.
An encoder cannot propagate a joint that lies outside the first frame and marks it as hidden from then on. A method can
thus raise its score by hiding joints: compare two methods only where `counted` is similar, or by the scores called
hidden_wrong, for which every joint of every frame enters the box and the score, and a hidden joint is wrong.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, Scores, choose_clips
from timecycle.evaluation.metrics.keypoints import Pck, box_threshold, pck, pool_clips
from timecycle.evaluation.protocols.dataset import find_folder, find_images
from timecycle.evaluation.protocols.propagated_labels import propagate_labels, read_keypoints
from timecycle.extras import import_extra
from timecycle.labels import Keypoints
from timecycle.progress import OnProgress

JOINTS = (
    "neck",
    "belly",
    "face",
    "right shoulder",
    "left shoulder",
    "right hip",
    "left hip",
    "right elbow",
    "left elbow",
    "right knee",
    "left knee",
    "right wrist",
    "left wrist",
    "right ankle",
    "left ankle",
)

_TEST_CLIPS = 268  # in split 1
_LIST = "_test_split1.txt"

log = logging.getLogger("timecycle")


@dataclass(frozen=True)
class _Rule:
    """Which joints a score counts, and within what distance they are correct."""

    alpha: float
    first_frame: Literal["out", "in"] = "out"
    hidden: Literal["left out", "wrong"] = "left out"


# Joint by joint over all clips and frames, then the mean over joints.
_SCORES = {
    "PCK@0.1": _Rule(0.1),  # without the first frame, whose joints are given: as in TimeCycle and CRW
    "PCK@0.2": _Rule(0.2),
    "PCK@0.1_first_in": _Rule(0.1, first_frame="in"),  # as in VFS: a little higher, not comparable with the others
    "PCK@0.2_first_in": _Rule(0.2, first_frame="in"),
    "PCK@0.1_hidden_wrong": _Rule(0.1, hidden="wrong"),  # the same joints for every method
    "PCK@0.2_hidden_wrong": _Rule(0.2, hidden="wrong"),
}


@dataclass(frozen=True)
class Jhmdb:
    """The test clips of split 1 that are on disk."""

    root: Path
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        return "jhmdb"

    @property
    def ground_truth_files(self) -> list[Path]:
        return [_joints_file(self.root, clip.frames[0].parent) for clip in self.clips]

    predict_clip = staticmethod(propagate_labels)

    def score(self, predictions: Path, *, progress: OnProgress | None = None) -> Scores:
        """Score the PCK of every clip, and of all clips with their joints pooled."""
        scored: list[dict[str, Pck]] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, clip in enumerate(self.clips, start=1):
            folder = find_folder(predictions / clip.name, what="predicted joints", remedy="predict it first")
            scores = self._score_clip(clip, folder)
            scored.append(scores)
            per_sequence[clip.name] = {**_shares(scores), **_counted([scores]), "frames": len(clip.frames)}
            if progress:
                progress(done, len(self.clips))
        overall = _shares({name: pool_clips([clip[name] for clip in scored]) for name in _SCORES})
        counted = _counted(scored)
        if not counted["counted"]:
            raise LabelError(
                f"no joint can be scored: {predictions} has no visible joint after the first frames",
                remedy="predict clips of more than one frame, and mark the predicted joints visible",
            )
        return Scores(overall={**overall, **counted}, per_sequence=per_sequence)

    def _score_clip(self, clip: Clip, folder: Path) -> dict[str, Pck]:
        ground_truth = read_joints(_joints_file(self.root, clip.frames[0].parent))
        predicted = read_keypoints(folder, range(len(clip.frames)), JOINTS)
        scores = {}
        for name, rule in _SCORES.items():
            counted = predicted.visible if rule.hidden == "left out" else np.ones_like(predicted.visible)
            scores[name] = pck(
                predicted.xy,
                ground_truth,
                counted=counted,
                threshold_px=box_threshold(ground_truth, counted, rule.alpha),
                first_frame=rule.first_frame,
            )
        return scores


def find_jhmdb(root: Path, *, names: Sequence[str] = ()) -> Jhmdb:
    """Find the test clips of split 1 in `root`, or the named clips, which may be training clips.

    Some of the test clips are enough; a warning says how many there are.
    """
    splits = find_folder(root / "splits", what="JHMDB's lists of clips")
    lists = sorted(splits.glob(f"*{_LIST}"))
    if not lists:
        raise SettingsError(f"{splits} holds no list CLASS{_LIST}", remedy="restore the lists from the release")
    images = find_folder(root / "Rename_Images", what="JHMDB frames")
    find_folder(root / "joint_positions", what="JHMDB joints")
    listed = [
        (images / path.name.removesuffix(_LIST) / clip, is_test) for path in lists for clip, is_test in _read_list(path)
    ]
    available = {folder.name: folder for folder, _ in listed if folder.is_dir()}
    tests = [folder.name for folder, is_test in listed if is_test and folder.name in available]
    if not tests and not names:
        others = f", or name clips to evaluate with --sequences, such as {next(iter(available))}" if available else ""
        raise SettingsError(
            f"none of the {sum(is_test for _, is_test in listed)} test clips listed in {splits} is in {images}",
            remedy=f"unpack Rename_Images of the release there: CLASS/CLIP/00001.png{others}",
        )
    if len(tests) != _TEST_CLIPS and not names:
        log.warning("%d of %d test clips of split 1 are in %s", len(tests), _TEST_CLIPS, root)
    chosen = choose_clips(list(available), names) if names else tests
    return Jhmdb(root, tuple(_clip(root, available[name]) for name in chosen))


def read_joints(path: Path) -> Float32[np.ndarray, "frames 15 2"]:
    """Read the joints of every annotated frame as (x, y), counted from 0 where the file counts from 1."""
    if not path.is_file():
        raise LabelError(f"there is no file {path}", remedy="restore the clip's joint_positions from the release")
    try:
        positions = np.asarray(import_extra("scipy.io", extra="eval").loadmat(path)["pos_img"], np.float32)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise LabelError(
            f"{path} holds no joints: {error!r}", remedy="restore the file from the release: it holds pos_img"
        ) from error
    positions = positions[..., None] if positions.ndim == 2 else positions  # MATLAB drops the last axis of one frame
    if positions.ndim != 3 or positions.shape[:2] != (2, len(JOINTS)) or not np.isfinite(positions).all():
        raise LabelError(
            f"pos_img of {path} is not an array of 2 x {len(JOINTS)} x frames finite numbers but {positions.shape}",
            remedy="restore the file from the release",
        )
    return np.ascontiguousarray(positions.transpose(2, 1, 0) - 1)


def _clip(root: Path, folder: Path) -> Clip:
    frames = find_images(folder, what=f"frames of {folder.name}")
    path = _joints_file(root, folder)
    annotated = len(read_joints(path))
    if len(frames) < annotated:
        raise LabelError(
            f"{path} has joints of {annotated} frames but {folder} has {len(frames)}",
            remedy="restore the clip's frames from the release",
        )
    return Clip(name=folder.name, frames=frames[:annotated], read_annotation=partial(_first_joints, path))


def _first_joints(path: Path) -> Keypoints:
    return Keypoints(JOINTS, read_joints(path)[0], np.ones(len(JOINTS), bool))


def _joints_file(root: Path, folder: Path) -> Path:
    """Return the file of joints that belongs to a folder of frames."""
    return root / "joint_positions" / folder.parent.name / folder.name / "joint_positions.mat"


def _read_list(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the clips of a list, and whether each is a test clip."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, _, subset = line.strip().rpartition(" ")
        if not name or subset not in ("0", "1", "2"):
            raise SettingsError(
                f"line {number} of {path} is {line.strip()!r}",
                remedy="it should name a clip and its subset: CLIP.avi 1 (training) or 2 (test)",
            )
        if subset != "0":  # in neither subset
            yield name.strip().removesuffix(".avi"), subset == "2"


def _counted(clips: Sequence[dict[str, Pck]]) -> dict[str, Any]:
    """Return the share of joints after the first frames that are predicted visible; None where there are none."""
    total = sum(int(clip["PCK@0.1_hidden_wrong"].counted.sum()) for clip in clips)
    counted = sum(int(clip["PCK@0.1"].counted.sum()) for clip in clips)
    return {"counted": round(counted / total, 6) if total else None}


def _shares(scores: dict[str, Pck]) -> dict[str, Any]:
    """Return the means over joints; None where nothing was counted, as JSON has no NaN."""
    return {name: round(one.mean, 6) if one.counted.any() else None for name, one in scores.items()}
