"""Between napari's layers and the types of the API. napari's axes are (time, y, x), ours are points (x, y)."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from napari.layers import Image, Labels, Points

import timecycle as tc
from timecycle.errors import LabelError, VideoError

VIDEO_KEY = "timecycle_video"  # in the metadata of an Image layer: the path of the video that it shows
RUN_KEY = "timecycle_run"  # in the metadata of a Labels or Points layer: the run whose labels it shows
NAME = "name"  # the feature of a Points layer that tells points apart

Layer = Any  # napari passes proxies of layers to plugins, which no annotation of a layer's class admits


@dataclass(frozen=True)
class ShownRun:
    """The run whose labels a layer shows, and its frames as they were put into the layer: others were edited since."""

    folder: Path
    digests: Mapping[int, str]


# Videos


def layer_video(layer: Layer) -> "tc.Video | str":
    """Return the video that an Image layer shows: the path of its file, if our reader opened it, or its pixels."""
    path: str | None = layer.metadata.get(VIDEO_KEY)
    return tc.open_video(LayerFrames(layer)) if path is None else path


def open_layer_video(layer: Layer) -> "tc.Video":
    """Open the video that an Image layer shows."""
    video = layer_video(layer)
    return tc.open_video(video) if isinstance(video, str) else video


def frame_count(layer: Layer) -> int:
    """Return the number of frames of an Image layer; refuses layers that are not (time, y, x)."""
    if layer.ndim != 3:
        raise VideoError(
            f"the image layer {layer.name!r} has {layer.ndim} dimensions",
            remedy="show one channel and one plane of it, so that it is (time, y, x)",
        )
    return int(layer.level_shapes[0][0]) if layer.multiscale else int(layer.data.shape[0])


class LayerFrames(Sequence[np.ndarray]):
    """The frames of an Image layer as 8-bit images, made when they are asked for: layers may be larger than memory.

    Other types than 8 bits are scaled by the contrast limits, as the person sees them.
    """

    def __init__(self, layer: Layer) -> None:
        self._count = frame_count(layer)
        self._data = layer.data[0] if layer.multiscale else layer.data
        self._rgb = bool(layer.rgb)
        self._limits = tuple(map(float, layer.contrast_limits))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        frame = np.asarray(self._data[index])
        if self._rgb:
            frame = frame[..., :3]
        if frame.dtype == np.uint8:
            return frame
        low, high = (0.0, 1.0) if self._rgb and frame.dtype.kind == "f" else self._limits
        scaled = (frame.astype(np.float32) - low) * (255 / max(high - low, 1e-12))
        return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


# Annotations


def annotations_of(layer: Layer, image: Layer, names: Sequence[str] = ()) -> "dict[int, tc.Labels]":
    """Return the annotated frames of a Labels or Points layer: those on which anything is painted or placed."""
    _check_fit(layer, image)
    labels: dict[int, tc.Labels]
    if isinstance(layer, Points):
        labels = dict(_keypoints(layer, names))
    else:
        labels = {index: tc.Masks.of(ids) for index, ids in _frames(layer) if ids.any()}
    if not labels:
        what = "no point is placed" if isinstance(layer, Points) else "nothing is painted"
        raise LabelError(f"{what} in the layer {layer.name!r}", remedy="annotate the objects on one frame first")
    return labels


def corrections_of(layer: Layer, image: Layer, shown: ShownRun, names: Sequence[str] = ()) -> "dict[int, tc.Labels]":
    """Return the frames of a layer that were edited since the run was put into it, restricted to the edited objects."""
    _check_fit(layer, image)
    before = tc.Run(shown.folder).labels
    edited = [index for index, digest in digests_of(layer, names).items() if shown.digests.get(index) != digest]
    if isinstance(layer, Points):
        now = dict(_keypoints(layer, names))
        return {index: _edited_points(before[index], now.get(index)) for index in edited}
    return {index: _edited_masks(before[index], tc.Masks.of(np.asarray(layer.data[index]))) for index in edited}


def _edited_masks(before: Any, now: "tc.Masks") -> "tc.Masks":
    """Restrict a mask to the objects that were edited on it.

    One that was erased is absent, which only a statement about all objects can say.
    """
    differs = before.ids != now.ids
    edited = set(np.unique(np.concatenate([before.ids[differs], now.ids[differs]])).tolist()) - {0}
    if not edited <= set(np.unique(now.ids).tolist()):
        return now.as_exhaustive()
    return now.restricted_to(frozenset(map(str, edited)))


def _edited_points(before: Any, now: "tc.Keypoints | None") -> "tc.Keypoints":
    """Return the points that were moved or added on a frame, and, hidden, those that were removed."""
    old = {name: xy for name, xy, seen in zip(before.names, before.xy, before.visible, strict=True) if seen}
    new = dict(zip(now.names, now.xy, strict=True)) if now is not None else {}
    moved = {name: xy for name, xy in new.items() if name not in old or not np.array_equal(xy, old[name])}
    removed = [name for name in old if name not in new]
    xy = np.array([*moved.values(), *([np.nan, np.nan] for _ in removed)], np.float32).reshape(-1, 2)
    visible = np.array([True] * len(moved) + [False] * len(removed), bool)
    return tc.Keypoints((*moved, *removed), xy, visible)


def digests_of(layer: Layer, names: Sequence[str] = ()) -> dict[int, str]:
    """Return a checksum of every frame of a layer that has, or may have, labels."""
    if isinstance(layer, Points):
        named = dict(_keypoints(layer, names))
        shown = layer.metadata.get(RUN_KEY)
        frames = sorted(named.keys() | (shown.digests.keys() if shown is not None else ()))
        return {index: _points_digest(named.get(index)) for index in frames}
    return {index: _digest(np.ascontiguousarray(ids).tobytes()) for index, ids in _frames(layer)}


def _points_digest(points: "tc.Keypoints | None") -> str:
    if points is None:
        return _digest(b"")
    rows = sorted(zip(points.names, points.xy.tolist(), strict=True))
    return _digest(repr(rows).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _frames(layer: Layer) -> Iterator[tuple[int, np.ndarray]]:
    data = layer.data[0] if layer.multiscale else layer.data
    for index in range(len(data)):
        yield index, np.asarray(data[index])


def _keypoints(layer: Layer, names: Sequence[str]) -> "Iterator[tuple[int, tc.Keypoints]]":
    """Yield the named points of every frame that has some; `names` are given to points without a name, in order."""
    data = np.asarray(layer.data, float)
    frames = np.rint(data[:, 0]).astype(int) if len(data) else np.empty(0, int)
    features = layer.features
    given = [str(name) for name in features[NAME]] if NAME in features else [""] * len(data)
    known = list(dict.fromkeys([*names, *(name for name in given if name not in _NO_NAME)]))
    for index in np.unique(frames).tolist():
        rows = np.flatnonzero(frames == index)
        xy = data[rows][:, [2, 1]].astype(np.float32)
        named = _distinct([given[row] for row in rows], known)
        yield index, tc.Keypoints(tuple(named), xy, np.ones(len(rows), bool))


_NO_NAME = ("", "nan", "None")  # how napari writes a feature that was not given


def _distinct(given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Name the points of one frame: the first to have a name keeps it, others get the next name that is free.

    napari gives a new point the features of the last one, so that a point that is added to a frame repeats a name.
    """
    free = [name for name in known if name not in given]
    result: list[str] = []
    for name in given:
        if name in _NO_NAME or name in result:
            numbers = (str(number) for number in range(1, 2 + len(given) + len(known)))
            taken = {*given, *result, *known}
            name = free.pop(0) if free else next(one for one in numbers if one not in taken)  # noqa: PLW2901
        result.append(name)
    return result


