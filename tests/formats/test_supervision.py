"""Detections of supervision hold the masks, ids and confidence of a frame, and give them back."""

import numpy as np
import pytest

import timecycle as tc
from clips import small_world
from label_samples import NAMES, mask, points
from oracle import OracleEncoder
from timecycle.errors import LabelError
from timecycle.propagation.settings import PropagateConfig

supervision = pytest.importorskip("supervision")


def test_masks_come_back_with_their_ids():
    detections = tc.to_detections(mask(2), names=NAMES)
    assert detections.tracker_id.tolist() == [1, 300]
    assert detections["class_name"].tolist() == list(NAMES.values())
    assert np.array_equal(detections.mask[1], mask(2).ids == 300)
    assert np.array_equal(tc.from_detections(detections).ids, mask(2).ids)


def test_a_frame_without_objects_is_empty():
    assert len(tc.to_detections(mask(3))) == 0


def test_a_propagated_frame_brings_its_confidence():
    world = small_world(frames=3)
    config = PropagateConfig(window_px=32, anchor_window_px=32)
    encoder = OracleEncoder(world, stride_px=4)
    *_, last = tc.propagate(world.video(), {0: tc.Masks(world.mask(0))}, encoder=encoder, config=config)
    detections = tc.to_detections(last)
    expected = [last.confidence.objects[str(i)].value for i in detections.tracker_id]
    assert detections.confidence.tolist() == pytest.approx(expected)
    annotated = supervision.MaskAnnotator().annotate(last.image.copy(), detections)
    assert (annotated != last.image).any()


def test_detections_without_a_tracker_are_numbered_and_boxes_alone_refused():
    detections = tc.to_detections(mask(2))
    detections.tracker_id = None
    assert np.unique(tc.from_detections(detections).ids).tolist() == [0, 1, 2]
    detections.mask = None
    with pytest.raises(LabelError, match="boxes but no masks"):
        tc.from_detections(detections)


def test_keypoints_come_back_with_names_and_confidence():
    back = tc.from_detections(tc.to_detections(points(1)))
    assert back.names == points(1).names
    assert np.array_equal(back.xy, points(1).xy)
    assert np.allclose(back.confidence, points(1).confidence)
    assert tc.from_detections(tc.to_detections(points(2))).visible.tolist() == points(2).visible.tolist()
