"""Object ids of corrections: nothing is guessed where a mask could show another object."""

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Masks
from timecycle.labels.drawing import palette
from timecycle.review.corrections import with_run_ids


def mask(*ids):
    """A column of each id beside background."""
    return Masks.of(np.array([[0, *ids]] * 3))


def corrected(labels, *run, object_id=None, colours=None):
    """A correction of frame 5 with the ids of a run whose frame 0 shows `run`."""
    current = {0: mask(*run), 5: mask(0)}
    return with_run_ids({5: labels}, current.get, [0], range(9), object_id=object_id, colours=colours)[5]


def coloured(tmp_path, *colours):
    pixels = np.zeros((3, 1 + len(colours), 3), np.uint8)
    pixels[:, 1:] = colours
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    return Masks.read(tmp_path / "mask.png")


PINK, LIGHT_BLUE = (tuple(int(value) for value in palette()[i]) for i in (1, 2))
WHITE, RED, GREEN, BLUE = (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255)


@pytest.mark.parametrize("value", [1, 2, 128, 255])
def test_in_a_run_of_one_object_any_mask_of_two_values_shows_it(caplog, value):
    assert corrected(mask(value), 77).ids.tolist() == [[0, 77]] * 3
    assert "the annotation of frame 5 is read as object 77, the only one of the run" in caplog.text


def test_in_a_run_of_one_object_a_mask_in_any_colour_shows_it(tmp_path, caplog):
    assert corrected(coloured(tmp_path, (255, 255, 255)), 255).ids.tolist() == [[0, 255]] * 3
    assert "mask.png is read as object 255" in caplog.text


@pytest.mark.parametrize("brushes", [(RED,), (PINK, WHITE), (WHITE, BLUE), (PINK, RED, WHITE)])
def test_in_a_run_of_one_object_all_colours_show_it(tmp_path, caplog, brushes):
    """Also its colour in the label files, mixed with others."""
    assert corrected(coloured(tmp_path, *brushes), 1).ids.tolist() == [[0] + [1] * len(brushes)] * 3
    assert "mask.png is read as object 1, the only one of the run" in caplog.text


def test_colours_of_label_files_and_of_annotations_are_known(tmp_path, caplog):
    annotated = {0x0000FF: 1, 0x00FF00: 2}
    for brushes, ids in (((GREEN,), [2]), ((GREEN, BLUE), [2, 1]), ((LIGHT_BLUE,), [2]), ((PINK, GREEN), [1, 2])):
        assert corrected(coloured(tmp_path, *brushes), 1, 2, colours=annotated).ids.tolist() == [[0, *ids]] * 3
    assert "is read as" not in caplog.text


def test_colours_of_annotations_win_over_those_of_palettes(tmp_path):
    """Dark green alone is object 2 of the VOC palette."""
    annotated = {0x008000: 1, 0xFFFFFF: 2}
    assert corrected(coloured(tmp_path, (0, 128, 0)), 1, 2, colours=annotated).ids.tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("ids", [(77,), (77, 3)])
def test_ids_of_the_run_are_kept(caplog, ids):
    assert corrected(mask(*ids), 77).ids.tolist() == [[0, *ids]] * 3
    assert not caplog.records


def test_in_a_run_of_several_objects_an_unknown_value_is_refused():
    with pytest.raises(LabelError, match="as the value 255, but the run's objects are 1, 2; name the object with"):
        corrected(mask(255), 1, 2)


def test_in_a_run_of_several_objects_an_unknown_colour_is_refused(tmp_path):
    """White would be numbered 1, like the run's object 1."""
    for brushes in ((WHITE,), (WHITE, PINK)):
        with pytest.raises(LabelError) as caught:
            corrected(coloured(tmp_path, *brushes), 1, 2)
        assert caught.value.problem.endswith(
            "mask.png has the colour white (255,255,255), which is none of the run's objects: "
            "object 1 is pink (238,51,119), 2 is light blue (51,187,238)"
        )
        assert "on a copy" in caught.value.remedy
        assert "review/" in caught.value.remedy
        assert ("--object 1" in caught.value.remedy) == (len(brushes) == 1)
    with pytest.raises(LabelError, match="shows more than one object, but --object 2 names one"):
        corrected(coloured(tmp_path, WHITE, BLUE), 1, 2, object_id=2)


def test_several_unknown_values_are_refused():
    with pytest.raises(LabelError, match="shows objects as the values 85, 170, none of which is an object"):
        corrected(mask(85, 170), 1, 2)


@pytest.mark.parametrize("object_id", [2, 9])
def test_object_id_names_the_object_of_a_mask_known_or_new(tmp_path, object_id):
    for labels in (mask(255), mask(1), coloured(tmp_path, (255, 255, 255))):
        assert corrected(labels, 1, 2, object_id=object_id).ids.tolist() == [[0, object_id]] * 3


def test_empty_mask_says_that_all_objects_are_absent(caplog):
    assert corrected(mask(0), 1).exhaustive
    undo = "if that is not meant, take it back with --undo"
    assert caplog.messages[0] == f"note: nothing is annotated on frame 5: object 1 is absent there; {undo}"
    caplog.clear()
    assert corrected(mask(0), 1, 2).exhaustive
    assert caplog.messages[0] == f"note: nothing is annotated on frame 5: objects 1, 2 are absent there; {undo}"


def test_correction_that_removes_the_last_object_is_refused():
    with pytest.raises(LabelError, match="the annotation of frame 0 holds no object; draw the object in white"):
        with_run_ids({0: mask(0)}, lambda _: mask(1), [0], range(9))


def test_invalid_object_ids_are_refused():
    with pytest.raises(LabelError, match="0 cannot be an object id; number objects between 1 and 65535"):
        corrected(mask(1), 1, object_id=0)
    with pytest.raises(LabelError, match="is empty, which says that every object is absent, not object 2 alone"):
        corrected(mask(0), 1, 2, object_id=2)
    points = Keypoints(("a",), np.zeros((1, 2), np.float32), np.ones(1, bool))
    with pytest.raises(LabelError, match="--object was given for keypoints; leave it out"):
        with_run_ids({5: points}, lambda _: points, [0], range(9), object_id=1)
