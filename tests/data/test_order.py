"""The order of samples and their random numbers depend only on seed, epoch and position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle.data.corpus.order import generator, positions, sample_at, sample_keys, shard_sample_at, shards_at
from timecycle.errors import SettingsError


def epoch_order(count: int, *, seed: int = 0, epoch: int = 0) -> list[int]:
    return [sample_at(seed=seed, epoch=epoch, position=position, count=count) for position in range(count)]


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_every_epoch_visits_every_sample_once(count: int):
    for epoch in range(3):
        assert sorted(epoch_order(count, epoch=epoch)) == list(range(count))


def test_epochs_and_seeds_have_different_orders():
    orders = [epoch_order(50, seed=seed, epoch=epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9
    assert orders[0] == epoch_order(50)


def test_generators_of_samples_are_independent_and_repeatable():
    draws = {
        (seed, epoch, position): tuple(generator(seed=seed, epoch=epoch, position=position).random(4))
        for seed in range(4)
        for epoch in range(4)
        for position in range(4)
    }
    assert len(set(draws.values())) == len(draws)
    assert tuple(generator(seed=1, epoch=2, position=3).random(4)) == draws[1, 2, 3]
    first = np.array([draw[0] for draw in draws.values()])
    assert 0.3 < first.mean() < 0.7


def test_epoch_order_and_first_sample_use_different_random_numbers():
    assert epoch_order(100) != list(generator(seed=0, epoch=0, position=0).permutation(100))


def test_any_number_of_processes_shares_the_same_batch():
    for world_size in (1, 2, 3, 6):
        taken = [
            key
            for rank in range(world_size)
            for key in sample_keys(5, batch=6, rank=rank, world_size=world_size, count=7)
        ]
        assert taken == [(4, 2), (4, 3), (4, 4), (4, 5), (4, 6), (5, 0)]


def test_steps_leave_no_gap_between_positions():
    assert [p for step in range(4) for p in positions(step, batch=3, rank=0, world_size=1)] == list(range(12))


def test_invalid_batches_ranks_positions_and_seeds_are_refused():
    with pytest.raises(SettingsError, match="shared equally by 4 processes; start 1 or 2 or 3 or 6"):
        positions(0, batch=6, rank=0, world_size=4)
    with pytest.raises(SettingsError, match="no process 2 of 2; number them from 0 to 1"):
        positions(0, batch=6, rank=2, world_size=2)
    with pytest.raises(SettingsError, match="no position 5; ask for 0 to 4"):
        sample_at(seed=0, epoch=0, position=5, count=5)
    with pytest.raises(SettingsError, match="the seed is -1; give 0 to"):
        generator(seed=-1, epoch=0, position=0)


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=12).map(tuple),
    mixed_shards=st.integers(1, 5),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
)
def test_epoch_over_shards_visits_every_sample_once_and_few_shards_at_a_time(counts, mixed_shards, seed, epoch):
    firsts = [sum(counts[:shard]) for shard in range(len(counts) + 1)]
    same = {"seed": seed, "epoch": epoch, "counts": counts, "mixed_shards": mixed_shards}
    seen, opened = [], []
    for position in range(sum(counts)):
        drawn = shard_sample_at(position=position, **same)
        seen.append(drawn.sample)
        shard = max(number for number in range(len(counts)) if firsts[number] <= drawn.sample)
        assert shard in shards_at(position=position, **same)
        assert position < drawn.stop <= sum(counts)
        if shard not in opened:
            opened.append(shard)
        # A shard is finished before those of the group after the next are opened.
        assert all(
            sum(firsts[s] <= one < firsts[s + 1] for one in seen) == counts[s] for s in opened[: -2 * mixed_shards + 1]
        )
    assert sorted(seen) == list(range(sum(counts)))


def test_epochs_visit_shards_in_different_orders():
    orders = {
        tuple(
            shards_at(seed=0, epoch=epoch, position=position, counts=(1,) * 8, mixed_shards=1)[0]
            for position in range(8)
        )
        for epoch in range(5)
    }
    assert len(orders) == 5


def test_position_beyond_the_shards_is_refused():
    with pytest.raises(SettingsError, match="an epoch of 6 samples has no position 6"):
        shard_sample_at(seed=0, epoch=0, position=6, counts=(4, 2), mixed_shards=1)
