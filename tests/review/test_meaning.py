"""Which object of a run a correction shows: nothing is guessed where it could be another."""

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Masks
from timecycle.labels.palette import palette
from timecycle.review.meaning import as_in_run


def mask(*ids):
    """A column of each id beside background."""
    return Masks.of(np.array([[0, *ids]] * 3))


def meant(labels, *run, object_id=None, colours=None):
    """What a correction of frame 5 means in a run whose frame 0 shows these ids."""
    known = {0: mask(*run), 5: mask(0)}
    return as_in_run({5: labels}, known.get, [0], range(9), object_id=object_id, colours=colours)[5]


def coloured(tmp_path, *colours):
    pixels = np.zeros((3, 1 + len(colours), 3), np.uint8)
    pixels[:, 1:] = colours
    Image.fromarray(pixels).save(tmp_path / "drawing.png")
    return Masks.read(tmp_path / "drawing.png")


PINK, LIGHT_BLUE = (tuple(int(value) for value in palette()[i]) for i in (1, 2))
WHITE, RED, GREEN, BLUE = (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255)


@pytest.mark.parametrize("value", [1, 2, 128, 255])
def test_where_a_run_has_one_object_any_two_tone_mask_means_it(caplog, value):
    assert meant(mask(value), 77).ids.tolist() == [[0, 77]] * 3
    assert "the annotation of frame 5 is read as object 77, the only one of the run" in caplog.text


def test_a_mask_in_a_colour_of_its_own_means_the_only_object_too(tmp_path, caplog):
    assert meant(coloured(tmp_path, (255, 255, 255)), 255).ids.tolist() == [[0, 255]] * 3
    assert "drawing.png is read as object 255" in caplog.text


@pytest.mark.parametrize("brushes", [(RED,), (PINK, WHITE), (WHITE, BLUE), (PINK, RED, WHITE)])
def test_where_a_run_has_one_object_every_brush_means_it(tmp_path, caplog, brushes):
    """Its own colour as the label file shows it, mixed with another, too."""
    assert meant(coloured(tmp_path, *brushes), 1).ids.tolist() == [[0] + [1] * len(brushes)] * 3
    assert "drawing.png is read as object 1, the only one of the run" in caplog.text


def test_colours_of_the_label_files_are_known_beside_those_the_run_was_begun_with(tmp_path, caplog):
    begun = {0x0000FF: 1, 0x00FF00: 2}
    for brushes, ids in (((GREEN,), [2]), ((GREEN, BLUE), [2, 1]), ((LIGHT_BLUE,), [2]), ((PINK, GREEN), [1, 2])):
        assert meant(coloured(tmp_path, *brushes), 1, 2, colours=begun).ids.tolist() == [[0, *ids]] * 3
    assert "is read as" not in caplog.text


def test_colours_the_run_was_begun_with_mean_the_same_though_a_palette_has_them(tmp_path):
    """Dark green alone is object 2 of the VOC palette."""
    begun = {0x008000: 1, 0xFFFFFF: 2}
    assert meant(coloured(tmp_path, (0, 128, 0)), 1, 2, colours=begun).ids.tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("ids", [(77,), (77, 3)])
def test_ids_of_the_run_are_taken_as_they_are(caplog, ids):
    assert meant(mask(*ids), 77).ids.tolist() == [[0, *ids]] * 3
    assert not caplog.records


def test_where_a_run_has_several_objects_another_value_is_asked_about():
    with pytest.raises(LabelError, match="as the value 255, but the run's objects are 1, 2; say which it is"):
        meant(mask(255), 1, 2)


def test_where_a_run_has_several_objects_a_colour_is_asked_about(tmp_path):
    """White would be numbered 1, as if it were the run's object 1."""
    for brushes in ((WHITE,), (WHITE, PINK)):
        with pytest.raises(LabelError) as caught:
            meant(coloured(tmp_path, *brushes), 1, 2)
        assert caught.value.problem.endswith(
            "drawing.png has the colour white (255,255,255), which is none of the run's objects: "
            "object 1 is pink (238,51,119), 2 is light blue (51,187,238)"
        )
        assert "on a copy" in caught.value.remedy
        assert "review/" in caught.value.remedy
        assert ("--object 1" in caught.value.remedy) == (len(brushes) == 1)
    with pytest.raises(LabelError, match="shows more than one object, of which --object 2 names one"):
        meant(coloured(tmp_path, WHITE, BLUE), 1, 2, object_id=2)


def test_several_values_of_which_the_run_has_none_are_asked_about():
    with pytest.raises(LabelError, match="shows objects as the values 85, 170, which does not tell which"):
        meant(mask(85, 170), 1, 2)


@pytest.mark.parametrize("object_id", [2, 9])
def test_a_mask_shows_the_object_that_is_named_be_it_new(tmp_path, object_id):
    for drawing in (mask(255), mask(1), coloured(tmp_path, (255, 255, 255))):
        assert meant(drawing, 1, 2, object_id=object_id).ids.tolist() == [[0, object_id]] * 3


def test_an_empty_mask_means_that_the_objects_are_absent(caplog):
    assert meant(mask(0), 1).complete
    undo = "if that is not meant, take it back with --undo"
    assert caplog.messages[0] == f"note: nothing is annotated on frame 5: object 1 is absent there; {undo}"
    caplog.clear()
    assert meant(mask(0), 1, 2).complete
    assert caplog.messages[0] == f"note: nothing is annotated on frame 5: objects 1, 2 are absent there; {undo}"


def test_a_correction_may_not_take_the_last_object_away():
    with pytest.raises(LabelError, match="the annotation of frame 0 holds no object; draw the object in white"):
        as_in_run({0: mask(0)}, lambda _: mask(1), [0], range(9))


def test_an_object_that_cannot_be_meant_is_refused():
    with pytest.raises(LabelError, match="there is no object 0; number objects between 1 and 65535"):
        meant(mask(1), 1, object_id=0)
    with pytest.raises(LabelError, match="is empty, which says that every object is absent, not object 2 alone"):
        meant(mask(0), 1, 2, object_id=2)
    points = Keypoints(("a",), np.zeros((1, 2), np.float32), np.ones(1, bool))
    with pytest.raises(LabelError, match="--object was given for keypoints; leave it out"):
        as_in_run({5: points}, lambda _: points, [0], range(9), object_id=1)
