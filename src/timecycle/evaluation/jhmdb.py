"""JHMDB, the test clips of split 1: the 15 joints of the first frame given, PCK of the others.

ROOT/Rename_Images/CLASS/CLIP/00001.png
ROOT/joint_positions/CLASS/CLIP/joint_positions.mat    pos_img: (x, y) from 1 of 15 joints in every frame
ROOT/splits/CLASS_test_split1.txt                      "CLIP.avi 2" for a test clip, 1 for a training clip

A joint is right within alpha * 0.6 * the diagonal of the box around the frame's true joints. As in CRW's evaluator,
joints that the prediction calls hidden enter neither the box nor the score: `counted` tells how many were left.
A joint that lies outside the first frame cannot be carried by an encoder, which calls it hidden from then on.
So a method gains by hiding what it would get wrong: compare two only where `counted` is alike, or by the scores called
hidden_wrong, for which every joint of every frame enters the box and the score and a hidden one is wrong.
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
from timecycle.evaluation.benchmark import Clip, Progress, Scores, choose
from timecycle.evaluation.carrying import carry_labels
from timecycle.evaluation.layout import folder_of, images_in
from timecycle.evaluation.metrics.keypoints import Pck, box_reach, pck, pool_clips
from timecycle.evaluation.points import read_points
from timecycle.extras import need
from timecycle.labels import Keypoints

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

_TEST_CLIPS = 268  # of split 1
_LIST = "_test_split1.txt"

log = logging.getLogger("timecycle")


@dataclass(frozen=True)
class _Rule:
    """What a score counts."""

    alpha: float
    first_frame: Literal["out", "in"] = "out"
    hidden: Literal["left out", "wrong"] = "left out"


# Joint by joint over all clips and frames, then the mean over joints.
_SCORES = {
    "PCK@0.1": _Rule(0.1),  # without the first frame, whose joints are given and therefore right: as TimeCycle and CRW
    "PCK@0.2": _Rule(0.2),
    "PCK@0.1_first_in": _Rule(0.1, first_frame="in"),  # as VFS: a little higher, never to be compared with the others
    "PCK@0.2_first_in": _Rule(0.2, first_frame="in"),
    "PCK@0.1_hidden_wrong": _Rule(0.1, hidden="wrong"),  # the same joints for every method
    "PCK@0.2_hidden_wrong": _Rule(0.2, hidden="wrong"),
}


@dataclass(frozen=True)
class Jhmdb:
    """The test clips of split 1 that are there."""

    root: Path
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        return "jhmdb"

    @property
    def truth_files(self) -> list[Path]:
        return [_joints_file(self.root, clip.frames[0].parent) for clip in self.clips]

    predict_clip = staticmethod(carry_labels)

    def score(self, predictions: Path, *, progress: Progress | None = None) -> Scores:
        """PCK of every clip, and of all of them with their joints pooled."""
        scored: list[dict[str, Pck]] = []
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, clip in enumerate(self.clips, start=1):
            folder = folder_of(predictions / clip.name, what="predicted joints", remedy="predict it first")
            scores = self._score_clip(clip, folder)
            scored.append(scores)
            per_sequence[clip.name] = {**_shares(scores), **_counted([scores]), "frames": len(clip.frames)}
            if progress:
                progress(done, len(self.clips))
        overall = _shares({name: pool_clips([clip[name] for clip in scored]) for name in _SCORES})
        counted = _counted(scored)
        if not counted["counted"]:
            raise LabelError(
                f"no joint can be scored: {predictions} places none after the first frames",
                remedy="predict clips of more than one frame, with the joints a method sees marked visible",
            )
        return Scores(overall={**overall, **counted}, per_sequence=per_sequence)

    def _score_clip(self, clip: Clip, folder: Path) -> dict[str, Pck]:
        truth = read_joints(_joints_file(self.root, clip.frames[0].parent))
        found = read_points(folder, range(len(clip.frames)), JOINTS)
        scores = {}
        for name, rule in _SCORES.items():
            counted = found.visible if rule.hidden == "left out" else np.ones_like(found.visible)
            reach_px = box_reach(truth, counted, rule.alpha)
            scores[name] = pck(found.xy, truth, counted=counted, reach_px=reach_px, first_frame=rule.first_frame)
        return scores


def find_jhmdb(root: Path, *, names: Sequence[str] = ()) -> Jhmdb:
    """The test clips of split 1 in `root`, or those named, which may be training clips too: nothing is trained here.

    A part of the test clips will do: how many there are is logged.
    """
    splits = folder_of(root / "splits", what="JHMDB's lists of clips")
    lists = sorted(splits.glob(f"*{_LIST}"))
    if not lists:
        raise SettingsError(f"{splits} holds no list CLASS{_LIST}", remedy="restore the lists from the release")
    images = folder_of(root / "Rename_Images", what="JHMDB frames")
    folder_of(root / "joint_positions", what="JHMDB joints")
    listed = [(images / path.name.removesuffix(_LIST) / clip, test) for path in lists for clip, test in _listed(path)]
    there = {folder.name: folder for folder, _ in listed if folder.is_dir()}
    tests = [folder.name for folder, test in listed if test and folder.name in there]
    if not tests and not names:
        others = f", or name clips to evaluate with --sequences, such as {next(iter(there))}" if there else ""
        raise SettingsError(
            f"none of the {sum(test for _, test in listed)} test clips listed in {splits} is in {images}",
            remedy=f"unpack Rename_Images of the release there: CLASS/CLIP/00001.png{others}",
        )
    if len(tests) != _TEST_CLIPS and not names:
        log.warning("%d of %d test clips of split 1 are in %s", len(tests), _TEST_CLIPS, root)
    return Jhmdb(root, tuple(_clip(root, there[name]) for name in (choose(list(there), names) if names else tests)))


def read_joints(path: Path) -> Float32[np.ndarray, "frames 15 2"]:
    """(x, y) of the joints in every annotated frame, from 0 where the file counts from 1."""
    if not path.is_file():
        raise LabelError(f"there is no file {path}", remedy="restore the clip's joint_positions from the release")
    try:
        places = np.asarray(need("scipy.io", extra="eval").loadmat(path)["pos_img"], np.float32)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise LabelError(
            f"{path} holds no joints: {error!r}", remedy="restore the file from the release: it holds pos_img"
        ) from error
    places = places[..., None] if places.ndim == 2 else places  # MATLAB drops the last axis of a single frame
    if places.ndim != 3 or places.shape[:2] != (2, len(JOINTS)) or not np.isfinite(places).all():
        raise LabelError(
            f"pos_img of {path} is not an array of 2 x {len(JOINTS)} x frames finite numbers but {places.shape}",
            remedy="restore the file from the release",
        )
    return np.ascontiguousarray(places.transpose(2, 1, 0) - 1)


def _clip(root: Path, folder: Path) -> Clip:
    frames = images_in(folder, what=f"frames of {folder.name}")
    path = _joints_file(root, folder)
    annotated = len(read_joints(path))
    if len(frames) < annotated:
        raise LabelError(
            f"{path} has joints of {annotated} frames but {folder} has {len(frames)}",
            remedy="restore the clip's frames from the release",
        )
    return Clip(name=folder.name, frames=frames[:annotated], given=partial(_first_joints, path))


def _first_joints(path: Path) -> Keypoints:
    return Keypoints(JOINTS, read_joints(path)[0], np.ones(len(JOINTS), bool))


def _joints_file(root: Path, folder: Path) -> Path:
    """The joints that belong to a folder of frames."""
    return root / "joint_positions" / folder.parent.name / folder.name / "joint_positions.mat"


def _listed(path: Path) -> Iterator[tuple[str, bool]]:
    """The clips that a list names, and whether each is a test clip."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, _, part = line.strip().rpartition(" ")
        if not name or part not in ("0", "1", "2"):
            raise SettingsError(
                f"line {number} of {path} is {line.strip()!r}",
                remedy="it should name a clip and its part: CLIP.avi 1 (training) or 2 (test)",
            )
        if part != "0":  # in neither part
            yield name.strip().removesuffix(".avi"), part == "2"


def _counted(clips: Sequence[dict[str, Pck]]) -> dict[str, Any]:
    """The share of joints after the first frames that the prediction calls visible; None where there are none."""
    asked = sum(int(clip["PCK@0.1_hidden_wrong"].counted.sum()) for clip in clips)
    counted = sum(int(clip["PCK@0.1"].counted.sum()) for clip in clips)
    return {"counted": round(counted / asked, 6) if asked else None}


def _shares(scores: dict[str, Pck]) -> dict[str, Any]:
    """The mean over joints; None where nothing was counted, which JSON can say and NaN it cannot."""
    return {name: round(one.mean, 6) if one.counted.any() else None for name, one in scores.items()}
