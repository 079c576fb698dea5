"""Our tracker in the real napari-deeplabcut: its registry, its worker, its widget."""

import numpy as np
import pytest

import timecycle as tc
from clips import small_world

pytest.importorskip("napari", reason="napari is not installed")
models = pytest.importorskip(
    "napari_deeplabcut.tracking.core.models", reason="napari-deeplabcut is not installed", exc_type=ImportError
)

import pandas as pd
from napari_deeplabcut.tracking.core.data import TrackingWorkerData, add_query_identity_columns
from napari_deeplabcut.tracking.ui.worker import TrackingWorker

from timecycle.integrations.napari import activate
from timecycle.integrations.napari.deeplabcut_tracking import TRACKER, TrackingWidget, track

FRAMES = 6


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture(scope="module")
def seeds(world):
    """Points of frame 0 as a Points layer has them, (frame, y, x), with x and y that cannot be exchanged unseen."""
    xy = world.keypoints(0).xy[:2]
    assert np.abs(xy[:, 0] - xy[:, 1]).min() > 5
    return np.column_stack([np.zeros(len(xy)), xy[:, ::-1]])


def request_for(world, seeds, *, backward=False):
    frames = world.video()
    features = pd.DataFrame({"label": ["nose", "tail"], "id": ["", ""]})
    return TrackingWorkerData(
        tracker_name=TRACKER,
        video=frames[::-1] if backward else frames,
        keypoints=seeds,
        keypoint_features=add_query_identity_columns(features, query_frame=0, source_layer_name="points"),
        keypoint_range=(10, 10 + FRAMES),  # frames of a longer video
        backward_tracking=backward,
        reference_frame_index=10,
    )


def run_worker(request):
    """Run a request as the widget does, in this thread."""
    activate(None)
    worker, done, steps = TrackingWorker(), [], []
    worker.trackingFinished.connect(done.append)
    worker.progress.connect(lambda *step: steps.append(step))
    worker.track(request)
    return (done[0] if done else None), steps


def test_activating_the_plugin_registers_the_tracker():
    activate(None)
    assert issubclass(models.AVAILABLE_TRACKERS[TRACKER]["class"], models.TrackingModel)


def test_points_come_back_as_frame_y_x_where_the_api_puts_them(qt_app, world, seeds):
    output, steps = run_worker(request_for(world, seeds))
    start = tc.Keypoints(("nose", "tail"), seeds[:, [2, 1]].astype(np.float32), np.ones(2, bool))
    for frame in tc.propagate(world.video(), {0: start}):
        here = output.keypoints[:, 0] == 10 + frame.index
        known = np.isfinite(frame.labels.xy).all(axis=1)
        assert np.allclose(output.keypoints[here][:, [2, 1]], frame.labels.xy[known])
        names = [name for name, one in zip(frame.labels.names, known, strict=True) if one]
        assert output.keypoint_features["label"][here].tolist() == names
    assert np.allclose(output.keypoints[:2, 1:], seeds[:, 1:])
    assert output.keypoint_features["likelihood"].between(0, 1).all()
    assert steps[-1] == (FRAMES, FRAMES)


def test_axes_are_those_of_their_cotracker(qt_app, world, seeds, monkeypatch):
    """Their CoTracker, with a network that leaves points where they are, returns what it was given; so must ours."""
    import torch

    class Still(torch.nn.Module):
        def forward(self, video, queries):
            frames = video.shape[1]
            return queries[:, None, :, 1:].expand(-1, frames, -1, -1), torch.ones(1, frames, queries.shape[1])

    monkeypatch.setattr(models.Cotracker3, "load_model", lambda self, device: Still())
    request = request_for(world, seeds)
    theirs = models.Cotracker3(request)
    raw = theirs.run(theirs.prepare_inputs(request), lambda *step: None, lambda: False)
    rows = theirs.prepare_outputs(raw, request).keypoints
    ours, _ = run_worker(request)
    assert np.allclose(rows[:2], ours.keypoints[:2])
    assert raw.keypoints.shape == (FRAMES, 2, 2)
    assert np.allclose(raw.keypoints[0], seeds[:, [2, 1]])  # CoTracker itself takes x before y


def test_a_reversed_video_gives_rows_in_the_order_of_the_video(qt_app, world, seeds):
    output, _ = run_worker(request_for(world, seeds, backward=True))
    assert output.keypoints[-1, 0] == 10 + FRAMES - 1
    assert np.allclose(output.keypoints[-2:, 1:], seeds[:, 1:])  # the reference is the last frame of the range


def test_stopping_ends_the_tracking(world, seeds):
    assert track(world.video(), seeds, progress=lambda *step: None, stop=lambda: True) is None


def test_16_bit_frames_are_tracked_like_8_bit_ones(world, seeds):
    grey = world.video().mean(axis=3).astype(np.uint8)
    grey[0, 0, :2] = 0, 255
    wide = grey.astype(np.uint16) * 100
    ask = {"progress": lambda *step: None, "stop": lambda: False}
    assert np.array_equal(track(grey, seeds, **ask)[0], track(wide, seeds, **ask)[0], equal_nan=True)


def test_our_widget_opens_theirs_with_our_tracker_chosen(qt_app, viewer):
    controls = TrackingWidget(viewer)
    assert controls._tracking_method_combo.currentText() == TRACKER
    assert "timecycle" in controls._model_info_button.toolTip()
