"""Boxes: the object is segmented if its colours differ; otherwise the whole box is used, with a note."""

import sys

import numpy as np
import pytest

from timecycle.errors import LabelError, SettingsError
from timecycle.extras import import_extra
from timecycle.labels.box import masks_of_boxes, object_in_box, whole_box

BOX = (50, 30, 110, 80)


def scene(times=1):
    """Return an image of an ellipse of one texture on another, and the ellipse as a mask."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:120, :160]
    shape = ((x - 80) / 30) ** 2 + ((y - 55) / 25) ** 2 <= 1
    ground, paint = (rng.normal(mean, 20, (120, 160, 3)) for mean in ((60, 110, 60), (150, 80, 70)))
    image = np.where(shape[..., None], paint, ground).clip(0, 255).astype(np.uint8)
    return (np.kron(one, np.ones((times, times, 1), one.dtype)) for one in (image, shape[..., None]))


def overlap(a, b):
    return (a & b).sum() / (a | b).sum()


def test_object_in_a_box_is_segmented(caplog):
    image, shape = scene()
    assert overlap(whole_box(120, 160, BOX), shape[..., 0]) < 0.8
    assert overlap(object_in_box(image, BOX), shape[..., 0]) > 0.95
    assert not caplog.records


def test_segmentation_is_deterministic():
    image, _ = scene()
    first = object_in_box(image, BOX)
    import_extra("cv2", extra="assist").setRNGSeed(123)
    assert np.array_equal(first, object_in_box(image, BOX))


def test_object_stays_inside_its_box():
    image, _ = scene()
    small = (70, 45, 90, 65)
    assert not (object_in_box(image, small) & ~whole_box(120, 160, small)).any()


def test_large_frames_are_shrunk_to_bound_the_time(monkeypatch):
    image, shape = scene(times=12)
    cv2 = import_extra("cv2", extra="assist")
    pixels, whole = [], cv2.grabCut
    monkeypatch.setattr(cv2, "grabCut", lambda small, *rest: (pixels.append(small[..., 0].size), whole(small, *rest)))
    segmented = object_in_box(image, tuple(12 * side for side in BOX))
    assert max(pixels) <= 201_000
    assert overlap(segmented, shape[..., 0]) > 0.95


@pytest.mark.parametrize(
    ("box", "reason"), [(BOX, "has the colours of what is around it"), ((0, 0, 159, 119), "covers the whole frame")]
)
def test_whole_box_is_returned_with_a_note_if_nothing_can_be_segmented(caplog, box, reason):
    plain = np.full((120, 160, 3), 90, np.uint8)
    assert np.array_equal(object_in_box(plain, box), whole_box(120, 160, box))
    (message,) = caplog.messages
    assert message.startswith(f"note: the box {','.join(map(str, box))} {reason}: all of it is annotated")


@pytest.mark.parametrize("box", [(50, 30, 50, 30), (50, 30, 51, 33), (-20, -20, 30, 30), (140, 100, 300, 300)])
def test_box_may_be_tiny_or_cross_the_border(box):
    image, _ = scene()
    assert object_in_box(image, box).any()


def test_boxes_are_numbered_in_order_and_the_smaller_one_wins_an_overlap():
    boxes = [whole_box(20, 20, box) for box in ((5, 5, 8, 8), (0, 0, 15, 15), (17, 17, 19, 19))]
    ids = masks_of_boxes(boxes).ids
    assert (ids[6, 6], ids[0, 0], ids[18, 18], ids[0, 19]) == (1, 2, 3, 0)


def test_box_that_is_covered_by_others_is_refused():
    box = whole_box(20, 20, (5, 5, 8, 8))
    with pytest.raises(LabelError, match="nothing is left of box 1 beside the others; give one --box for each object"):
        masks_of_boxes([box, box])


def test_missing_opencv_error_has_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(SettingsError, match=r"pip install 'timecycle\[assist\]'"):
        object_in_box(next(scene()), BOX)
