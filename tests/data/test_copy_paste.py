"""Pasted objects follow their transforms, and points map exactly from one view to the other."""

import numpy as np
import pytest
import torch

from timecycle.data.augment.copy_paste import CopyPasteConfig, choose_object, map_points, objects_at, paste
from timecycle.data.augment.views import ViewConfig, apply_view, choose_view, view_to_view
from timecycle.errors import SettingsError
from timecycle.pose import pixel_centres

SIDE = 64
CONFIG = CopyPasteConfig(most=1, radius=(0.5, 0.5), step=0.05)
PLAIN = ViewConfig(rotation_degrees=20, scale=(0.9, 1.1), shift=0.1)


def rng(seed=0):
    return np.random.default_rng(seed)


def waves(frames=3, side=96, seed=0):
    """Make equal smooth frames in which every position looks different."""
    y, x = np.mgrid[:side, :side] / side
    numbers = rng(seed).uniform(2, 5, (3, 2))
    channels = [np.sin(a * x * 3 + seed) * np.cos(b * y * 3 + 1) for a, b in numbers]
    picture = np.stack(channels, axis=-1) * 110 + 128
    return np.repeat(picture[None].astype(np.uint8), frames, axis=0)


def colours_at(image, points):
    """Sample an image at points in its coordinates."""
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    return torch.nn.functional.grid_sample(pixels, points[None, None], align_corners=False)[0, :, 0].T


@pytest.mark.parametrize("seed", range(5))
def test_mapped_points_have_the_same_colours_in_both_views(seed):
    """Holds for points of the background and of objects."""
    draw = rng(seed)
    background, source = waves(seed=seed), waves(seed=seed + 50)
    maps = (choose_view(PLAIN, draw, cover=0.66), choose_view(PLAIN, draw, cover=0.66))
    views = [apply_view(background, affine, SIDE) for affine in maps]
    objects = [choose_object(CONFIG, draw, frames=3, cover=0.66) for _ in range(2)]
    for pasted in objects:
        views = [paste(view, source, pasted, moves) for view, moves in zip(views, pasted.transforms, strict=True)]
    points = pixel_centres(16)
    mapped, visible = map_points(points, maps, objects)
    inner = visible & (mapped.abs().amax(dim=1) < 0.9)
    # A pixel at an edge blends both sides.
    near_edge = torch.zeros(len(points), dtype=torch.bool)
    for pasted in objects:
        for transforms, seen in zip(pasted.transforms, (points, mapped), strict=True):
            near_edge |= pasted.inside(_at(transforms[0], seen)).abs() < 0.08
    compared = inner & ~near_edge
    difference = (colours_at(views[0][0], points) - colours_at(views[1][0], mapped)).abs().amax(dim=1)
    assert compared.sum() > 40
    assert difference[compared].max() < 12


def test_without_objects_points_follow_the_map_between_the_views():
    maps = (choose_view(PLAIN, rng(1)), choose_view(PLAIN, rng(2)))
    points = pixel_centres(8)
    mapped, visible = map_points(points, maps, [])
    between = view_to_view(*maps)
    assert torch.allclose(mapped, points @ between[:, :2].T + between[:, 2], atol=1e-6)
    assert visible.all()


def test_object_covers_its_centre_and_hides_the_background():
    pasted = choose_object(CONFIG, rng(3), frames=2, cover=1.0)
    centre = -torch.linalg.solve(pasted.transforms[0][0][:, :2], pasted.transforms[0][0][:, 2])
    same = (torch.eye(2, 3), torch.eye(2, 3))
    mapped, visible = map_points(centre[None], same, [pasted])
    expected = -torch.linalg.solve(pasted.transforms[1][0][:, :2], pasted.transforms[1][0][:, 2])
    assert torch.allclose(mapped[0], expected, atol=1e-5)
    assert bool(visible[0])
    _, visible = map_points(expected[None], same, [pasted])  # the object covers this point in the backward view
    on_object = pasted.inside(_at(pasted.transforms[0][0], expected[None]))[0] > 0
    assert bool(visible[0]) == bool(on_object)


def test_pasting_does_not_change_the_rest_of_the_view():
    view, source = waves(seed=1, side=SIDE), waves(seed=2)
    pasted = choose_object(CONFIG, rng(4), frames=3, cover=0.66)
    changed = paste(view, source, pasted, pasted.transforms[0])
    inside = pasted.inside(_at(pasted.transforms[0][0], pixel_centres(SIDE))).reshape(SIDE, SIDE)
    assert np.array_equal(changed[0][inside < -0.1], view[0][inside < -0.1])
    assert (changed[0][inside > 0.1] != view[0][inside > 0.1]).any(axis=-1).mean() > 0.9


def test_equal_generators_draw_equal_objects():
    first, second = (choose_object(CONFIG, rng(7), frames=4, cover=0.7) for _ in range(2))
    assert torch.equal(first.transforms[1], second.transforms[1])
    assert np.array_equal(first.heights, second.heights)


@pytest.mark.parametrize("change", [{"radius": (0.5, 0.2)}, {"scale": (0.0, 1.0)}])
def test_settings_that_are_not_a_range_are_refused(change):
    with pytest.raises(SettingsError, match="give the smallest, then the largest"):
        CopyPasteConfig(**change)


def _at(transform, points):
    return points @ transform[:, :2].T + transform[:, 2]


def test_objects_at_points_are_those_the_view_shows():
    draw = rng(3)
    background = np.zeros((2, 96, 96, 3), dtype=np.uint8)
    maps = (choose_view(PLAIN, draw, cover=0.66), choose_view(PLAIN, draw, cover=0.66))
    views = [apply_view(background, affine, SIDE) for affine in maps]
    objects = [choose_object(CONFIG, draw, frames=2, cover=0.66) for _ in range(3)]
    for number, pasted in enumerate(objects, 1):
        source = np.full((2, 96, 96, 3), 80 * number, dtype=np.uint8)
        views = [paste(view, source, pasted, moves) for view, moves in zip(views, pasted.transforms, strict=True)]
    points = pixel_centres(16)
    for view in (0, 1):
        grey = colours_at(views[view][0], points)[:, 0]
        clear = (grey / 80 - (grey / 80).round()).abs() < 0.01  # not at an edge
        assert clear.float().mean() > 0.6
        numbers = objects_at(points, objects, view)
        assert (numbers[clear] == (grey[clear] / 80).round()).float().mean() > 0.97
