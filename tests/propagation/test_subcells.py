"""Labels finer than the feature cells: a cell's block of labels is matched as a whole, and nothing else changes."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.errors import SettingsError
from timecycle.grid import grid_over
from timecycle.labels import Keypoints, Masks, striped
from timecycle.labels.label_map import LabelMap, from_blocks
from timecycle.labels.space import sharpen
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.propagation.workfolder import WorkFolder
from timecycle.video import open_video

CONFIG = PropagateConfig(temperature=0.05, window_px=32, anchor_window_px=None)
FINE = dataclasses.replace(CONFIG, subcells=4)


class ShiftedCells:
    """Every cell has its own descriptor, and an image of grey level n shows them n cells farther to the right."""

    name, sha256, description = "shifted cells", "0" * 64, "exact"

    def encode(self, image):
        height, width, _ = image.shape
        rows, columns = height // 8, width // 8
        cells = torch.eye(rows * columns).reshape(rows, columns, -1).roll(int(image[0, 0, 0]), dims=1)
        return FeatureMap(cells, grid_over(height, width, cells=(rows, columns), stride_px=8, first_px=3.5))


def image_of(shift):
    return np.full((64, 96, 3), shift, np.uint8)


def test_a_thin_object_that_moves_by_whole_cells_keeps_its_outline():
    thin = np.zeros((64, 96), np.uint16)
    thin[10:50, 20:22] = 1
    thin[30:32, 10:40] = 2
    propagator = Propagator(ShiftedCells(), dataclasses.replace(FINE, temperature=0.01, window_px=16))
    propagator.step(image_of(0), Masks(thin))
    for shift in (1, 2, 3):
        moved = propagator.step(image_of(shift))
        assert np.array_equal(moved.ids, np.roll(thin, 8 * shift, axis=1))


def test_without_subcells_that_object_is_lost():
    thin = np.zeros((64, 96), np.uint16)
    thin[10:50, 20:22] = 1
    propagator = Propagator(ShiftedCells(), dataclasses.replace(CONFIG, temperature=0.01, window_px=16))
    propagator.step(image_of(0), Masks(thin))
    assert not propagator.step(image_of(1)).ids.any()


def test_labels_that_are_not_drawn_by_pixels_are_unchanged(world, encoder):
    truth = world.keypoints(0)
    points = Keypoints(truth.names, truth.xy, truth.visible)
    coarse, fine = (
        [frame.labels.xy for frame in propagate(open_video(world.video()), {0: points}, encoder=encoder, config=config)]
        for config in (CONFIG, FINE)
    )
    assert np.array_equal(np.stack(coarse), np.stack(fine), equal_nan=True)


def test_textures_keep_finer_stripes(world, encoder):
    texture = striped(Masks((world.mask(0) > 0).astype(np.uint16)))
    propagator = Propagator(encoder, FINE)
    propagator.step(world.frame(0), texture)
    label_map = propagator.advance(1, world.frame(1))
    assert label_map.values.shape[:2] == tuple(4 * side for side in encoder.encode(world.frame(1)).cells.shape[:2])


def test_an_interrupted_run_of_both_directions_resumes_exactly(world, encoder, tmp_path):
    config = dataclasses.replace(FINE, sharpening=1.5)
    labels = {2: Masks(world.mask(2)), 9: Masks(world.mask(9))}

    def stream(work=None):
        return propagate(
            open_video(world.video()),
            labels,
            encoder=encoder,
            config=config,
            confidence=ConfidenceConfig(),
            work=work,
        )

    def result(frames):
        return [(frame.labels.ids, [one.value for one in frame.confidence.objects.values()]) for frame in frames]

    whole = result(stream())
    started = stream(WorkFolder(tmp_path))
    for _ in range(3):
        next(started)
    started.close()
    resumed = result(stream(WorkFolder(tmp_path)))
    for (ids, confidence), (ids_again, confidence_again) in zip(whole[-len(resumed) :], resumed, strict=True):
        assert np.array_equal(ids, ids_again)
        assert confidence == confidence_again


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3))
def test_blocks_hold_the_labels_of_their_cell(subcells, rows, columns, channels):
    values = torch.rand(rows * subcells, columns * subcells, channels)
    grid = grid_over(rows * 8, columns * 8, cells=(rows, columns), stride_px=8, first_px=3.5).subdivided(subcells)
    label_map = LabelMap(values, torch.ones(channels, dtype=torch.bool), grid, subcells)
    blocks = label_map.blocks()
    assert torch.equal(from_blocks(blocks, rows=rows, columns=columns, subcells=subcells), values)
    last = values[-subcells:, -subcells:].reshape(-1)
    assert torch.equal(blocks[-1], last)
    assert torch.allclose(label_map.of_cells()[-1, -1], values[-subcells:, -subcells:].mean(dim=(0, 1)))


distributions = st.lists(st.floats(0, 1), min_size=2, max_size=5).filter(lambda one: sum(one) > 0.01)


@settings(max_examples=100, deadline=None)
@given(distributions, st.floats(1, 4))
def test_sharpening_keeps_the_order_of_the_channels(weights, power):
    share = torch.tensor(weights)[None, None] / sum(weights)
    sharp = sharpen(share, power)
    assert float(sharp.sum()) == pytest.approx(1, abs=1e-5)
    order = share[0, 0].argsort(stable=True)
    assert (sharp[0, 0][order].diff() >= 0).all()
    assert sharp.max() >= share.max() - 1e-6
    swapped = sharpen(share.flip(-1), power).flip(-1)  # no channel is treated differently, background included
    assert torch.allclose(swapped, sharp)


def test_sharpening_leaves_what_is_certain_or_unknown():
    certain = torch.eye(3)[None]
    assert torch.equal(sharpen(certain, 1.5), certain)
    assert torch.equal(sharpen(torch.zeros(1, 1, 3), 1.5), torch.zeros(1, 1, 3))


@pytest.mark.parametrize(("name", "value"), [("subcells", 0), ("subcells", 17), ("sharpening", 0.0)])
def test_senseless_settings_are_refused(name, value):
    with pytest.raises(SettingsError, match=name):
        PropagateConfig(**{name: value})
