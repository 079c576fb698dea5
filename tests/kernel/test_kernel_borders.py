"""Wrong shapes and indices are refused before the kernel is called, which does not check bounds."""

import pytest
import torch

from timecycle.grid import grid_over
from timecycle.kernel.deciding import decide
from timecycle.kernel.library import find_kernel
from timecycle.kernel.search import Keys, Packed, pack, principal_axes, search
from timecycle.kernel.voting import vote


@pytest.fixture
def functions(variant):
    return find_kernel().functions


def packed(channels):
    cells = torch.rand(4, 5, channels)
    return pack(cells, principal_axes(cells))


def test_features_of_another_size_are_refused(functions):
    query, other = packed(8), packed(12)
    with pytest.raises(ValueError, match="cannot match"):
        search(functions, query, [Keys(other, (), 0)], 3)
    cut = Packed(query.cells, query.turned[:, :, :-1].contiguous(), query.axes)
    with pytest.raises(ValueError, match="were packed as"):
        search(functions, query, [Keys(cut, (), 0)], 3)


def test_a_search_without_references_or_neighbours_is_refused(functions):
    query = packed(8)
    for keys, k in (([], 3), ([Keys(query, (), 0)], 0)):
        with pytest.raises(ValueError, match="neighbours among"):
            search(functions, query, keys, k)
    with pytest.raises(ValueError, match="negative width"):
        search(functions, query, [Keys(query, (1, -1), 0)], 3)


@pytest.mark.parametrize("cell", [-1, 20, 2**40])
def test_votes_for_missing_cells_are_refused(functions, cell):
    labels = [torch.rand(10, 3), torch.rand(10, 3)]
    with pytest.raises(ValueError, match="votes for cells"):
        vote(functions, torch.tensor([[0, 19], [cell, 3]]), torch.rand(2, 2), labels)


@pytest.mark.parametrize("shape", [(4, 5, 2), (3, 6, 2), (4, 6, 0)])
def test_a_label_map_of_another_grid_is_refused(functions, shape):
    grid = grid_over(32, 48, cells=(4, 6), stride_px=8, first_px=0)
    with pytest.raises(ValueError, match="does not fit a grid"):
        decide(functions, torch.rand(shape), grid)
