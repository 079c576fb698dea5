"""BADJA: joints of animals in DAVIS sequences, annotated on about every fifth frame; PCK of those frames is scored.

ROOT/CLIP.json                             or ROOT/joint_annotations/CLIP.json, as in BADJA's own repository
DAVIS/JPEGImages/480p/CLIP/00000.jpg       or Full-Resolution; 480p where both exist
DAVIS/Annotations/480p/CLIP/00000.png      the silhouettes: every value but 0

The joints of the first annotated frame are given. A joint is correct within 0.2 * the square root of the silhouette's
area in its frame. Joints that are not visible in the ground truth are void; joints predicted as hidden are wrong.
Sequences that are not from DAVIS (BADJA's extra videos) have other sizes and are skipped.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip, Scores, choose_clips
from timecycle.evaluation.metrics.keypoints import Pck, pck, silhouette_threshold
from timecycle.evaluation.protocols.dataset import find_folder, find_images
from timecycle.evaluation.protocols.propagated_labels import propagate_labels, read_keypoints
from timecycle.labels import Keypoints, Masks
from timecycle.progress import OnProgress
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import image_size

# The joints that BADJA annotates: their number in the files and their name in its catalogue.
JOINTS = {
    8: "upper_right_1",
    9: "upper_right_2",
    10: "upper_right_3",
    12: "upper_left_1",
    13: "upper_left_2",
    14: "upper_left_3",
    15: "neck_lower",
    18: "lower_right_1",
    19: "lower_right_2",
    20: "lower_right_3",
    22: "lower_left_1",
    23: "lower_left_2",
    24: "lower_left_3",
    25: "tail_0",
    28: "tail_3",
    31: "tail_6",
    32: "jaw",
    33: "nose",
    35: "right_ear",
    36: "left_ear",
}
_NAMES = tuple(JOINTS.values())

_CLIPS = 7  # of BADJA's sequences are from DAVIS: four in val, three in train
_ALPHA = 0.2
_WIDTH_PX, _HEIGHT_PX = 1920, 1080  # of the images that were annotated

# Scores cover the annotated frames after the first one, whose joints are given, unless they say otherwise.
_SCORES = (
    "PCK@0.2",  # share of correct joints among the given and visible ones; each joint of each frame weighs the same
    "PCK@0.2_mean_over_joints",  # the same share per joint, then the mean over joints
    "PCK@0.2_first_in",  # with the first annotated frame counted, as in the first version of PIPs
    "PCK@0.2_all_joints",  # joints that were not given also count, as wrong; PIPs and CoTracker count all visible ones
)

log = logging.getLogger("timecycle")


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The joints of the annotated frames, in pixels of the frames on disk."""

    xy: Float64[np.ndarray, "frames joints 2"]
    visible: Bool[np.ndarray, "frames joints"]


@dataclass(frozen=True)
class AnnotatedClip:
    """A clip with the files of its ground truth."""

    clip: Clip
    annotation: Path
    annotated_frames: tuple[int, ...]  # indices into clip.frames
    silhouettes: tuple[Path, ...]  # of the annotated frames


@dataclass(frozen=True)
class Badja:
    """The sequences whose DAVIS frames are on disk."""

    sequences: tuple[AnnotatedClip, ...]

    @property
    def name(self) -> str:
        return "badja"

    @property
    def clips(self) -> tuple[Clip, ...]:
        return tuple(sequence.clip for sequence in self.sequences)

    @property
    def ground_truth_files(self) -> list[Path]:
        return [path for one in self.sequences for path in (one.annotation, *one.silhouettes)]

    predict_clip = staticmethod(propagate_labels)

    def score(self, predictions: Path, *, progress: OnProgress | None = None) -> Scores:
        """Score every clip and average the clips: each weighs the same."""
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, sequence in enumerate(self.sequences, start=1):
            folder = find_folder(predictions / sequence.clip.name, what="predicted joints", remedy="predict it first")
            per_sequence[sequence.clip.name] = _score(sequence, folder)
            if progress:
                progress(done, len(self.sequences))
        overall = {name: float(np.mean([clip[name] for clip in per_sequence.values()])) for name in _SCORES}
        return Scores(overall={name: round(score, 6) for name, score in overall.items()}, per_sequence=per_sequence)


def find_badja(root: Path, *, davis: Path | None, names: Sequence[str] = ()) -> Badja:
    """Find the sequences annotated in `root` whose frames are in DAVIS; a warning says if some are missing.

    Without `davis` the frames are looked for in ROOT, in ROOT/DAVIS and in davis2016 and DAVIS beside ROOT.
    """
    own = root / "joint_annotations"
    annotations = own if own.is_dir() else find_folder(root, what="BADJA's annotations")
    files = {path.stem: path for path in sorted(annotations.glob("*.json"))}
    if not files:
        raise SettingsError(f"{annotations} holds no annotations of BADJA", remedy="it should hold CLIP.json files")
    davis = _davis_root(root, davis)
    sizes = [size for size in ("480p", "Full-Resolution") if (davis / "JPEGImages" / size).is_dir()]
    size = sizes[0] if sizes else "480p"
    check_davis = "check the folder of DAVIS, which --davis names"
    images = find_folder(davis / "JPEGImages" / size, what="DAVIS frames", remedy=check_davis)
    find_folder(davis / "Annotations" / size, what="DAVIS annotations, the silhouettes", remedy=check_davis)
    available = {name: path for name, path in files.items() if (images / name).is_dir()}
    if not available:
        raise SettingsError(
            f"none of the {len(files)} sequences annotated in {annotations} is in {images}",
            remedy="pass --davis DIR, the folder of a DAVIS that has them",
        )
    if len(available) != _CLIPS and not names:
        log.warning("%d of %d sequences of BADJA are in %s", len(available), _CLIPS, images)
    return Badja(tuple(_annotated_clip(available[name], davis, size) for name in choose_clips(list(available), names)))


