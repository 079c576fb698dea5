"""BADJA: joints of animals in DAVIS sequences, annotated about every fifth frame; PCK of those frames.

ROOT/CLIP.json                             or ROOT/joint_annotations/CLIP.json, as in BADJA's own repository
DAVIS/JPEGImages/480p/CLIP/00000.jpg       or Full-Resolution; 480p where both are there
DAVIS/Annotations/480p/CLIP/00000.png      the silhouettes: every value but 0

The joints of the first annotated frame are given. A joint is right within 0.2 * the square root of the silhouette's
area in its frame. Joints that are not visible in the truth are void; those the prediction calls hidden are wrong.
Sequences that are not of DAVIS (BADJA's extra videos) have other sizes and are left out.
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
from timecycle.evaluation.benchmark import Clip, Progress, Scores, choose
from timecycle.evaluation.carrying import carry_labels
from timecycle.evaluation.layout import folder_of, images_in
from timecycle.evaluation.metrics.keypoints import Pck, pck, silhouette_reach
from timecycle.evaluation.points import read_points
from timecycle.labels import Keypoints, Masks
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import image_size

# The joints BADJA annotates, by their number in the files and as its catalogue names them.
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

_CLIPS = 7  # of BADJA are of DAVIS: four of them in val, three in train
_ALPHA = 0.2
_WIDTH_PX, _HEIGHT_PX = 1920, 1080  # of the images that were annotated

# What each score is. All are of the annotated frames after the first one, whose joints are given, unless they say so.
_SCORES = (
    "PCK@0.2",  # right joints among those that were given and are visible, each joint of each frame weighing the same
    "PCK@0.2_mean_over_joints",  # the same joint by joint, then the mean over joints
    "PCK@0.2_first_in",  # with the given frame counted, as PIPs at first did
    "PCK@0.2_all_joints",  # joints that were not given count too, as wrong; PIPs and CoTracker count all visible ones
)

log = logging.getLogger("timecycle")


@dataclass(frozen=True, eq=False)
class Truth:
    """The joints of the annotated frames, in pixels of the frames that are there."""

    xy: Float64[np.ndarray, "frames joints 2"]
    visible: Bool[np.ndarray, "frames joints"]


@dataclass(frozen=True)
class AnnotatedClip:
    """A clip, and where its truth is."""

    clip: Clip
    annotation: Path
    annotated: tuple[int, ...]  # the annotated frames, by their place in clip.frames
    silhouettes: tuple[Path, ...]  # of the annotated frames


@dataclass(frozen=True)
class Badja:
    """The sequences whose DAVIS frames are there."""

    sequences: tuple[AnnotatedClip, ...]

    @property
    def name(self) -> str:
        return "badja"

    @property
    def clips(self) -> tuple[Clip, ...]:
        return tuple(sequence.clip for sequence in self.sequences)

    @property
    def truth_files(self) -> list[Path]:
        return [path for one in self.sequences for path in (one.annotation, *one.silhouettes)]

    predict_clip = staticmethod(carry_labels)

    def score(self, predictions: Path, *, progress: Progress | None = None) -> Scores:
        """Every clip's scores, and their mean: each clip weighs the same."""
        per_sequence: dict[str, dict[str, Any]] = {}
        for done, sequence in enumerate(self.sequences, start=1):
            folder = folder_of(predictions / sequence.clip.name, what="predicted joints", remedy="predict it first")
            per_sequence[sequence.clip.name] = _score(sequence, folder)
            if progress:
                progress(done, len(self.sequences))
        overall = {name: float(np.mean([clip[name] for clip in per_sequence.values()])) for name in _SCORES}
        return Scores(overall={name: round(score, 6) for name, score in overall.items()}, per_sequence=per_sequence)


def find_badja(root: Path, *, davis: Path | None, names: Sequence[str] = ()) -> Badja:
    """The sequences annotated in `root` whose frames are in DAVIS. A part will do: how many there are is logged.

    Without `davis` its frames are looked for in ROOT, in ROOT/DAVIS and in davis2016 and DAVIS beside ROOT.
    """
    own = root / "joint_annotations"
    annotations = own if own.is_dir() else folder_of(root, what="BADJA's annotations")
    files = {path.stem: path for path in sorted(annotations.glob("*.json"))}
    if not files:
        raise SettingsError(f"{annotations} holds no annotations of BADJA", remedy="it should hold CLIP.json files")
    davis = _davis_root(root, davis)
    sizes = [size for size in ("480p", "Full-Resolution") if (davis / "JPEGImages" / size).is_dir()]
    size = sizes[0] if sizes else "480p"
    check_davis = "check the folder of DAVIS, which --davis names"
    images = folder_of(davis / "JPEGImages" / size, what="DAVIS frames", remedy=check_davis)
    folder_of(davis / "Annotations" / size, what="DAVIS annotations, the silhouettes", remedy=check_davis)
    there = {name: path for name, path in files.items() if (images / name).is_dir()}
    if not there:
        raise SettingsError(
            f"none of the {len(files)} sequences annotated in {annotations} is in {images}",
            remedy="pass --davis DIR, the folder of a DAVIS that has them",
        )
    if len(there) != _CLIPS and not names:
        log.warning("%d of %d sequences of BADJA are in %s", len(there), _CLIPS, images)
    return Badja(tuple(_annotated_clip(there[name], davis, size) for name in choose(list(there), names)))


