"""Contrastive random walks: closed by perfect features, uniform with equal ones, and never closed by position alone."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from timecycle.objectives.walks import PastedObjects, Regions, WalksConfig, object_loss, return_targets, walk_losses
from timecycle.pose import cell_centres
from wandering import FRAME as GRID
from wandering import frames, world

CONFIG = WalksConfig(temperature=0.02)


def shifted(columns: int, rows: int, batch: int = 3) -> torch.Tensor:
    """Return the cells' points in a view that begins so many cells later: cell c lies at c - shift."""
    points = cell_centres(GRID) - torch.tensor([columns, rows]) * 16 / 120
    return points.expand(batch, -1, -1)


def views(shift=(3, -2), moves=((0, 0), (1, 2), (-2, 1), (2, -1))):
    whole = world()
    out = frames(whole, list(moves))
    back = frames(whole, [(x + shift[0], y + shift[1]) for x, y in moves[:-1]])
    return out, back, shifted(*shift)


def test_perfect_features_return_to_the_start_in_the_other_view():
    out, back, points = views()
    result = walk_losses(out, back, points, grid=GRID, config=CONFIG)
    for length in range(4):
        # A walk that leaves the frame cannot return, whatever the features.
        assert result.diagnostics[f"return_rate_{length}"] > (0.99 if length == 0 else 0.7)
    assert result.losses["same_frame"] < 0.01


def test_every_walk_returns_in_a_static_clip():
    out, back, points = views(shift=(0, 0), moves=[(0, 0)] * 4)
    result = walk_losses(out, back, points, grid=GRID, config=CONFIG)
    assert result.total < 1e-3
    assert result.diagnostics["return_rate_3"] == 1


def test_equal_features_give_uniform_walks():
    flat = torch.ones(2, 4, 8, 15, 15) / 8**0.5
    result = walk_losses(flat, flat[:, 1:], shifted(3, -2, 2), grid=GRID, config=CONFIG)
    assert result.losses["walk"] == pytest.approx(math.log(225), rel=1e-3)
    assert result.diagnostics["entropy"] == pytest.approx(1, abs=1e-4)


def test_features_of_position_alone_do_not_return():
    """The views differ geometrically, so matching by position ends on another cell."""
    position = F.normalize(torch.randn(1, 1, 128, 15, 15, generator=torch.Generator().manual_seed(1)), dim=2)
    position = position.expand(3, 4, -1, -1, -1)
    result = walk_losses(position, position[:, 1:], shifted(3, -2), grid=GRID, config=CONFIG)
    assert result.diagnostics["return_rate_1"] == 0
    assert result.losses["walk"] > math.log(225)


def test_gradients_are_finite():
    out, back, points = (tensor.clone().requires_grad_() for tensor in views())
    walk_losses(out, back, points.detach(), grid=GRID, config=WalksConfig()).total.backward()
    assert torch.isfinite(out.grad).all()
    assert torch.isfinite(back.grad).all()


def test_walks_of_all_lengths_equal_the_plain_matrix_products():
    out, back, points = views()
    config = WalksConfig(temperature=0.2)
    result = walk_losses(out, back, points, grid=GRID, config=config)
    target = return_targets(points, GRID)

    def step(a, b):
        return (torch.einsum("bchw,bcxy->bhwxy", a, b).flatten(3).flatten(1, 2) / 0.2).softmax(dim=2)

    costs = []
    for length in range(1, 4):
        walk = torch.eye(225).expand(3, -1, -1)
        for t in range(length):
            walk = walk @ step(out[:, t], out[:, t + 1])
        walk = walk @ step(out[:, length], back[:, length - 1])
        for t in range(length - 1, 0, -1):
            walk = walk @ step(back[:, t], back[:, t - 1])
        cost = -(target.weight * (walk + 1e-8).log()).sum(dim=2)
        costs.append((cost * target.valid).sum() / target.valid.sum())
    assert result.losses["walk"] == pytest.approx(torch.stack(costs).mean().item(), rel=1e-4)


def test_targets_are_where_the_map_between_views_puts_each_cell():
    target = return_targets(shifted(3, -2, 1), GRID)
    valid = target.valid.reshape(15, 15)
    assert valid[:, :3].sum() == 0  # left of the second view
    assert valid[13:].sum() == 0
    assert valid[:13, 3:].all()
    best = target.weight.argmax(dim=2).reshape(15, 15)
    assert best[4, 7] == (4 + 2) * 15 + (7 - 3)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_dropout_depends_on_the_generators_alone():
    out, back, points = views()

    def loss(*seeds):
        config = WalksConfig(dropout=0.3, temperature=0.05)
        return walk_losses(out, back, points, grid=GRID, config=config, generators=generators(*seeds)).total.item()

    assert loss(1, 2, 3) == loss(1, 2, 3) != loss(1, 2, 4)
    assert loss() < loss(1, 2, 3)