def read_ground_truth(path: Path, frame: Path) -> GroundTruth:
    """Read the joints of a file's annotated frames, in pixels of an image of the size of `frame`."""
    size = image_size(frame, max_pixels=DEFAULT_MAX_PIXELS)
    scale = np.array([size.width_px / _WIDTH_PX, size.height_px / _HEIGHT_PX])
    records = _records(path)
    order = list(JOINTS)
    try:
        yx = np.array([record["joints"] for record in records], np.float64)[:, order]
        visible = np.array([record["visibility"] for record in records], bool)[:, order]
        xy = yx[..., ::-1].reshape(*visible.shape, 2)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise _not_badja(path, error) from error
    # The centre of pixel 0 lies half a pixel inside the image at every size.
    return GroundTruth((xy + 0.5) * scale - 0.5, visible)


def _score(sequence: AnnotatedClip, folder: Path) -> dict[str, Any]:
    ground_truth = read_ground_truth(sequence.annotation, sequence.clip.frames[0])
    predicted = read_keypoints(folder, sequence.annotated_frames, _NAMES)
    area_px = np.array([np.count_nonzero(Masks.read(path).ids) for path in sequence.silhouettes], np.float64)
    threshold_px = silhouette_threshold(area_px, _ALPHA)
    given = ground_truth.visible & ground_truth.visible[0]
    score = partial(pck, predicted.xy, ground_truth.xy, threshold_px=threshold_px)
    first_out, first_in = (score(counted=given, first_frame=first) for first in ("out", "in"))
    all_joints = score(counted=ground_truth.visible, first_frame="out")
    if not first_out.counted.any():
        raise LabelError(
            f"{sequence.annotation} has no joint of its first annotated frame on a later one",
            remedy="restore the file from BADJA's repository, or leave the sequence out with --sequences",
        )
    shares = (_share(first_out), first_out.mean, _share(first_in), _share(all_joints))
    per_joint = {name: share for name, share in zip(_NAMES, first_out.per_joint, strict=True) if np.isfinite(share)}
    return {
        **{name: round(share, 6) for name, share in zip(_SCORES, shares, strict=True)},
        "frames": len(sequence.annotated_frames) - 1,
        "per_joint": {name: round(float(share), 4) for name, share in per_joint.items()},
    }


def _share(one: Pck) -> float:
    """Return the share of correct joints over all joints and frames, each weighing the same."""
    return float(one.correct.sum() / one.counted.sum())


def _davis_root(root: Path, davis: Path | None) -> Path:
    beside = root.resolve().parent
    candidates = (davis,) if davis else (root, root / "DAVIS", beside / "davis2016", beside / "DAVIS")
    for folder in candidates:
        if (folder / "JPEGImages").is_dir():
            return folder
    raise SettingsError(
        f"there are no DAVIS frames: no folder JPEGImages in {', '.join(map(str, candidates))}",
        remedy="pass --davis DIR, the folder that holds JPEGImages and Annotations",
    )


def _annotated_clip(path: Path, davis: Path, size: str) -> AnnotatedClip:
    frames = find_images(davis / "JPEGImages" / size / path.stem, what=f"frames of {path.stem}")
    indices = {frame.stem: index for index, frame in enumerate(frames)}
    stems = [Path(record["image_path"]).stem for record in _records(path)]
    unknown = [stem for stem in stems if stem not in indices]
    if unknown:
        raise LabelError(
            f"{path} has joints of frame {unknown[0]}, which is not in {frames[0].parent}",
            remedy="restore the sequence's frames from DAVIS",
        )
    silhouettes = tuple(davis / "Annotations" / size / path.stem / f"{stem}.png" for stem in stems)
    missing = [silhouette for silhouette in silhouettes if not silhouette.is_file()]
    if missing:
        raise LabelError(f"there is no silhouette {missing[0]}", remedy="restore the sequence's masks from DAVIS")
    annotated_frames = tuple(indices[stem] for stem in stems)
    clip = Clip(
        name=path.stem,
        frames=frames[: max(annotated_frames) + 1],  # nothing is scored after the last annotated frame
        annotated_frame=annotated_frames[0],
        read_annotation=partial(_first_joints, path, frames[0]),
    )
    return AnnotatedClip(clip, path, annotated_frames, silhouettes)


def _first_joints(path: Path, frame: Path) -> Keypoints:
    ground_truth = read_ground_truth(path, frame)
    return Keypoints(_NAMES, ground_truth.xy[0].astype(np.float32), ground_truth.visible[0])


def _records(path: Path) -> list[Any]:
    """Read the records of the annotated frames, in temporal order."""
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        ordered = sorted(records, key=lambda record: Path(record["image_path"]).stem)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _not_badja(path, error) from error
    if not ordered:
        raise _not_badja(path, ValueError("it annotates no frame"))
    return ordered


def _not_badja(path: Path, error: Exception) -> LabelError:
    return LabelError(
        f"{path} is not an annotation of BADJA: {error!r}",
        remedy="restore it from BADJA's repository: a list with image_path, joints and visibility of every frame",
    )
