"""TAP-Vid point tracks: arrays `points` (tracks, frames, 2) as fractions of the image and `occluded` (tracks, frames).

TAP-Vid itself stores them in pickles, which can run code and are not read. Here they are in an .npz file, with `names`,
`size` and `fps` beside them. Points are measured from the corner of the first pixel.
"""

import math
import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.formats.format import Format
from timecycle.formats.video_labels import MAX_FRAMES, LazyLabels, VideoFacts, VideoLabels, points_of, size_of
from timecycle.labels import Keypoints

_MAX_BYTES = 1 << 30  # once it is unpacked
_REMEDY = "save arrays: numpy.savez('tracks.npz', points=sample['points'], occluded=sample['occluded'])"


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read tracks; a point without a position on a frame is hidden, a frame without any position has no labels."""
    arrays = _arrays(path)
    points, occluded = arrays.get("points"), arrays.get("occluded")
    if points is None or points.ndim != 3 or points.shape[2] != 2 or points.dtype.kind != "f":
        raise LabelError(f"{path} has no points of the shape (tracks, frames, 2)", remedy=_REMEDY)
    if occluded is None or occluded.shape != points.shape[:2] or occluded.dtype.kind not in "uib":
        raise LabelError(f"{path} has no occluded of the shape {points.shape[:2]}", remedy=_REMEDY)
    tracks, frames = points.shape[:2]
    if frames > MAX_FRAMES:
        raise LabelError(f"{path} has {frames} frames", remedy=_REMEDY)
    own = _size(arrays, path)
    size = own or video.size
    if size is None:
        raise LabelError(f"{path} does not say the size of the video", remedy="say which video it is: --video VIDEO")
    names = _names(arrays, tracks)
    xy = _pixels(points, size)
    hidden = occluded.astype(bool)

    def read_frame(index: int) -> Keypoints:
        there = np.isfinite(xy[:, index]).all(axis=1)
        return Keypoints(names, xy[:, index], ~hidden[:, index] & there)

    labelled = np.flatnonzero(np.isfinite(xy).all(axis=2).any(axis=0)).tolist()
    return VideoLabels(
        kind=Keypoints,
        labels=LazyLabels(labelled, read_frame),
        video=VideoFacts(name=str(path), frames=frames, size=own, fps=_fps(arrays)),
    )


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(member.file_size for member in packed.infolist()) > _MAX_BYTES:
                raise LabelError(f"{path} is larger than {_MAX_BYTES >> 30} GiB", remedy="split it by video")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("points", "occluded", "names", "size", "fps") if name in file}
    except LabelError:
        raise
    except Exception as error:  # damaged files raise nearly anything
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # a member that is no array is given as its bytes
            raise LabelError(f"{path} has no array in {name}", remedy=_REMEDY)
    return arrays


def _size(arrays: dict[str, np.ndarray], path: Path) -> tuple[int, int] | None:
    if "size" not in arrays:
        return None
    size = arrays["size"].ravel().tolist()
    if len(size) != 2 or not all(type(side) is int and 0 < side <= 1 << 16 for side in size):
        raise LabelError(f"{path} has the size {str(size)[:40]}", remedy="give (height, width) in pixels")
    return size[0], size[1]


def _fps(arrays: dict[str, np.ndarray]) -> float | None:
    fps = arrays.get("fps")
    if fps is None or fps.size != 1 or fps.dtype.kind not in "fiu":
        return None
    value = float(fps.item())
    return value if math.isfinite(value) and value > 0 else None


def _names(arrays: dict[str, np.ndarray], tracks: int) -> tuple[str, ...]:
    names = arrays.get("names")
    if (
        names is not None
        and names.shape == (tracks,)
        and names.dtype.kind == "U"
        and len(set(names.tolist())) == tracks
    ):
        return tuple(names.tolist())
    return tuple(f"point {i}" for i in range(1, tracks + 1))


def _pixels(
    points: Float[np.ndarray, "tracks frames 2"], size: tuple[int, int]
) -> Float[np.ndarray, "tracks frames 2"]:
    """Return pixel coordinates; what is far outside of the image has no position."""
    scaled = points.astype(np.float64) * (size[1], size[0]) - 0.5
    with np.errstate(invalid="ignore"):
        near = np.asarray((np.abs(scaled) < 1e6).all(axis=2, keepdims=True))
    return np.where(near, np.round(scaled, 4), np.nan).astype(np.float32)


def write(labels: VideoLabels, path: Path) -> None:
    """Write all frames of the video; points that a frame lacks are occluded, without a position."""
    height, width = size_of(labels)
    names = list(dict.fromkeys(name for one in labels.labels.values() for name in points_of(one).names))
    tracks = {name: i for i, name in enumerate(names)}
    points = np.full((len(names), labels.frames, 2), np.nan)
    occluded = np.ones((len(names), labels.frames), bool)
    for index, one in labels.labels.items():
        keypoints = points_of(one)
        rows = [tracks[name] for name in keypoints.names]
        points[rows, index] = (keypoints.xy.astype(np.float64) + 0.5) / (width, height)
        occluded[rows, index] = ~keypoints.visible
    with atomic_write(path) as file:
        np.savez_compressed(
            file,
            points=points,
            occluded=occluded,
            names=np.array(names, str),
            size=np.array([height, width]),
            fps=np.array(labels.video.fps or np.nan),
        )


def _recognises(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as packed:
            return "points.npy" in packed.namelist()
    except (zipfile.BadZipFile, NotImplementedError):  # damaged, or of a later version of zip
        return False


FORMAT = Format(
    name="tapvid",
    title="TAP-Vid point tracks",
    suffixes=(".npz",),
    kinds=("keypoints",),
    loses="confidence; frames on which no point has a position. TAP-Vid's own pickles are not read",
    read=read,
    write=write,
    recognises=_recognises,
)