def test_the_loss_of_a_batch_is_the_mean_of_its_clips():
    """So it does not matter which process has which clips."""
    out, back, points = views()
    points = points + torch.tensor([0.0, 0.2, 0.5])[:, None, None]  # other cells are visible in every clip
    objects = torch.randint(0, 3, (3, 225), generator=torch.Generator().manual_seed(0))
    config = WalksConfig(dropout=0.3, temperature=0.05, pasted=0.5, motion=0.5)
    change = torch.rand(3, 225, generator=torch.Generator().manual_seed(1))

    def losses(clips, seeds):
        pasted = PastedObjects(objects[clips], objects[clips].flip(1), count=4)
        return walk_losses(
            out[clips],
            back[clips],
            points[clips],
            grid=GRID,
            config=config,
            regions=Regions(pasted=pasted),
            amounts={"motion": change[clips]},
            generators=generators(*seeds),
        ).losses

    whole = losses(slice(0, 3), (5, 6, 7))
    single = [losses(slice(i, i + 1), (5 + i,)) for i in range(3)]
    for name, loss in whole.items():
        assert loss == pytest.approx(sum(one[name].item() for one in single) / 3, rel=1e-5), name


@pytest.mark.parametrize("name", ["motion", "contrast"])
def test_cells_are_weighted_by_how_much_they_change_or_differ(name):
    """All cells weigh equally where they change equally or not at all."""
    out, back, points = views()
    static = torch.zeros(3, 225)
    moving = static.clone()
    moving[:, 100:110] = 7.0

    def result(share, amount):
        config = WalksConfig(temperature=0.2, **{name: share})
        return walk_losses(out, back, points, grid=GRID, config=config, amounts={name: amount})

    plain, even, biased = result(0, moving), result(1, torch.ones(3, 225)), result(1, moving)
    assert even.total == pytest.approx(plain.total.item())
    target = return_targets(points, GRID)
    step = (torch.einsum("bchw,bcxy->bhwxy", out[:, 0], back[:, 0]).flatten(3).flatten(1, 2) / 0.2).softmax(dim=2)
    cost = -(target.weight * step.clamp_min(1e-8).log()).sum(dim=2) * target.valid
    mean = cost[:, 100:110].sum() / target.valid[:, 100:110].sum()
    assert biased.losses["same_frame"] == pytest.approx(mean.item(), rel=1e-4)
    nothing = result(0.5, static)
    assert nothing.total == pytest.approx(plain.total.item())


def test_negatives_from_other_clips_take_their_share_of_probability():
    """With equal features every step is equally likely to end on any cell of the clip and its negatives."""
    flat = torch.ones(3, 2, 8, 15, 15) / 8**0.5
    result = walk_losses(flat, flat[:, 1:], shifted(3, -2), grid=GRID, config=WalksConfig(dropout=0, negatives=1))
    assert result.losses["same_frame"] == pytest.approx(math.log(2 * 225), rel=1e-3)
    assert result.losses["walk"] == pytest.approx(math.log(2 * 2 * 225), rel=1e-3)
    out, back, points = views()
    alone, among = (
        walk_losses(out, back, points, grid=GRID, config=WalksConfig(temperature=0.2, negatives=count))
        for count in (0, 9)
    )
    assert among.total > alone.total  # a batch of three has at most two other clips


def test_hidden_cells_do_not_change_the_loss():
    out, back, points = views()
    visible = torch.zeros(points.shape[:2], dtype=torch.bool)
    visible[:, 100:120] = True
    spoiled = points.clone()
    spoiled[~visible] = 0.3
    config = WalksConfig(temperature=0.2)
    totals = [
        walk_losses(out, back, target, grid=GRID, config=config, visible=visible).total for target in (points, spoiled)
    ]
    assert torch.equal(*totals)
    assert totals[0] > 0
    assert totals[0] != walk_losses(out, back, points, grid=GRID, config=config).total


def pasted_loss(walk, start, end) -> float:
    return float(
        object_loss(
            torch.tensor(walk)[None], PastedObjects(torch.tensor(start)[None], torch.tensor(end)[None], count=4)
        )
    )


def test_ending_anywhere_on_the_same_object_costs_nothing():
    """The two cells of an object are swapped, and so are two of the background."""
    walk = torch.eye(4)[[1, 0, 3, 2]].tolist()
    assert pasted_loss(walk, [1, 1, 0, 0], [1, 1, 0, 0]) == pytest.approx(0, abs=1e-5)


def test_ending_on_another_object_costs_and_objects_weigh_equally():
    walk = [[0.5, 0.5], [0.0, 1.0]]
    assert pasted_loss(walk, [1, 0], [1, 0]) == pytest.approx(math.log(2) / 2, abs=1e-4)
    # Three correct background cells do not outweigh the one half-wrong cell of an object.
    walk = [[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]
    assert pasted_loss(walk, [1, 0, 0, 0], [1, 0, 0, 0]) == pytest.approx(math.log(2) / 2, abs=1e-4)


def test_object_missing_from_the_other_view_is_left_out():
    assert pasted_loss([[0.0, 1.0], [0.0, 1.0]], [1, 0], [0, 0]) == pytest.approx(0, abs=1e-5)
