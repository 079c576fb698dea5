"""Videos and output folders as napari's layers, and samples to try the plugin on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
from napari.layers import Labels, Points

import timecycle as tc
from timecycle.demo import sample
from timecycle.integrations.napari.jobs import open_run
from timecycle.integrations.napari.layers import NAME, VIDEO_KEY, points_data, remember_run

LayerData = tuple[Any, dict[str, Any], str]


def get_reader(path: str | list[str]) -> Callable[[str], list[LayerData]] | None:
    """Return the reader of a video file or of an output folder; None for other folders and lists of files."""
    if isinstance(path, list):
        return None
    if Path(path).is_dir():
        return read_run if (Path(path) / "run.json").is_file() else None
    return read_video


def read_video(path: str) -> list[LayerData]:
    """Read a video as an image layer whose frames are decoded when they are shown: exact, by index."""
    return [_video_layer(tc.open_video(path), Path(path))]


def read_run(path: str) -> list[LayerData]:
    """Read an output folder as its video and a layer of its labels, ready to be corrected."""
    run = open_run(path)
    layer: Labels | Points
    if run.record["labels"]["kind"] == tc.Keypoints.kind:
        data, features = points_data(run.labels)
        layer = Points(data, features=features, ndim=3, **points_style())
    else:
        ids = np.stack([run.labels[index].ids for index in range(len(run))])  # type: ignore[attr-defined]
        layer = Labels(ids, name=f"{run.folder.name} labels")
    remember_run(layer, run.folder)
    return [_video_layer(run.video, Path(run.video.name)), layer.as_layer_data_tuple()]


def _video_layer(video: "tc.Video", path: Path) -> LayerData:
    def frame(block_info: Any = None) -> np.ndarray:
        index = block_info[None]["array-location"][0][0]
        image: np.ndarray = video[index].image[None]
        return image

    height_px, width_px = video.size.shape
    chunks = ((1,) * len(video), (height_px,), (width_px,), (3,))
    data = dask.array.map_blocks(frame, chunks=chunks, dtype=np.uint8, meta=np.empty((0, 0, 0, 0), np.uint8))
    return data, {"name": path.stem, "rgb": True, "metadata": {VIDEO_KEY: str(path.absolute())}}, "image"


def points_style() -> dict[str, Any]:
    """Return how points are shown: with their names beside them."""
    text = {"string": "{" + NAME + "}", "size": 9, "color": "white", "translation": np.array([0, -6, 0])}
    return {"size": 6, "text": text, "name": "points"}


def sample_masks() -> list[LayerData]:
    """Return the clip of `timecycle demo` with the masks of its first frame."""
    video, masks, _ = sample()
    labels = np.zeros(video.shape[:3], np.uint16)
    labels[0] = masks.ids
    return [(video, {"name": "synthetic clip", "rgb": True}, "image"), (labels, {"name": "masks"}, "labels")]


def sample_points() -> list[LayerData]:
    """Return the clip of `timecycle demo` with the keypoints of its first frame."""
    video, _, points = sample()
    data, features = points_data({0: points})
    return [
        (video, {"name": "synthetic clip", "rgb": True}, "image"),
        (data, {"features": features, "ndim": 3, **points_style()}, "points"),
    ]
