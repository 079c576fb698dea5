"""Every variant of the kernel agrees with torch and a float64 brute force, for odd shapes and ties."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timecycle.errors import SettingsError
from timecycle.grid import grid_over
from timecycle.kernel import library
from timecycle.kernel.search import pack, principal_axes
from timecycle.labels.label_map import upsample, upsample_argmax
from timecycle.matching.neighbours import Neighbours, Packing, Reference, aggregate_labels, neighbours
from timecycle.matching.window import Window

# A variant is chosen once for all examples of a test.
over_examples = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
maps = st.tuples(st.integers(1, 9), st.integers(1, 40))
windows = st.one_of(
    st.none(),
    st.builds(
        Window, st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.7, 12.0, 17.0, 1e9]), st.sampled_from(["disc", "square"])
    ),
)


def search(query, references, k):
    return neighbours(query, references, k=k, temperature=0.7, weighting="joint")


def brute_force(query, references, k):
    """Return the top-k indices in float64, by score, then distance, then index; -1 for missing ones."""
    rows, columns, _ = query.shape
    y, x = (axis.reshape(-1, 1) for axis in np.mgrid[:rows, :columns])
    keys = []
    for reference in references:
        v, u = (axis.reshape(1, -1) for axis in np.mgrid[: reference.features.shape[0], : reference.features.shape[1]])
        dy, dx = abs(v - y), abs(u - x)
        inside = np.full(dy.shape, True)
        if reference.window is not None:
            distance = np.maximum(dy, dx) if reference.window.shape == "square" else np.sqrt(dy**2 + dx**2)
            inside = distance <= reference.window.radius
        score = query.double().flatten(0, 1).numpy() @ reference.features.double().flatten(0, 1).numpy().T
        keys.append((np.where(inside, -score, np.inf), dy**2 + dx**2))
    score, distance = (np.concatenate(columns, axis=1) for columns in zip(*keys, strict=True))
    index = np.broadcast_to(np.arange(score.shape[1]), score.shape)
    order = np.lexsort((index, distance, score), axis=1)[:, :k]
    best = np.where(np.take_along_axis(score, order, axis=1) < np.inf, order, -1)
    return np.pad(best, ((0, 0), (0, max(k - best.shape[1], 0))), constant_values=-1)


def indices(result):
    """Return the neighbours in order; -1 for missing ones."""
    return torch.where(result.weight > 0, result.index, -1).numpy()


@over_examples
@given(
    shape=maps,
    others=st.lists(st.tuples(maps, windows), min_size=1, max_size=3),
    k=st.integers(1, 12),
    seed=st.integers(0, 9999),
)
def test_search_equals_a_float64_brute_force(variant, shape, others, k, seed):
    """Features are small integers: scores are exact in any precision, and ties are frequent."""
    rng = np.random.default_rng(seed)

    def features(size):
        return torch.from_numpy(rng.integers(-1, 2, (*size, 3)).astype(np.float32))

    query = features(shape)
    references = [Reference(features(size), window) for size, window in others]
    assert np.array_equal(indices(search(query, references, k)), brute_force(query, references, k))


@pytest.mark.parametrize("channels", [1, 3, 37, 256])
def test_search_of_real_valued_features_equals_a_brute_force(variant, channels):
    generator = torch.Generator().manual_seed(channels)
    cells = [F.normalize(torch.randn(23, 51, channels, generator=generator), dim=-1) for _ in range(4)]
    if channels == 1:  # normalised, all would be equal
        cells = [torch.randn(23, 51, 1, generator=generator) for _ in range(4)]
    references = [
        Reference(cells[1], Window(12)),
        Reference(cells[2], Window(4.5, "square")),
        Reference(cells[3], None),
    ]
    assert np.array_equal(indices(search(cells[0], references, 10)), brute_force(cells[0], references, 10))


@pytest.mark.parametrize("axes", ["principal", "identity", "reversed"])
def test_axes_do_not_change_the_result(variant, axes):
    """Features lie near few axes, as trained ones do, so that most pairs are rejected early."""
    generator = torch.Generator().manual_seed(5)
    strength = 0.9 ** torch.arange(150)
    rotation = torch.linalg.qr(torch.randn(150, 150, generator=generator)).Q
    cells = [F.normalize(torch.randn(20, 33, 150, generator=generator) * strength @ rotation, dim=-1) for _ in range(3)]
    chosen = {"principal": principal_axes(cells[0]), "identity": torch.eye(150)}
    chosen["reversed"] = chosen["principal"].flip(1).contiguous()
    references = [Reference(cells[1], Window(8)), Reference(cells[2], None)]
    packing = Packing(pack(cells[0], chosen[axes]))
    result = neighbours(cells[0], references, k=10, temperature=0.7, weighting="joint", packing=packing)
    assert references[0].packing.packed.axes is chosen[axes]
    assert np.array_equal(indices(result), brute_force(cells[0], references, 10))
    assert torch.equal(result.weight, search(cells[0], references, 10).weight)


def test_threads_and_the_order_of_references_do_not_change_the_result(variant):
    generator = torch.Generator().manual_seed(0)
    query, *cells = (F.normalize(torch.randn(31, 45, 64, generator=generator), dim=-1) for _ in range(4))
    references = [Reference(c, Window(6)) for c in cells]
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3, 7):
            torch.set_num_threads(count)
            results.append(search(query, references, 5))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(r.index, results[0].index) and torch.equal(r.weight, results[0].weight) for r in results)
    reversed_result = search(query, references[::-1], 5)
    reference = reversed_result.index // (31 * 45)
    assert torch.equal((2 - reference) * 31 * 45 + reversed_result.index % (31 * 45), results[0].index)
    assert torch.equal(reversed_result.weight, results[0].weight)


def test_variants_with_fused_multiply_add_are_bit_identical(choose):
    generator = torch.Generator().manual_seed(0)
    query, key = (F.normalize(torch.randn(20, 30, 128, generator=generator), dim=-1) for _ in range(2))
    results = []
    for variant in ("avx2", "avx512"):
        if choose(variant).functions is None:
            pytest.skip(choose(variant).reason)
        results.append(search(query, [Reference(key, Window(5))], 10))
    assert torch.equal(results[0].index, results[1].index)
    assert torch.equal(results[0].weight, results[1].weight)


@over_examples
@given(queries=st.integers(1, 600), votes=st.integers(1, 12), channels=st.integers(1, 40), seed=st.integers(0, 9999))
def test_vote_returns_weighted_sums(variant, queries, votes, channels, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = [torch.rand(50, channels, generator=generator) for _ in range(3)]
    index = torch.randint(0, 150, (queries, votes), generator=generator)
    weight = torch.rand(queries, votes, generator=generator)
    expected = torch.einsum("qv,qvc->qc", weight.double(), torch.cat(labels)[index].double())
    assert torch.allclose(aggregate_labels(Neighbours(index, weight), labels).double(), expected, atol=1e-5)


@over_examples
@given(
    size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    output_size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    channels=st.integers(1, 30),
    seed=st.integers(0, 9999),
)
def test_decoding_agrees_with_torch(variant, choose, size, output_size, channels, seed):
    grid = grid_over(*size, cells=(-(-size[0] // 8), -(-size[1] // 8)), stride_px=8, first_px=0).rescaled(*output_size)
    generator = torch.Generator().manual_seed(seed)
    soft = torch.randint(0, 3, (grid.y.cells, grid.x.cells, channels), generator=generator) / 2
    soft = soft * (torch.rand(channels, generator=generator) < 0.5)
    choose(variant)
    decided = upsample_argmax(soft, grid).long()
    choose("off")
    expected = upsample_argmax(soft, grid).long()
    # Without fused multiply-adds, ties are rounded differently.
    values = upsample(soft, grid)
    difference = values.gather(0, expected[None]) - values.gather(0, decided[None])
    assert difference.abs().max() < (1e-6 if variant == "generic" else 1e-30)


def test_search_ignores_reduced_precision_settings(variant, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    query, key = (F.normalize(torch.randn(20, 30, 128, generator=generator), dim=-1) for _ in range(2))
    expected = search(query, [Reference(key, Window(5))], 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = search(query, [Reference(key, Window(5))], 10)
    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "BF16")
    again = search(query, [Reference(key, Window(5))], 10)
    assert torch.equal(result.index, expected.index)
    assert torch.equal(again.index, expected.index)


def test_other_devices_types_and_gradients_are_left_to_torch(variant):
    cells = torch.rand(3, 4, 2)
    assert library.kernel_for(cells) is not None
    assert library.kernel_for(cells.requires_grad_()) is None
    assert library.kernel_for(torch.rand(3, 4, 2, device="meta")) is None
    assert library.kernel_for(torch.rand(3, 4, 2).double()) is None


# Loading


def test_the_kernel_can_be_switched_off(choose):
    assert choose("off").functions is None
    assert choose("off").reason == "TIMECYCLE_KERNEL is off"


def test_an_unknown_variant_is_refused(choose):
    with pytest.raises(SettingsError, match="TIMECYCLE_KERNEL is 'fast'") as error:
        choose("fast")
    assert error.value.remedy == "set it to off, generic, avx2, avx512, or nothing"


def test_a_missing_library_gives_a_reason_and_a_remedy(choose, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    kernel = choose("")
    assert kernel.functions is None
    assert kernel.reason.startswith("the kernel was not compiled")
    assert "C++ compiler" in kernel.remedy


def test_a_library_compiled_from_another_source_is_not_used(choose, monkeypatch, tmp_path, variant):
    for file in Path(library.__file__).parent.glob("kernel*"):
        shutil.copyfile(file, tmp_path / file.name)
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    assert choose("").functions is not None
    (tmp_path / "kernel.cpp").write_text((tmp_path / "kernel.cpp").read_text() + "\n")
    kernel = choose("")
    assert kernel.functions is None
    assert kernel.reason == "the kernel was compiled from another kernel.cpp"


def test_a_variant_that_the_processor_cannot_run_is_not_loaded(choose, monkeypatch):
    monkeypatch.setattr(library, "_level", lambda: 0)
    assert choose("").variant in ("generic", "torch")
    assert choose("avx512").reason == "this processor cannot run avx512"
    assert choose("avx512").remedy == "set TIMECYCLE_KERNEL to generic"