def read_truth(path: Path, frame: Path) -> Truth:
    """The joints of a file's annotated frames, in pixels of an image like `frame`."""
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
    return Truth((xy + 0.5) * scale - 0.5, visible)


def _score(sequence: AnnotatedClip, folder: Path) -> dict[str, Any]:
    truth = read_truth(sequence.annotation, sequence.clip.frames[0])
    found = read_points(folder, sequence.annotated, _NAMES)
    area_px = np.array([np.count_nonzero(Masks.read(path).ids) for path in sequence.silhouettes], np.float64)
    reach_px = silhouette_reach(area_px, _ALPHA)
    given = truth.visible & truth.visible[0]
    out = pck(found.xy, truth.xy, counted=given, reach_px=reach_px, first_frame="out")
    first_in = pck(found.xy, truth.xy, counted=given, reach_px=reach_px, first_frame="in")
    everyone = pck(found.xy, truth.xy, counted=truth.visible, reach_px=reach_px, first_frame="out")
    if not out.counted.any():
        raise LabelError(
            f"{sequence.annotation} has no joint of its first annotated frame on a later one",
            remedy="restore the file from BADJA's repository, or leave the sequence out with --sequences",
        )
    shares = (_share(out), out.mean, _share(first_in), _share(everyone))
    per_joint = {name: share for name, share in zip(_NAMES, out.per_joint, strict=True) if np.isfinite(share)}
    return {
        **{name: round(share, 6) for name, share in zip(_SCORES, shares, strict=True)},
        "frames": len(sequence.annotated) - 1,
        "per_joint": {name: round(float(share), 4) for name, share in per_joint.items()},
    }


def _share(one: Pck) -> float:
    """Of all joints of all frames, each weighing the same."""
    return float(one.right.sum() / one.counted.sum())


def _davis_root(root: Path, davis: Path | None) -> Path:
    beside = root.resolve().parent
    places = (davis,) if davis else (root, root / "DAVIS", beside / "davis2016", beside / "DAVIS")
    for place in places:
        if (place / "JPEGImages").is_dir():
            return place
    raise SettingsError(
        f"there are no DAVIS frames: no folder JPEGImages in {', '.join(map(str, places))}",
        remedy="pass --davis DIR, the folder that holds JPEGImages and Annotations",
    )


def _annotated_clip(path: Path, davis: Path, size: str) -> AnnotatedClip:
    frames = images_in(davis / "JPEGImages" / size / path.stem, what=f"frames of {path.stem}")
    places = {frame.stem: place for place, frame in enumerate(frames)}
    stems = [Path(record["image_path"]).stem for record in _records(path)]
    strange = [stem for stem in stems if stem not in places]
    if strange:
        raise LabelError(
            f"{path} has joints of frame {strange[0]}, which is not in {frames[0].parent}",
            remedy="restore the sequence's frames from DAVIS",
        )
    silhouettes = tuple(davis / "Annotations" / size / path.stem / f"{stem}.png" for stem in stems)
    missing = [silhouette for silhouette in silhouettes if not silhouette.is_file()]
    if missing:
        raise LabelError(f"there is no silhouette {missing[0]}", remedy="restore the sequence's masks from DAVIS")
    annotated = tuple(places[stem] for stem in stems)
    clip = Clip(
        name=path.stem,
        frames=frames[: max(annotated) + 1],  # nothing is scored after the last annotated frame
        first=annotated[0],
        given=partial(_first_joints, path, frames[0]),
    )
    return AnnotatedClip(clip, path, annotated, silhouettes)


def _first_joints(path: Path, frame: Path) -> Keypoints:
    truth = read_truth(path, frame)
    return Keypoints(_NAMES, truth.xy[0].astype(np.float32), truth.visible[0])


def _records(path: Path) -> list[Any]:
    """What is annotated of each frame, in the order of time."""
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
