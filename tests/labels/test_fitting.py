"""Annotations are resized to the video and must have an object; notes are given once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle.errors import LabelError
from timecycle.labels import Coordinates, Keypoints, Masks, Parts, Texture
from timecycle.labels.fitting import absent_where_empty, fit_sizes, refuse_empty


def boxed(height, width):
    ids = np.zeros((height, width), np.uint16)
    ids[height // 4 : height // 2, width // 4 : width // 2] = 3
    return ids


def empty(kind):
    zeros = np.zeros((4, 6), np.uint16)
    return {
        "masks": Masks(zeros),
        "parts": Parts(zeros, zeros),
        "texture": Texture(np.zeros((4, 6, 4), np.uint8)),
        "keypoints": Keypoints(("a",), np.zeros((1, 2), np.float32), np.zeros(1, bool)),
    }[kind]


@given(st.integers(2, 200), st.integers(2, 200), st.integers(1, 9), st.integers(1, 9))
def test_rounded_multiples_of_the_video_size_are_resized(height, width, times, parts):
    scaled = max(round(height * times / parts), 1), max(round(width * times / parts), 1)
    fitted = fit_sizes({0: Masks(np.ones(scaled, np.uint16))}, height, width)[0]
    assert fitted.size() == (height, width)
    assert fitted.ids.all()


def test_masks_of_proportional_size_are_resized_by_nearest_neighbour_with_one_note(caplog):
    labels = {index: Masks(boxed(32, 48)) for index in (0, 1, 2, 7)}
    fitted = fit_sizes(labels, 64, 96)
    assert all(np.array_equal(one.ids, boxed(64, 96)) for one in fitted.values())
    assert caplog.messages == [
        "note: the labels of frames 0-2, 7 are 48x32: resized to the video's 96x64 by nearest neighbour"
    ]
    assert np.array_equal(fit_sizes({0: Masks(boxed(128, 192))}, 64, 96)[0].ids, boxed(64, 96))


def test_parts_and_textures_are_resized():
    ids = boxed(32, 48)
    parts = fit_sizes({0: Parts(ids, ids + np.uint16(1), exhaustive=True)}, 64, 96)[0]
    assert np.array_equal(parts.part, boxed(64, 96))
    assert np.array_equal(parts.person, boxed(64, 96) + 1)
    assert parts.exhaustive
    texture = fit_sizes({0: Texture(np.repeat(ids[..., None], 4, axis=-1).astype(np.uint8))}, 64, 96)[0]
    assert np.array_equal(texture.rgba[..., 0], boxed(64, 96))


def test_labels_of_the_video_size_are_unchanged(caplog):
    masks = Masks(boxed(64, 96))
    assert fit_sizes({0: masks}, 64, 96)[0] is masks
    assert not caplog.records


@pytest.mark.parametrize("size", [(10, 12), (96, 64), (64, 90), (32, 46), (60, 96)])
def test_other_sizes_are_refused_and_the_error_names_both_sizes(size):
    with pytest.raises(LabelError, match=rf"frame 4 are {size[1]}x{size[0]} but the frame is 96x64; draw them on"):
        fit_sizes({4: Masks(np.ones(size, np.uint16))}, 64, 96)


def test_coordinates_are_never_resized():
    """Their values are positions in pixels."""
    with pytest.raises(LabelError, match="are 48x32 but the frame is 96x64"):
        fit_sizes({0: Coordinates.of_image(32, 48)}, 64, 96)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("masks", "black is background"), ("parts", "annotate"), ("texture", "transparent"), ("keypoints", "visible")],
)
def test_annotations_without_any_object_are_refused(kind, remedy):
    with pytest.raises(LabelError, match=f"the annotation of frame 3 holds no object; .*{remedy}"):
        refuse_empty({3: empty(kind)})
    with pytest.raises(LabelError, match=r"none of the 2 annotated frames holds an object, beginning with .* frame 3"):
        refuse_empty({3: empty(kind), 5: empty(kind)})


def test_error_for_an_empty_mask_names_its_file(tmp_path):
    empty("masks").write(tmp_path / "first.png")
    with pytest.raises(LabelError, match=r"first\.png holds no object"):
        refuse_empty({0: Masks.read(tmp_path / "first.png")})


def test_empty_mask_among_others_makes_objects_absent_with_one_note(caplog):
    labels = {0: Masks(boxed(4, 8)), 5: Masks(np.zeros((4, 8), np.uint16))}
    refuse_empty(labels)
    fitted = absent_where_empty(labels, ["3"])
    assert not fitted[0].exhaustive
    assert fitted[5].exhaustive
    absent_where_empty(fitted, ["3"])
    assert caplog.messages == ["note: nothing is annotated on frame 5: object 3 is absent there"]
