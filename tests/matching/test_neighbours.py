"""The windowed search equals a float64 brute force over every shape, window, k and tie."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from timecycle.matching import tiles
from timecycle.matching.neighbours import Reference, aggregate_labels, neighbours, neighbours_of_groups
from timecycle.matching.tiles import WindowedFeatures, search_tiles
from timecycle.matching.window import Window


def brute_force(query, references, *, k, temperature, weighting):
    """Full affinity in float64, one query at a time: {neighbour: weight} for each."""
    rows, columns, _ = query.shape
    results = []
    for y in range(rows):
        for x in range(columns):
            lists, offset = [], 0
            for reference in references:
                cells = reference.features.double().numpy()
                scores = cells @ query[y, x].double().numpy()
                seen = [
                    (-scores[v, u], (v - y) ** 2 + (u - x) ** 2, offset + v * cells.shape[1] + u)
                    for v in range(cells.shape[0])
                    for u in range(cells.shape[1])
                    if inside(reference.window, v - y, u - x)
                ]
                lists.append((sorted(seen), reference.copies))
                offset += cells.shape[0] * cells.shape[1]
            results.append(weigh(lists, k, temperature, weighting))
    return results


def inside(window, dy, dx):
    if window is None:
        return True
    if window.shape == "disc":
        return dy * dy + dx * dx <= window.radius**2
    return max(abs(dy), abs(dx)) <= window.radius


def weigh(lists, k, temperature, weighting):
    """Each list holds (-score, squared distance, position) of the keys in a query's window, best first."""
    if weighting == "joint":
        kept = sorted(entry for seen, _ in lists for entry in seen)[:k]
        values = [math.exp(-s / temperature) for s, _, _ in kept]
        return {i: v / sum(values) for (_, _, i), v in zip(kept, values, strict=True)}
    copies = sum(c for _, c in lists)
    out = {}
    for seen, count in lists:
        total = sum(math.exp(-s / temperature) for s, _, _ in seen)
        for s, _, i in seen[:k]:
            out[i] = math.exp(-s / temperature) / total * count / copies
    return out


def whole_features(rng, rows, columns, channels):
    """Small whole numbers: scores are exact in any precision, and ties are frequent."""
    return torch.from_numpy(rng.integers(-1, 2, (rows, columns, channels)).astype(np.float32))


windows = st.one_of(
    st.none(),
    st.builds(Window, st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.7, 12.0]), st.sampled_from(["disc", "square"])),
)


@settings(max_examples=120, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 11), st.integers(1, 19)),
    kinds=st.lists(st.tuples(windows, st.integers(1, 3)), min_size=1, max_size=3),
    k=st.integers(1, 12),
    weighting=st.sampled_from(["joint", "per_reference"]),
    seed=st.integers(0, 10_000),
)
def test_equals_brute_force_with_ties(shape, kinds, k, weighting, seed):
    rng = np.random.default_rng(seed)
    query = whole_features(rng, *shape, 3)
    references = [Reference(whole_features(rng, *shape, 3), window, copies) for window, copies in kinds]
    matches = neighbours(query, references, k=k, temperature=0.7, weighting=weighting)
    expected = brute_force(query, references, k=k, temperature=0.7, weighting=weighting)
    for index, weight, wanted in zip(matches.index, matches.weight, expected, strict=True):
        got = {int(i): float(w) for i, w in zip(index, weight, strict=True) if w > 0}
        assert got.keys() == wanted.keys()
        assert all(math.isclose(got[i], wanted[i], rel_tol=1e-4) for i in wanted)


@pytest.mark.parametrize("weighting", ["joint", "per_reference"])
def test_equals_brute_force_on_real_valued_features(weighting):
    generator = torch.Generator().manual_seed(3)
    cells = [torch.nn.functional.normalize(torch.randn(13, 21, 32, generator=generator), dim=-1) for _ in range(4)]
    references = [
        Reference(cells[1], None),
        Reference(cells[2], Window(3.2)),
        Reference(cells[3], Window(5, "square")),
    ]
    matches = neighbours(cells[0], references, k=5, temperature=0.07, weighting=weighting)
    expected = brute_force(cells[0], references, k=5, temperature=0.07, weighting=weighting)
    for index, weight, wanted in zip(matches.index, matches.weight, expected, strict=True):
        assert set(index.tolist()) == wanted.keys()
        assert torch.allclose(weight, torch.tensor([wanted[int(i)] for i in index]), atol=1e-5)


