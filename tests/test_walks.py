"""Walks over two views: certain of their way home with perfect features, lost with equal ones, never by position."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from timecycle.grid import grid_over
from timecycle.pose import cell_places
from timecycle.walks import Things, WalksConfig, astray, returns, walk_losses
from wandering import frames, world

GRID = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=0)
CONFIG = WalksConfig(temperature=0.02)


def shifted(columns: int, rows: int, batch: int = 3) -> torch.Tensor:
    """Places in a view that begins so many cells later: what stood at cell c stands at c - shift."""
    places = cell_places(GRID) - torch.tensor([columns, rows]) * 16 / 120
    return places.expand(batch, -1, -1)


def views(shift=(3, -2), moves=((0, 0), (1, 2), (-2, 1), (2, -1))):
    whole = world()
    out = frames(whole, list(moves))
    back = frames(whole, [(x + shift[0], y + shift[1]) for x, y in moves])
    return out, back, shifted(*shift)


def test_perfect_features_find_home_in_the_other_view():
    out, back, places = views()
    found = walk_losses(out, back, places, grid=GRID, config=CONFIG)
    for length in range(4):
        # A walker whose way leaves the frame is lost, whatever the features.
        assert found.diagnostics[f"home_{length}"] > (0.99 if length == 0 else 0.7)
    assert found.losses["still"] < 0.01


def test_in_a_still_clip_every_walk_comes_home():
    out, back, places = views(shift=(0, 0), moves=[(0, 0)] * 4)
    found = walk_losses(out, back, places, grid=GRID, config=CONFIG)
    assert found.total < 1e-3
    assert found.diagnostics["home_3"] == 1


def test_equal_features_know_nothing():
    flat = torch.ones(2, 4, 8, 15, 15) / 8**0.5
    found = walk_losses(flat, flat, shifted(3, -2, 2), grid=GRID, config=CONFIG)
    assert found.losses["walk"] == pytest.approx(math.log(225), rel=1e-3)
    assert found.diagnostics["entropy"] == pytest.approx(1, abs=1e-4)


def test_features_that_only_know_their_position_do_not_come_home():
    """The two views share no place: matching by position is not a way home."""
    position = F.normalize(torch.randn(1, 1, 128, 15, 15, generator=torch.Generator().manual_seed(1)), dim=2)
    position = position.expand(3, 4, -1, -1, -1)
    found = walk_losses(position, position, shifted(3, -2), grid=GRID, config=CONFIG)
    assert found.diagnostics["home_1"] == 0
    assert found.losses["walk"] > math.log(225)


def test_gradients_are_finite():
    out, back, places = (tensor.clone().requires_grad_() for tensor in views())
    walk_losses(out, back, places.detach(), grid=GRID, config=WalksConfig()).total.backward()
    assert torch.isfinite(out.grad).all()
    assert torch.isfinite(back.grad).all()


def test_walks_of_all_lengths_are_the_plain_products():
    out, back, places = views()
    config = WalksConfig(temperature=0.2)
    found = walk_losses(out, back, places, grid=GRID, config=config)
    target = returns(places, GRID)

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
        costs.append((cost * target.seen).sum() / target.seen.sum())
    assert found.losses["walk"] == pytest.approx(torch.stack(costs).mean().item(), rel=1e-4)


def test_targets_are_where_the_map_puts_each_cell():
    target = returns(shifted(3, -2, 1), GRID)
    seen = target.seen.reshape(15, 15)
    assert seen[:, :3].sum() == 0  # left of the second view
    assert seen[13:].sum() == 0
    assert seen[:13, 3:].all()
    best = target.weight.argmax(dim=2).reshape(15, 15)
    assert best[4, 7] == (4 + 2) * 15 + (7 - 3)


def test_closed_steps_come_from_the_generator_alone():
    out, back, places = views()

    def loss(seed):
        config = WalksConfig(dropout=0.3, temperature=0.05)
        made = torch.Generator().manual_seed(seed) if seed is not None else None
        return walk_losses(out, back, places, grid=GRID, config=config, generator=made).total.item()

    assert loss(1) == loss(1) != loss(2)
    assert loss(None) < loss(1)


def test_a_loss_can_go_by_where_things_move():
    """Cells count as much as they change; all alike where nothing does, and never less than nothing."""
    out, back, places = views()
    still = torch.zeros(3, 225)
    moving = still.clone()
    moving[:, 100:110] = 7.0
    plain, even, biased = (
        walk_losses(out, back, places, grid=GRID, config=WalksConfig(temperature=0.2, motion=motion), change=change)
        for motion, change in ((0.0, moving), (1.0, torch.ones(3, 225)), (1.0, moving))
    )
    assert even.total == pytest.approx(plain.total.item())
    target = returns(places, GRID)
    step = (torch.einsum("bchw,bcxy->bhwxy", out[:, 0], back[:, 0]).flatten(3).flatten(1, 2) / 0.2).softmax(dim=2)
    cost = -(target.weight * step.clamp_min(1e-8).log()).sum(dim=2) * target.seen
    mean = cost[:, 100:110].sum() / target.seen[:, 100:110].sum()
    assert biased.losses["still"] == pytest.approx(mean.item(), rel=1e-4)
    nothing = walk_losses(out, back, places, grid=GRID, config=WalksConfig(temperature=0.2, motion=0.5), change=still)
    assert nothing.total == pytest.approx(plain.total.item())


def test_strangers_cost_what_goes_to_them():
    """With equal features a walker is as likely on any cell of the clips it may stray into, at every step."""
    flat = torch.ones(3, 2, 8, 15, 15) / 8**0.5
    found = walk_losses(flat, flat, shifted(3, -2), grid=GRID, config=WalksConfig(dropout=0, strangers=1))
    assert found.losses["still"] == pytest.approx(math.log(2 * 225), rel=1e-3)
    assert found.losses["walk"] == pytest.approx(math.log(2 * 2 * 225), rel=1e-3)
    out, back, places = views()
    alone, among = (
        walk_losses(out, back, places, grid=GRID, config=WalksConfig(temperature=0.2, strangers=count))
        for count in (0, 9)
    )
    assert among.total > alone.total  # of a batch of three, at most two are strangers


def test_what_is_hidden_on_the_way_counts_for_nothing():
    out, back, places = views()
    visible = torch.zeros(places.shape[:2], dtype=torch.bool)
    visible[:, 100:120] = True
    spoiled = places.clone()
    spoiled[~visible] = 0.3
    config = WalksConfig(temperature=0.2)
    found = [
        walk_losses(out, back, told, grid=GRID, config=config, visible=visible).total for told in (places, spoiled)
    ]
    assert torch.equal(*found)
    assert found[0] > 0
    assert found[0] != walk_losses(out, back, places, grid=GRID, config=config).total


def things_loss(end, on, home) -> float:
    return float(astray(torch.tensor(end)[None], Things(torch.tensor(on)[None], torch.tensor(home)[None])))


def test_ending_anywhere_on_the_own_thing_costs_nothing():
    """Two cells of a thing change places, two of the background too."""
    end = torch.eye(4)[[1, 0, 3, 2]].tolist()
    assert things_loss(end, [1, 1, 0, 0], [1, 1, 0, 0]) == pytest.approx(0, abs=1e-5)


def test_ending_on_another_thing_costs_and_every_thing_counts_alike():
    end = [[0.5, 0.5], [0.0, 1.0]]
    assert things_loss(end, [1, 0], [1, 0]) == pytest.approx(math.log(2) / 2, abs=1e-4)
    # Three cells of background that are right do not outvote the one cell of a thing that is half wrong.
    end = [[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]
    assert things_loss(end, [1, 0, 0, 0], [1, 0, 0, 0]) == pytest.approx(math.log(2) / 2, abs=1e-4)


def test_a_thing_that_is_not_in_the_other_view_is_left_out():
    assert things_loss([[0.0, 1.0], [0.0, 1.0]], [1, 0], [0, 0]) == pytest.approx(0, abs=1e-5)