def _check_fit(layer: Layer, image: Layer) -> None:
    """Refuse a layer that does not lie on the video."""
    frames = frame_count(image)
    if layer.ndim != 3:
        raise LabelError(
            f"the layer {layer.name!r} has {layer.ndim} dimensions",
            remedy="select the video in the list of layers, then make a new layer: it will be (time, y, x)",
        )
    if not (np.allclose(layer.scale, image.scale) and np.allclose(layer.translate, image.translate)):
        raise LabelError(
            f"the layers {layer.name!r} and {image.name!r} have another scale or translation",
            remedy="give both layers the same scale and translate",
        )
    shape = tuple(layer.data.shape) if isinstance(layer, Labels) else None
    size = tuple(image.level_shapes[0][:3]) if image.multiscale else tuple(image.data.shape[:3])
    if shape is not None and shape != size:
        raise LabelError(
            f"the layer {layer.name!r} has the shape {shape} but the video has {frames} frames of {size[1]}x{size[2]}",
            remedy="select the video in the list of layers, then make a new Labels layer",
        )


# Results


def show_labels(layer: Layer, labels: "Mapping[int, tc.Labels]", folder: Path) -> None:
    """Put the labels of a run into a layer: masks of some frames, or the points of all frames."""
    if isinstance(layer, Points):
        data, features = points_data(labels)
        layer.selected_data = set()
        layer.data = data
        layer.features = features
        with suppress(KeyError, ValueError):  # a new point without a name gets one that is free
            layer.feature_defaults = {NAME: "", "confidence": np.nan}
    else:
        for index, one in labels.items():
            layer.data[index] = one.ids  # type: ignore[attr-defined]
        layer.refresh()
    remember_run(layer, folder)


def remember_run(layer: Layer, folder: Path) -> None:
    """Note in a layer which run it shows."""
    layer.metadata[RUN_KEY] = ShownRun(folder, digests_of(layer))


def keep_frames(layer: Layer, frames: Sequence[int]) -> None:
    """Empty all other frames of a layer and forget the run that it shows."""
    layer.metadata.pop(RUN_KEY, None)
    if isinstance(layer, Points):
        kept = np.isin(np.rint(np.asarray(layer.data)[:, 0]), list(frames))
        features = layer.features[kept].reset_index(drop=True)
        layer.selected_data = set()
        layer.data = np.asarray(layer.data)[kept]
        layer.features = features
        return
    for index in set(range(len(layer.data))) - set(frames):
        layer.data[index] = 0
    layer.refresh()


def points_data(labels: Mapping[int, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the visible points of all frames as napari has them: rows (time, y, x), with their features."""
    rows, names, confidence = [], [], []
    for index, points in labels.items():
        values = points.confidence if points.confidence is not None else np.full(len(points.names), np.nan)
        for name, (x, y), seen, value in zip(points.names, points.xy, points.visible, values, strict=True):
            if seen and np.isfinite((x, y)).all():
                rows.append((index, y, x))
                names.append(name)
                confidence.append(float(value))
    data = np.array(rows, float).reshape(-1, 3)
    return data, {NAME: np.array(names, object), "confidence": np.array(confidence)}


def is_video_layer(layer: Layer) -> bool:
    return isinstance(layer, Image)


def is_annotation_layer(layer: Layer) -> bool:
    return isinstance(layer, Labels | Points)
