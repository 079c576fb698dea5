"""Nodes of walks: their geometry is that of their cells, perfect features close their walks, and edges are left out."""

import pytest
import torch

from test_walks import GRID, shifted, views
from timecycle.errors import SettingsError
from timecycle.objectives.nodes import node_grid, node_points, pool_nodes
from timecycle.objectives.walks import WalksConfig, return_targets, walk_losses
from timecycle.pose import cell_centres
from timecycle.training.settings import TrainConfig

SIDES = (1, 2, 3, 4, 5)


def seen(points):
    return torch.ones(points.shape[:2], dtype=torch.bool)


@pytest.mark.parametrize("side", SIDES)
def test_a_node_is_centred_on_its_cells(side):
    stride = max(1, side // 2)
    centres = GRID.centres()
    expected = [
        [centres[y : y + side, x : x + side].mean(dim=(0, 1)) for x in range(0, 15 - side + 1, stride)]
        for y in range(0, 15 - side + 1, stride)
    ]
    nodes = node_grid(GRID, side)
    assert torch.allclose(nodes.centres(), torch.stack([torch.stack(row) for row in expected]))
    assert pool_nodes(torch.rand(2, 3, 8, 15, 15), side).shape == (2, 3, 8, nodes.y.cells, nodes.x.cells)


@pytest.mark.parametrize("side", SIDES)
def test_without_motion_nodes_stay_where_they_are(side):
    points = shifted(0, 0)
    middles, together = node_points(points, seen(points), GRID, side)
    assert together.all()
    assert torch.allclose(middles, cell_centres(node_grid(GRID, side)).expand_as(middles), atol=1e-6)


@pytest.mark.parametrize("side", SIDES)
def test_perfect_features_close_the_walks_of_nodes(side):
    """The views differ by whole strides of nodes, so that nodes of both show the same cells."""
    out, back, points = views(shift=(2, -2), moves=((0, 0), (0, 0)))
    config = WalksConfig(temperature=0.005, nodes=1.0, node_cells=side)
    assert walk_losses(out, back, points, grid=GRID, config=config).losses["nodes"] < 0.01


def test_nodes_of_one_cell_are_cells():
    out, back, points = views()
    config = WalksConfig(temperature=0.2, nodes=1.0, node_cells=1)
    losses = walk_losses(out, back, points, grid=GRID, config=config).losses
    lengths = out.shape[1]
    assert losses["nodes"] == pytest.approx(
        ((losses["walk"] * (lengths - 1) + losses["same_frame"]) / lengths).item(), rel=1e-5
    )


def test_a_node_on_an_edge_or_with_a_hidden_middle_is_left_out():
    points = shifted(0, 0, 1).clone().reshape(1, 15, 15, 2)
    points[:, :, 8:] += 0.8  # another object, which moves by six cells
    visible = torch.ones(1, 15, 15, dtype=torch.bool)
    visible[:, 3, :] = False
    _, together = node_points(points.flatten(1, 2), visible.flatten(1), GRID, 4)
    kept = together.reshape(6, 6)
    assert not kept[1].any()  # its middle is rows 3 and 4
    assert not kept[:, 3].any()  # its middle is columns 7 and 8
    assert kept[2:, :3].all()
    assert kept[2:, 4:].all()
    target = return_targets(*node_points(points.flatten(1, 2), visible.flatten(1), GRID, 4)[:1], node_grid(GRID, 4))
    assert target.weight.shape == (1, 36, 36)


def test_gradients_reach_both_views():
    out, back, points = (tensor.clone().requires_grad_() for tensor in views())
    config = WalksConfig(walk=0, same_frame=0, nodes=1)
    walk_losses(out, back, points.detach(), grid=GRID, config=config).total.backward()
    for view in (out, back):
        assert torch.isfinite(view.grad).all()
        assert view.grad.abs().sum() > 0


def test_nodes_larger_than_half_a_view_are_refused():
    with pytest.raises(SettingsError, match=r"walks.node_cells is 9 and a view has 16 cells a side; give at most 8"):
        TrainConfig(walks=WalksConfig(nodes=1, node_cells=9), clips=TrainConfig().clips)
