"""What the napari plugin does without napari."""

import numpy as np
import pytest

import timecycle as tc
from clips import small_world, write_clip
from timecycle.integrations.napari import jobs

FRAMES = 4


@pytest.fixture
def world():
    return small_world(frames=FRAMES)


@pytest.fixture
def clip(world, tmp_path):
    return write_clip(tmp_path / "clip.mp4", world)


def test_a_run_is_corrected_with_the_encoder_that_its_record_names(world, clip, tmp_path):
    labels = {0: tc.Masks(world.mask(0))}
    run = tc.propagate_to_folder(clip, labels, tmp_path / "out", encoder="rgb", config="fast")
    corrections = {2: tc.Masks(world.mask(2))}
    done = jobs.correct(tc.open_video(clip), corrections, run.folder, report=lambda done, total: None)
    assert done.state.annotated == [0, 2]
    assert np.array_equal(done.labels[2].ids, world.mask(2))
