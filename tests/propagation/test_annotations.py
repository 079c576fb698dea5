"""From Python too: annotations without an object are refused, and what was understood is said once."""

import numpy as np
import pytest
from PIL import Image

import timecycle as tc
from clips import small_world
from timecycle.errors import LabelError
from timecycle.labels import Masks
from timecycle.propagation.settings import PropagateConfig

CONFIG = PropagateConfig(image_size_px=64)


@pytest.fixture(scope="module")
def world():
    return small_world(frames=3)


@pytest.fixture(scope="module")
def encoder():
    return tc.load_encoder("rgb")


def empty():
    return Masks(np.zeros((64, 96), np.uint16))


def test_an_empty_mask_is_refused_by_its_frame(world, encoder, tmp_path):
    for propagate in (tc.propagate, lambda *given, **more: tc.propagate_to_folder(*given, tmp_path / "out", **more)):
        with pytest.raises(LabelError, match="the annotation of frame 1 holds no object"):
            propagate(world.video(), {1: empty()}, encoder=encoder, config=CONFIG)
    assert not (tmp_path / "out").exists()


def test_annotations_are_understood_once_for_a_whole_run(world, encoder, tmp_path, caplog):
    labels = {0: Masks(world.mask(0)[::2, ::2]), 2: empty()}
    tc.propagate_to_folder(world.video(), labels, tmp_path / "out", encoder=encoder, config=CONFIG, confidence=None)
    assert [message.partition(":")[2].strip()[:22] for message in caplog.messages] == [
        "the labels of frame 0 ",
        "nothing is annotated o",
    ]


def test_a_run_with_resized_masks_is_that_with_masks_of_its_size(world, encoder):
    small = Masks(world.mask(0)[::2, ::2])
    large = Masks(np.kron(small.ids, np.ones((2, 2), np.uint16)))
    found = [
        [frame.labels.ids for frame in tc.propagate(world.video(), {0: one}, encoder=encoder, config=CONFIG)]
        for one in (small, large)
    ]
    assert np.array_equal(*found)


def test_a_stream_begins_with_an_object_and_an_empty_mask_says_that_it_is_absent(world, encoder, caplog):
    state = tc.Propagator(encoder, CONFIG)
    with pytest.raises(LabelError, match="the annotation of frame 0 holds no object"):
        state.step(world.frame(0), empty())
    assert state.step(world.frame(0), Masks(world.mask(0)[::2, ::2])).ids.any()
    assert not state.step(world.frame(1), empty()).ids.any()
    assert "are absent there" in caplog.text


def test_frames_are_called_by_the_numbers_of_their_files(world, encoder, tmp_path, caplog):
    for t in range(3):
        Image.fromarray(world.frame(t)).save(tmp_path / f"{1001 + t}.png")
    with pytest.raises(LabelError, match="the annotation of frame 1002 holds no object"):
        tc.propagate(tmp_path, {1: empty()}, encoder=encoder)
    tc.propagate(tmp_path, {0: Masks(world.mask(0)), 2: empty()}, encoder=encoder)
    assert "nothing is annotated on frame 1003: objects" in caplog.text


def test_grey_label_files_are_written_from_python(world, encoder, tmp_path):
    labels, out = {0: Masks(world.mask(0))}, tmp_path / "out"
    tc.propagate_to_folder(world.video(), labels, out, encoder=encoder, config=CONFIG, label_files="grey")
    with Image.open(out / "labels" / "00000.png") as image:
        assert image.mode == "L"
        assert np.array_equal(np.array(image), world.mask(0))
