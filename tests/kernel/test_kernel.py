"""The compiled kernel gives what torch and a float64 brute force give, in every form, over odd shapes and ties."""

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
from timecycle.labels.soft import upsample, upsample_argmax
from timecycle.propagation.neighbours import Neighbours, Packing, Reference, neighbours, vote
from timecycle.propagation.window import Window

# A form is chosen once for all examples of a test.
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
    """Indices of the k best in float64, by score, then distance, then index; -1 where there are fewer."""
    rows, columns, _ = query.shape
    y, x = (place.reshape(-1, 1) for place in np.mgrid[:rows, :columns])
    keys = []
    for reference in references:
        v, u = (place.reshape(1, -1) for place in np.mgrid[: reference.cells.shape[0], : reference.cells.shape[1]])
        dy, dx = abs(v - y), abs(u - x)
        seen = np.full(dy.shape, True)
        if reference.window is not None:
            far = np.maximum(dy, dx) if reference.window.shape == "square" else np.sqrt(dy**2 + dx**2)
            seen = far <= reference.window.radius
        score = query.double().flatten(0, 1).numpy() @ reference.cells.double().flatten(0, 1).numpy().T
        keys.append((np.where(seen, -score, np.inf), dy**2 + dx**2))
    score, distance = (np.concatenate(parts, axis=1) for parts in zip(*keys, strict=True))
    index = np.broadcast_to(np.arange(score.shape[1]), score.shape)
    order = np.lexsort((index, distance, score), axis=1)[:, :k]
    best = np.where(np.take_along_axis(score, order, axis=1) < np.inf, order, -1)
    return np.pad(best, ((0, 0), (0, max(k - best.shape[1], 0))), constant_values=-1)


def indices(found):
    """The neighbours in order; -1 where there are fewer."""
    return torch.where(found.weight > 0, found.index, -1).numpy()


@over_examples
@given(
    shape=maps,
    others=st.lists(st.tuples(maps, windows), min_size=1, max_size=3),
    k=st.integers(1, 12),
    seed=st.integers(0, 9999),
)
def test_the_search_equals_a_float64_brute_force(form, shape, others, k, seed):
    """Small whole numbers: scores are exact in any precision, and ties are frequent."""
    rng = np.random.default_rng(seed)

    def features(size):
        return torch.from_numpy(rng.integers(-1, 2, (*size, 3)).astype(np.float32))

    query = features(shape)
    references = [Reference(features(size), window) for size, window in others]
    assert np.array_equal(indices(search(query, references, k)), brute_force(query, references, k))


@pytest.mark.parametrize("channels", [1, 3, 37, 256])
def test_real_valued_features_have_the_neighbours_of_a_brute_force(form, channels):
    generator = torch.Generator().manual_seed(channels)
    cells = [F.normalize(torch.randn(23, 51, channels, generator=generator), dim=-1) for _ in range(4)]
    if channels == 1:  # all of length one and therefore equal
        cells = [torch.randn(23, 51, 1, generator=generator) for _ in range(4)]
    references = [
        Reference(cells[1], Window(12)),
        Reference(cells[2], Window(4.5, "square")),
        Reference(cells[3], None),
    ]
    assert np.array_equal(indices(search(cells[0], references, 10)), brute_force(cells[0], references, 10))


@pytest.mark.parametrize("axes", ["principal", "as they are", "worst first"])
def test_axes_decide_how_long_it_takes_and_nothing_else(form, axes):
    """Features near few axes, as trained ones are, so that most pairs are given up on early."""
    generator = torch.Generator().manual_seed(5)
    strength = 0.9 ** torch.arange(150)
    turn = torch.linalg.qr(torch.randn(150, 150, generator=generator)).Q
    cells = [F.normalize(torch.randn(20, 33, 150, generator=generator) * strength @ turn, dim=-1) for _ in range(3)]
    chosen = {"principal": principal_axes(cells[0]), "as they are": torch.eye(150)}
    chosen["worst first"] = chosen["principal"].flip(1).contiguous()
    references = [Reference(cells[1], Window(8)), Reference(cells[2], None)]
    packing = Packing(pack(cells[0], chosen[axes]))
    found = neighbours(cells[0], references, k=10, temperature=0.7, weighting="joint", packing=packing)
    assert references[0].packing.packed.axes is chosen[axes]
    assert np.array_equal(indices(found), brute_force(cells[0], references, 10))
    assert torch.equal(found.weight, search(cells[0], references, 10).weight)


def test_neither_threads_nor_the_order_of_references_change_a_bit(form):
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
    turned = search(query, references[::-1], 5)
    place = turned.index // (31 * 45)
    assert torch.equal((2 - place) * 31 * 45 + turned.index % (31 * 45), results[0].index)
    assert torch.equal(turned.weight, results[0].weight)


