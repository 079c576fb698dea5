"""Pasted things lie where their placings say, and the way back from one view to the other is the true one."""

import numpy as np
import pytest
import torch

from timecycle.data.pastes import PasteConfig, choose_thing, covering, paste, way_back
from timecycle.data.views import ViewConfig, apply_view, choose_view, return_map
from timecycle.errors import SettingsError
from timecycle.pose import square_places

SIDE = 64
CONFIG = PasteConfig(most=1, radius=(0.5, 0.5), step=0.05)
PLAIN = ViewConfig(rotation_degrees=20, scale=(0.9, 1.1), shift=0.1)


def rng(seed=0):
    return np.random.default_rng(seed)


def waves(frames=3, side=96, seed=0):
    """Smooth pictures in which every place looks different, the same in all frames."""
    y, x = np.mgrid[:side, :side] / side
    numbers = rng(seed).uniform(2, 5, (3, 2))
    channels = [np.sin(a * x * 3 + seed) * np.cos(b * y * 3 + 1) for a, b in numbers]
    picture = np.stack(channels, axis=-1) * 110 + 128
    return np.repeat(picture[None].astype(np.uint8), frames, axis=0)


def looked_up(image, places):
    """Colours of an image at places in its coordinates."""
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    return torch.nn.functional.grid_sample(pixels, places[None, None], align_corners=False)[0, :, 0].T


@pytest.mark.parametrize("seed", range(5))
def test_the_way_back_leads_to_the_same_colours(seed):
    """The law: whatever covers a point, background or thing, the back view shows it at the place the way names."""
    draw = rng(seed)
    background, source = waves(seed=seed), waves(seed=seed + 50)
    maps = (choose_view(PLAIN, draw, cover=0.66), choose_view(PLAIN, draw, cover=0.66))
    views = [apply_view(background, affine, SIDE) for affine in maps]
    things = [choose_thing(CONFIG, draw, frames=3, cover=0.66) for _ in range(2)]
    for thing in things:
        views = [paste(view, source, thing, way) for view, way in zip(views, thing.placings, strict=True)]
    points = square_places(16)
    way = way_back(points, maps, things)
    inner = way.visible & (way.places.abs().amax(dim=1) < 0.9)
    # At an edge a pixel shows a little of both sides.
    near_edge = torch.zeros(len(points), dtype=torch.bool)
    for thing in things:
        for placings, seen in zip(thing.placings, (points, way.places), strict=True):
            near_edge |= thing.inside(_at(placings[0], seen)).abs() < 0.08
    told = inner & ~near_edge
    difference = (looked_up(views[0][0], points) - looked_up(views[1][0], way.places)).abs().amax(dim=1)
    assert told.sum() > 40
    assert difference[told].max() < 12


def test_without_things_the_way_is_the_map_between_the_views():
    maps = (choose_view(PLAIN, rng(1)), choose_view(PLAIN, rng(2)))
    points = square_places(8)
    way = way_back(points, maps, [])
    between = return_map(*maps)
    assert torch.allclose(way.places, points @ between[:, :2].T + between[:, 2], atol=1e-6)
    assert way.visible.all()


def test_a_thing_covers_its_centre_and_hides_the_background_behind_it():
    thing = choose_thing(CONFIG, rng(3), frames=2, cover=1.0)
    centre = -torch.linalg.solve(thing.placings[0][0][:, :2], thing.placings[0][0][:, 2])
    same = (torch.eye(2, 3), torch.eye(2, 3))
    way = way_back(centre[None], same, [thing])
    expected = -torch.linalg.solve(thing.placings[1][0][:, :2], thing.placings[1][0][:, 2])
    assert torch.allclose(way.places[0], expected, atol=1e-5)
    assert bool(way.visible[0])
    behind = way_back(expected[None], same, [thing])  # the thing lies on it in the back view
    on_it = thing.inside(_at(thing.placings[0][0], expected[None]))[0] > 0
    assert bool(behind.visible[0]) == bool(on_it)


def test_pasting_leaves_the_rest_of_the_view_alone():
    view, source = waves(seed=1, side=SIDE), waves(seed=2)
    thing = choose_thing(CONFIG, rng(4), frames=3, cover=0.66)
    pasted = paste(view, source, thing, thing.placings[0])
    inside = thing.inside(_at(thing.placings[0][0], square_places(SIDE))).reshape(SIDE, SIDE)
    assert np.array_equal(pasted[0][inside < -0.1], view[0][inside < -0.1])
    assert (pasted[0][inside > 0.1] != view[0][inside > 0.1]).any(axis=-1).mean() > 0.9


def test_the_same_numbers_draw_the_same_thing():
    first, second = (choose_thing(CONFIG, rng(7), frames=4, cover=0.7) for _ in range(2))
    assert torch.equal(first.placings[1], second.placings[1])
    assert np.array_equal(first.heights, second.heights)


@pytest.mark.parametrize("change", [{"radius": (0.5, 0.2)}, {"scale": (0.0, 1.0)}])
def test_settings_that_are_no_range_are_refused(change):
    with pytest.raises(SettingsError, match="give the smallest, then the largest"):
        PasteConfig(**change)


def _at(placing, points):
    return points @ placing[:, :2].T + placing[:, 2]


def test_what_covers_a_point_is_what_is_seen_there():
    draw = rng(3)
    background = np.zeros((2, 96, 96, 3), dtype=np.uint8)
    maps = (choose_view(PLAIN, draw, cover=0.66), choose_view(PLAIN, draw, cover=0.66))
    views = [apply_view(background, affine, SIDE) for affine in maps]
    things = [choose_thing(CONFIG, draw, frames=2, cover=0.66) for _ in range(3)]
    for number, thing in enumerate(things, 1):
        source = np.full((2, 96, 96, 3), 80 * number, dtype=np.uint8)
        views = [paste(view, source, thing, way) for view, way in zip(views, thing.placings, strict=True)]
    points = square_places(16)
    for view in (0, 1):
        grey = looked_up(views[view][0], points)[:, 0]
        clear = (grey / 80 - (grey / 80).round()).abs() < 0.01  # not at an edge
        assert clear.float().mean() > 0.6
        told = covering(points, things, view)
        assert (told[clear] == (grey[clear] / 80).round()).float().mean() > 0.97
