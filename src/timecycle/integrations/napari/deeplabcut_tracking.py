"""Our propagation as a tracker of napari-deeplabcut (0.4), beside its CoTracker.

napari-deeplabcut has a registry of trackers but no entry points for it: a tracker is there once its module was
imported, and the list in its widget is filled when the widget is made. So ours is registered when napari activates this
plugin, and a widget of this plugin opens theirs.

Their comments call the columns of keypoints (frame, x, y). What the widget passes are the rows of a Points layer,
(frame, y, x), and what comes back is added as a Points layer: (frame, y, x) again. Their CoTracker exchanges the last
two columns on the way in and out, as CoTracker takes x before y. So do we.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

import timecycle as tc
from timecycle.errors import LabelError
from timecycle.extras import import_extra

TRACKER = "timecycle"

_INFO = (
    "timecycle: nearest neighbours of features that were learned without labels, with a confidence for every point.\n"
    "Runs on the CPU too. Nothing is downloaded."
)


def is_installed() -> bool:
    """Say whether napari-deeplabcut is there, with trackers."""
    return find_spec("napari_deeplabcut") is not None and find_spec("napari_deeplabcut.tracking") is not None


def track(
    frames: np.ndarray,
    queries: np.ndarray,
    *,
    progress: Callable[[int, int], None],
    stop: Callable[[], bool],
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Propagate points of the first frame through the others; None once `stop` says so.

    frames: (time, height, width[, channels]). queries: rows (frame, y, x) as in a Points layer, all of frame 0.

    Returns positions (time, points, [x, y]), NaN where nothing is known of a point, and the visibility and confidence
    of points (time, points).
    """
    if len(queries) and np.rint(queries[:, 0]).any():
        raise LabelError("a point to track is not on the first frame", remedy="choose its frame as the reference")
    names = tuple(str(number) for number in range(len(queries)))
    xy = np.asarray(queries, np.float32)[:, [2, 1]]
    start = tc.Keypoints(names, xy, np.ones(len(names), bool))
    video = tc.open_video(_images(np.asarray(frames)))
    positions, visible, confidence = [], [], []
    for labelled in tc.propagate(video, {0: start}, encoder=_encoder(), progress=progress):
        if stop():
            return None
        points = labelled.labels
        objects = labelled.confidence.objects if labelled.confidence is not None else {}
        positions.append(points.xy)
        visible.append(points.visible)
        confidence.append([objects[name].value if name in objects else np.nan for name in names])
    return np.array(positions, float), np.array(visible, bool), np.array(confidence, float)


@cache
def register_tracker() -> type:
    """Register our tracker with napari-deeplabcut and return its class."""
    models = _import_theirs("tracking.core.models")
    data = _import_theirs("tracking.core.data")

    class TimecycleTracker(models.TrackingModel):  # type: ignore[name-defined]
        """Points of the reference frame, propagated through the other frames of the range."""

        name = TRACKER
        info_text = _INFO

        def auto_set_device(self) -> str:
            return "cpu"  # the encoder chooses its device itself; this name is not used

        def load_model(self, device: str) -> Any:
            return _encoder()

        def prepare_inputs(self, cfg: Any, **options: Any) -> Any:
            metadata = {"keypoint_range": cfg.keypoint_range}
            return data.TrackingModelInputs(np.asarray(cfg.video), np.array(cfg.keypoints, float), metadata)

        def run(self, inputs: Any, progress_callback: Any, stop_callback: Any, **options: Any) -> Any:
            tracks = track(inputs.video, inputs.keypoints, progress=progress_callback, stop=stop_callback)
            if tracks is None:
                return None
            positions, visible, confidence = tracks
            return data.RawModelOutputs(positions, {"visibility": visible, "confidence": confidence})

        def prepare_outputs(self, model_outputs: Any, worker_inputs: Any = None, **options: Any) -> Any:
            frames = np.arange(*map(int, worker_inputs.keypoint_range))
            backward = slice(None, None, -1 if worker_inputs.backward_tracking else 1)  # the video came reversed
            positions = model_outputs.keypoints[backward]
            visible = model_outputs.keypoint_features["visibility"][backward]
            features = data.expand_query_features_over_time(
                worker_inputs.keypoint_features, frame_ids=frames, visibility=visible, tracker_name=TRACKER
            )
            features["likelihood"] = model_outputs.keypoint_features["confidence"][backward].ravel()
            rows = np.column_stack([np.repeat(frames, positions.shape[1]), positions.reshape(-1, 2)[:, ::-1]])
            known = np.isfinite(rows).all(axis=1)  # a Points layer cannot hold the others
            return data.TrackingWorkerOutput(rows[known], features[known].reset_index(drop=True))

        def validate_outputs(self, inputs: Any, outputs: Any) -> tuple[bool, str]:
            first, end = inputs.metadata["keypoint_range"]
            rows, frames = outputs.keypoints, outputs.keypoints[:, 0]
            if len(rows) != len(outputs.keypoint_features):
                return False, f"{len(rows)} points have {len(outputs.keypoint_features)} rows of features"
            return bool(((frames >= first) & (frames < end)).all()), "a point is on a frame that was not asked for"

    models.register_backbone(TRACKER)(TimecycleTracker)
    return TimecycleTracker


class TrackingWidget:
    """Stands for the tracking controls of napari-deeplabcut, with our tracker in their list, chosen."""

    def __new__(cls, napari_viewer: Any) -> Any:
        register_tracker()
        widgets = _import_theirs("tracking._widgets")
        controls = widgets.TrackingControls(napari_viewer)
        controls._tracking_method_combo.setCurrentText(TRACKER)
        return controls

    def __init__(self, napari_viewer: Any) -> None:
        """Not called, as `__new__` returns another class; napari reads its parameters."""


def _import_theirs(module: str) -> Any:
    return import_extra(f"napari_deeplabcut.{module}", extra="napari", packages=("napari-deeplabcut",))


@cache
def _encoder() -> "tc.Encoder":
    return tc.load_encoder()


def _images(frames: np.ndarray) -> list[np.ndarray]:
    """Return frames as 8-bit images, grey or RGB; other types are scaled by the range of their values."""
    if frames.ndim == 4:
        frames = frames[..., :3] if frames.shape[-1] >= 3 else frames[..., 0]
    if frames.dtype == np.uint8:
        return list(frames)
    low, high = float(frames.min()), float(frames.max())
    return [np.rint((one.astype(np.float32) - low) * (255 / max(high - low, 1e-12))).astype(np.uint8) for one in frames]