def test_ties_everywhere_select_the_nearest_cells():
    """In a uniform region every cell matches itself, first in the earlier reference."""
    flat = torch.ones(5, 7, 2)
    matches = neighbours(flat, [Reference(flat, None), Reference(flat, None)], k=2, temperature=1, weighting="joint")
    here = torch.arange(35)
    assert torch.equal(matches.index, torch.stack([here, here + 35], dim=1))
    assert torch.allclose(matches.weight, torch.full_like(matches.weight, 1 / 2))


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 11), st.integers(1, 12)),
    kinds=st.lists(windows, min_size=3, max_size=3),
    k=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
def test_neighbours_of_a_group_equal_those_of_its_references_alone(shape, kinds, k, seed):
    rng = np.random.default_rng(seed)
    query = whole_features(rng, *shape, 3)
    references = [Reference(whole_features(rng, *shape, 3), window) for window in kinds]
    groups = torch.tensor([[True, True], [True, False], [True, True]])
    everyone, two = neighbours_of_groups(query, references, groups, k=k, temperature=0.7)
    whole = neighbours(query, references, k=k, temperature=0.7, weighting="joint")
    assert torch.equal(everyone.index, whole.index)
    alone = neighbours(query, [references[0], references[2]], k=k, temperature=0.7, weighting="joint")
    cells = shape[0] * shape[1]
    expected = torch.where((alone.index >= cells) & (alone.weight > 0), alone.index + cells, alone.index)
    assert torch.equal(two.index, expected)
    assert torch.allclose(two.weight, alone.weight)


def test_matches_lie_inside_the_window():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(9, 30, 4, generator=generator), torch.randn(9, 30, 4, generator=generator)
    matches = neighbours(query, [Reference(key, Window(4))], k=3, temperature=1, weighting="joint")
    y, x = torch.arange(270) // 30, torch.arange(270) % 30
    dy, dx = matches.index // 30 - y[:, None], matches.index % 30 - x[:, None]
    assert (dy**2 + dx**2 <= 16).all()


def test_missing_neighbours_of_a_small_window_have_no_weight():
    one = torch.ones(1, 1, 2)
    matches = neighbours(one, [Reference(one, Window(1))], k=5, temperature=1, weighting="joint")
    assert matches.weight.tolist() == [[1, 0, 0, 0, 0]]
    assert matches.index.tolist() == [[0, 0, 0, 0, 0]]


def test_a_frame_matched_with_itself_keeps_one_hot_labels():
    """A frame matched with itself, k = 1: every cell matches itself and keeps its label."""
    generator = torch.Generator().manual_seed(1)
    cells = torch.nn.functional.normalize(torch.randn(6, 5, 16, generator=generator), dim=-1)
    labels = torch.eye(30)
    matches = neighbours(cells, [Reference(cells, Window(2))], k=1, temperature=0.07, weighting="joint")
    assert torch.equal(aggregate_labels(matches, [labels]), labels)


def test_permuting_channels_permutes_aggregated_labels():
    generator = torch.Generator().manual_seed(2)
    query, key = torch.randn(6, 6, 8, generator=generator), torch.randn(6, 6, 8, generator=generator)
    labels = torch.rand(36, 4, generator=generator)
    matches = neighbours(query, [Reference(key, None)], k=5, temperature=0.5, weighting="joint")
    order = torch.tensor([2, 0, 3, 1])
    assert torch.allclose(aggregate_labels(matches, [labels])[:, order], aggregate_labels(matches, [labels[:, order]]))


def test_accelerator_makes_the_masks_of_the_windows_once(monkeypatch):
    monkeypatch.setattr(tiles, "host_values", lambda values, _waiting: [0.0] * len(values))
    device = torch.device("meta")
    query = torch.empty(40, 50, 8, device=device)
    references = [WindowedFeatures(torch.empty(40, 50, 8, device=device), Window(5.0)) for _ in range(3)]
    made = []
    for _ in range(2):
        with _Masks() as masks:
            search_tiles(query, references, k=4)
        made.append(masks.count)
    assert made == [4, 0]  # four tiles, whose references share a window


class _Masks(TorchDispatchMode):
    """Counts the masks that are filled."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.masked_fill_.Scalar
        return func(*args, **(kwargs or {}))
