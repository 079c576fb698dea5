"""Methods without an encoder: copying keeps the labels, optical flow tracks motion."""

import numpy as np
import pytest

from oracle import iou
from timecycle.errors import LabelError, VideoError
from timecycle.evaluation.methods.registry import load_method, method_names
from timecycle.labels import Coordinates, Keypoints, Masks, Parts
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

CONFIG = PropagateConfig(image_size_px=480)


def sliding(frames: int = 6, step: int = 3) -> np.ndarray:
    """Crop a rich texture with a window that slides to the left, so that everything moves right by `step` pixels."""
    texture = make_world(WorldConfig(height_px=160, width_px=320, frames=2, objects=1, seed=5)).frame(0)
    return np.stack([texture[:, 60 - t * step : 60 - t * step + 200] for t in range(frames)])


@pytest.fixture(scope="module")
def flow():
    return load_method("dis-flow")


def test_method_names_include_baselines_and_encoders():
    assert {"identity", "dis-flow", "rgb", "vgg16"} <= set(method_names())


def test_copying_keeps_the_labels_and_has_no_flow():
    frames, labels = sliding(), Masks.of_box(160, 200, (20, 20, 60, 60))
    method = load_method("identity")
    predictions = list(method.propagate(open_video(frames), 2, labels, CONFIG))
    assert [prediction.index for prediction in predictions] == [2, 3, 4, 5]
    assert all(prediction.labels is labels for prediction in predictions)
    assert not method.flow(frames[0], frames[1], CONFIG).any()


def test_flow_tracks_masks_parts_and_points_on_a_moving_texture(flow):
    video, box = open_video(sliding()), (60, 50, 110, 100)
    masks = Masks.of_box(160, 200, box)
    parts = Parts(masks.ids, np.minimum(masks.ids, 1) * np.uint16(3))
    points = Keypoints(("a", "b"), np.array([[80.0, 70.0], [100.0, 90.0]], np.float32), np.array([True, True]))
    expected = Masks.of_box(160, 200, (75, 50, 125, 100)).ids
    last = {
        kind: list(flow.propagate(video, 0, annotation, CONFIG))[-1].labels
        for kind, annotation in (("masks", masks), ("parts", parts), ("points", points))
    }
    assert iou(last["masks"].ids > 0, expected > 0) > 0.93
    assert iou(last["parts"].person == 3, expected > 0) > 0.93
    assert np.abs(last["points"].xy - points.xy - [15, 0]).max() < 1


def test_flow_equals_the_known_motion(flow):
    frames = sliding()
    inner = (slice(30, -30), slice(40, -40))
    for size in (480, 80):  # also computed on a smaller image
        dense = flow.flow(frames[0], frames[2], PropagateConfig(image_size_px=size))
        assert dense.shape == (160, 200, 2)
        assert np.median(np.abs(dense[inner] - [6, 0])) < 0.5


def test_flow_keeps_the_labels_of_a_static_video(flow):
    frames = np.repeat(sliding(frames=1), 4, axis=0)
    masks = Masks.of_box(160, 200, (60, 50, 110, 100))
    for one in flow.propagate(open_video(frames), 0, masks, CONFIG):
        assert np.array_equal(one.labels.ids, masks.ids)


def test_flow_refuses_other_kinds_of_labels(flow):
    with pytest.raises(LabelError, match="optical flow propagates masks, parts and keypoints, not coordinates"):
        list(flow.propagate(open_video(sliding()), 0, Coordinates.of_image(160, 200), CONFIG))


def test_flow_of_tiny_images_is_refused(flow):
    tiny = np.zeros((11, 11, 3), np.uint8)
    with pytest.raises(VideoError, match=r"cannot be computed on images of 11x11 pixels; give .* at least 12 pixels"):
        flow.flow(tiny, tiny, CONFIG)
    with pytest.raises(VideoError, match="images of 10x8 pixels"):
        flow.flow(*sliding(2), PropagateConfig(image_size_px=8))
    assert flow.flow(*np.zeros((2, 12, 12, 3), np.uint8), CONFIG).shape == (12, 12, 2)
