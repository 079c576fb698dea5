"""What the napari plugin does without napari: open runs and correct them."""

import numpy as np
import pytest
from PIL import Image

import timecycle as tc
from clips import small_world, write_clip
from timecycle.errors import LabelError
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


def test_a_run_of_images_is_corrected_at_the_rate_that_its_record_names(world, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for t, image in enumerate(world.frames()):
        Image.fromarray(image).save(images / f"{t:05d}.png")
    with tc.open_video(images, fps=10) as video:
        run = tc.propagate_to_folder(video, {0: tc.Masks(world.mask(0))}, tmp_path / "out", config="fast")
    jobs.correct(str(images), {2: tc.Masks(world.mask(2))}, run.folder, report=lambda done, total: None)
    assert "0.100000" in (run.folder / "frames.csv").read_text().splitlines()[2]


@pytest.mark.parametrize("kind", ["parts", "texture", "coordinates"])
def test_a_run_of_labels_that_no_layer_can_show_is_refused(world, clip, tmp_path, kind):
    ids = world.mask(0).astype(np.uint16)
    labels = {
        "parts": tc.Parts(ids, np.minimum(ids, 1)),
        "texture": tc.Texture(np.full((*ids.shape, 4), 255, np.uint8)),
        "coordinates": tc.Coordinates.of_image(*ids.shape),
    }[kind]
    run = tc.propagate_to_folder(clip, {0: labels}, tmp_path / "out", encoder="rgb", config="fast")
    with pytest.raises(LabelError, match=f"are {kind}, which no layer of napari can show; open a run of masks or"):
        jobs.open_run(run.folder)


def test_runs_of_masks_and_keypoints_are_opened(world, clip, tmp_path):
    points = tc.Keypoints(("nose",), np.array([[9, 9]], np.float32), np.array([True]))
    for labels in (tc.Masks(world.mask(0)), points):
        folder = tmp_path / labels.kind
        run = tc.propagate_to_folder(clip, {0: labels}, folder, encoder="rgb", config="fast")
        assert len(jobs.open_run(str(run.folder))) == FRAMES