def test_forms_with_fused_multiply_add_agree_to_the_bit(choose):
    generator = torch.Generator().manual_seed(0)
    query, key = (F.normalize(torch.randn(20, 30, 128, generator=generator), dim=-1) for _ in range(2))
    found = []
    for form in ("avx2", "avx512"):
        if choose(form).functions is None:
            pytest.skip(choose(form).reason)
        found.append(search(query, [Reference(key, Window(5))], 10))
    assert torch.equal(found[0].index, found[1].index)
    assert torch.equal(found[0].weight, found[1].weight)


@over_examples
@given(queries=st.integers(1, 600), votes=st.integers(1, 12), channels=st.integers(1, 40), seed=st.integers(0, 9999))
def test_votes_are_weighted_sums(form, queries, votes, channels, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = [torch.rand(50, channels, generator=generator) for _ in range(3)]
    index = torch.randint(0, 150, (queries, votes), generator=generator)
    weight = torch.rand(queries, votes, generator=generator)
    wanted = torch.einsum("qv,qvc->qc", weight.double(), torch.cat(labels)[index].double())
    assert torch.allclose(vote(Neighbours(index, weight), labels).double(), wanted, atol=1e-5)


@over_examples
@given(
    size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    shown=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    channels=st.integers(1, 30),
    seed=st.integers(0, 9999),
)
def test_pixels_are_decided_as_in_torch(form, choose, size, shown, channels, seed):
    grid = grid_over(*size, cells=(-(-size[0] // 8), -(-size[1] // 8)), stride_px=8, first_px=0).rescaled(*shown)
    generator = torch.Generator().manual_seed(seed)
    soft = torch.randint(0, 3, (grid.y.cells, grid.x.cells, channels), generator=generator) / 2
    soft = soft * (torch.rand(channels, generator=generator) < 0.5)
    choose(form)
    decided = upsample_argmax(soft, grid).long()
    choose("off")
    wanted = upsample_argmax(soft, grid).long()
    # Without fused multiply-adds ties are rounded otherwise.
    values = upsample(soft, grid)
    difference = values.gather(0, wanted[None]) - values.gather(0, decided[None])
    assert difference.abs().max() < (1e-6 if form == "generic" else 1e-30)


def test_reduced_precision_around_it_does_not_reach_the_search(form, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    query, key = (F.normalize(torch.randn(20, 30, 128, generator=generator), dim=-1) for _ in range(2))
    wanted = search(query, [Reference(key, Window(5))], 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = search(query, [Reference(key, Window(5))], 10)
    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "BF16")
    again = search(query, [Reference(key, Window(5))], 10)
    assert torch.equal(found.index, wanted.index)
    assert torch.equal(again.index, wanted.index)


def test_features_on_another_device_or_with_gradients_are_left_to_torch(form):
    cells = torch.rand(3, 4, 2)
    assert library.kernel_for(cells) is not None
    assert library.kernel_for(cells.requires_grad_()) is None
    assert library.kernel_for(torch.rand(3, 4, 2, device="meta")) is None
    assert library.kernel_for(torch.rand(3, 4, 2).double()) is None


# Finding it


def test_it_can_be_switched_off(choose):
    assert choose("off").functions is None
    assert choose("off").reason == "TIMECYCLE_KERNEL is off"


def test_a_wrong_choice_is_refused(choose):
    with pytest.raises(SettingsError, match="TIMECYCLE_KERNEL is 'fast'") as error:
        choose("fast")
    assert error.value.remedy == "set it to off, generic, avx2, avx512, or nothing"


def test_without_the_library_there_is_a_reason_and_a_remedy(choose, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    kernel = choose("")
    assert kernel.functions is None
    assert kernel.reason.startswith("the kernel was not compiled")
    assert "C++ compiler" in kernel.remedy


def test_a_library_of_another_source_is_not_used(choose, monkeypatch, tmp_path, form):
    for file in Path(library.__file__).parent.glob("kernel*"):
        shutil.copyfile(file, tmp_path / file.name)
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    assert choose("").functions is not None
    (tmp_path / "kernel.cpp").write_text((tmp_path / "kernel.cpp").read_text() + "\n")
    kernel = choose("")
    assert kernel.functions is None
    assert kernel.reason == "the kernel was compiled from another kernel.cpp"


def test_a_form_the_processor_cannot_run_is_not_tried(choose, monkeypatch):
    monkeypatch.setattr(library, "_level", lambda: 0)
    assert choose("").form in ("generic", "torch")
    assert choose("avx512").reason == "this processor cannot run avx512"
    assert choose("avx512").remedy == "set TIMECYCLE_KERNEL to generic"
