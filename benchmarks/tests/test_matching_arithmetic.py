"""The count of matching: windows as a brute force counts them, products as the tiles have them."""

import pytest
import torch

from matching_arithmetic import Card, _Scene
from timecycle.matching.tiles import WindowedFeatures
from timecycle.matching.window import Window

ROWS, COLUMNS, DIMENSIONS = 20, 37, 5


def scene(window: Window | None, references: int = 3) -> _Scene:
    cells = torch.empty(ROWS, COLUMNS, DIMENSIONS, device="meta")
    return _Scene(cells, [WindowedFeatures(cells, window)] * references, 4, Card())


@pytest.mark.parametrize("window", [None, Window(4.5), Window(3.0, "square"), Window(30.0)])
def test_cells_in_windows_are_those_of_a_brute_force(window):
    inside = 0
    for dy in range(1 - ROWS, ROWS):
        for dx in range(1 - COLUMNS, COLUMNS):
            if window is None:
                is_inside = True
            elif window.shape == "disc":
                is_inside = dy**2 + dx**2 <= window.radius**2
            else:
                is_inside = max(abs(dy), abs(dx)) <= window.radius
            inside += is_inside * (ROWS - abs(dy)) * (COLUMNS - abs(dx))
    assert scene(window).window_cells() == round(inside / ROWS / COLUMNS, 1)


@pytest.mark.parametrize("side", [8, 32])
def test_products_of_the_tiles_are_counted_from_the_code_that_runs(side):
    counted = scene(Window(4.0)).tiles(side)
    expected = sum(2 * queries * keys * DIMENSIONS for queries, keys in scene(Window(4.0))._regions(side))
    assert counted.flop == expected
    assert counted.bytes > 4 * expected / (2 * DIMENSIONS)  # every score is written at least


def test_tiles_compute_more_than_the_windows_need():
    one = scene(Window(4.0))
    assert one.needed_flop() < one.fused().flop < one.tiles(32).flop
