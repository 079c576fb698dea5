"""Image-guided decoding: outlines follow the edges of the image, and nothing changes where it has none."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.grid import Axis, Grid, grid_over
from timecycle.kernel import deciding
from timecycle.kernel.library import find_kernel
from timecycle.labels import Masks
from timecycle.labels.guided import evaluate, explained_share, fit_lines, guided_argmax, mean_colours
from timecycle.labels.label_map import pool, upsample_argmax
from timecycle.labels.masks import MaskSpace

HEIGHT, WIDTH = 96, 128
GRID = grid_over(HEIGHT, WIDTH, cells=(12, 16), stride_px=8, first_px=3.5)


def disc(radius=25, x=60, y=45):
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.hypot(rows - y, columns - x) < radius


def picture_of(mask, inside=(200, 60, 40), outside=(40, 90, 160), noise=6):
    rng = np.random.default_rng(0)
    image = np.where(mask[..., None], inside, outside) + rng.normal(0, noise, (HEIGHT, WIDTH, 3))
    return torch.from_numpy(image.clip(0, 255).astype(np.uint8))


def labels_of(mask, subcells=1):
    grid = GRID.subdivided(subcells)
    return MaskSpace((0, 1)).encode(Masks.of(mask), grid), grid


def lines_of(values, guide, radius):
    """Fit lines with one label per cell of the guide."""
    rows, columns, _ = values.shape
    return fit_lines(values, Grid(Axis(rows, rows, 1, 0), Axis(columns, columns, 1, 0)), guide, radius=radius)


def overlap(one, other):
    return (one & other).sum() / (one | other).sum()


def random_labels(seed, channels=3, grid=GRID):
    """Smooth blobs of objects over a background, as votes leave them."""
    if channels == 1:
        return torch.ones(grid.y.cells, grid.x.cells, 1)
    generator = torch.Generator().manual_seed(seed)
    blobs = torch.rand(channels - 1, grid.y.cells // 4 + 2, grid.x.cells // 4 + 2, generator=generator)
    objects = torch.nn.functional.interpolate(blobs[None], (grid.y.cells, grid.x.cells), mode="bilinear")[0]
    objects = (4 * objects - 2.2).clamp(0, 1).permute(1, 2, 0) / (channels - 1)
    return torch.cat([1 - objects.sum(dim=-1, keepdim=True), objects], dim=-1)


def random_image(seed):
    return torch.randint(0, 256, (HEIGHT, WIDTH, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("subcells", [1, 2, 4])
def test_outlines_move_to_the_edges_of_the_image(subcells):
    truth = disc()
    drawn = disc(radius=22, x=62)  # the label map is a little off
    values, grid = labels_of(drawn, subcells)
    plain = upsample_argmax(values, grid).numpy() > 0
    guided = guided_argmax(values, grid, image=picture_of(truth), subcells=subcells).numpy() > 0
    assert overlap(guided, truth) > overlap(plain, truth) + 0.06


@pytest.mark.parametrize("subcells", [1, 2, 4])
def test_an_image_without_edges_changes_nothing(subcells):
    values, grid = labels_of(disc(), subcells)
    grey = torch.full((HEIGHT, WIDTH, 3), 120, dtype=torch.uint8)
    plain, guided = upsample_argmax(values, grid), guided_argmax(values, grid, image=grey, subcells=subcells)
    # With one label per cell, labels are interpolated twice: to two per cell, then to pixels.
    assert float((plain != guided).float().mean()) <= (0.01 if subcells == 1 else 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 100), st.integers(1, 4))
def test_channels_keep_their_sum(seed, channels):
    values = random_labels(seed, channels)
    lines = lines_of(values, pool(random_image(seed).permute(2, 0, 1) / 255, GRID), radius=2)
    assert torch.allclose(lines.sum(dim=2), torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(12, 16, 4), atol=1e-4)


def test_lines_equal_a_plain_regression_in_every_window():
    values, guide = random_labels(4), pool(random_image(4).permute(2, 0, 1) / 255, GRID)
    radius, epsilon = 2, 1e-3
    rows, columns, channels = values.shape

    def window(row, column):
        return slice(max(row - radius, 0), row + radius + 1), slice(max(column - radius, 0), column + radius + 1)

    own, mean = torch.zeros(rows, columns, channels, 4, dtype=torch.float64), torch.zeros(rows, columns, channels)
    explained = torch.zeros(rows, columns, channels)
    for row in range(rows):
        for column in range(columns):
            colours = guide[window(row, column)].reshape(-1, 3).double()
            labels = values[window(row, column)].reshape(-1, channels).double()
            centred = colours - colours.mean(dim=0)
            covariance = centred.T @ centred / len(colours) + epsilon * torch.eye(3)
            slope = torch.linalg.solve(covariance, centred.T @ labels / len(colours))
            own[row, column, :, :3] = slope.T
            own[row, column, :, 3] = labels.mean(dim=0) - colours.mean(dim=0) @ slope
            mean[row, column] = labels.mean(dim=0)
            covered = (slope * (centred.T @ labels / len(colours))).sum(dim=0)
            explained[row, column] = (covered / (labels.var(dim=0, correction=0) + 1e-4)).clamp(0, 1)
    expected = torch.zeros_like(own)
    for row in range(rows):
        for column in range(columns):
            expected[row, column] = own[window(row, column)].mean(dim=(0, 1))
            rest = 1 - explained[window(row, column)].mean(dim=(0, 1))
            expected[row, column, :, 3] += rest * (values[row, column] - mean[window(row, column)].mean(dim=(0, 1)))
    expected[:, :, 0] = torch.tensor([0.0, 0.0, 0.0, 1.0]) - expected[:, :, 1:].sum(dim=2)
    assert torch.allclose(lines_of(values, guide, radius=radius).double(), expected, atol=2e-4)


def test_far_from_outlines_nothing_is_filtered():
    values = torch.zeros(12, 16, 2)
    values[2:4, 2:4, 1] = 1
    values[..., 0] = 1 - values[..., 1]
    lines = lines_of(values, pool(random_image(1).permute(2, 0, 1) / 255, GRID), radius=1)
    assert torch.equal(lines[8:, 8:, 1], torch.zeros(4, 8, 4))
    assert torch.equal(lines[8:, 8:, 0], torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(4, 8, 4))


def test_an_outline_along_the_edges_of_the_image_is_explained_by_its_colours():
    right, wrong = labels_of(disc())[0], labels_of(disc(x=90))[0]
    colours = mean_colours(picture_of(disc()), GRID)
    assert float(explained_share(right, colours)[1]) > 0.9
    assert float(explained_share(wrong, colours)[1]) < 0.5


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 100), st.integers(1, 4))
def test_the_explained_share_is_that_of_a_plain_regression(seed, channels):
    values, colours = random_labels(seed, channels), pool(random_image(seed).permute(2, 0, 1) / 255, GRID)
    share = explained_share(values, colours, radius=1)
    for channel in range(channels):
        explained = []
        for row in range(12):
            for column in range(16):
                window = slice(max(row - 1, 0), row + 2), slice(max(column - 1, 0), column + 2)
                labels, seen = values[window][..., channel].flatten().double(), colours[window].reshape(-1, 3).double()
                if labels.var(correction=0) > 0.02:
                    labels, seen = labels - labels.mean(), seen - seen.mean(dim=0)
                    slope = torch.linalg.solve(seen.T @ seen / len(seen) + 1e-3 * torch.eye(3), seen.T @ labels)
                    covered = slope @ (seen.T @ labels) / len(seen) ** 2
                    explained.append(float(covered / (labels.square().mean() + 1e-4)))
        expected = sum(explained) / len(explained) if explained else 0.5
        assert float(share[channel]) == pytest.approx(expected, abs=2e-3)


def test_a_mirrored_image_has_mirrored_outlines():
    values, grid = labels_of(disc(), 2)
    image = random_image(3)
    one = guided_argmax(values, grid, image=image, subcells=2)
    other = guided_argmax(values.flip(1), grid, image=image.flip(1), subcells=2).flip(1)
    assert float((one != other).float().mean()) < 1e-3  # rounding, where two channels are level


kernel = pytest.mark.skipif(find_kernel().functions is None, reason="there is no compiled kernel")


@kernel
@pytest.mark.parametrize("cells", [(12, 16), (1, 1), (3, 40), (7, 5)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_the_kernel_pools_and_decides_as_torch(cells, channels):
    grid = grid_over(HEIGHT, WIDTH, cells=cells, stride_px=HEIGHT / cells[0], first_px=2.5)
    values, image = random_labels(6, channels, grid), random_image(6)
    colours = deciding.pool_image(find_kernel().functions, image, grid)
    assert torch.allclose(colours, pool(image.permute(2, 0, 1) / 255, grid), atol=1e-5)
    differing, margin = compare_with_torch(values, grid, image, subcells=2)
    assert margin[differing].numel() == 0 or float(margin[differing].max()) < 1e-3


@kernel
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 3, 4]), st.integers(1, 4))
def test_the_kernel_decides_as_torch_for_any_division_of_cells(seed, subcells, channels):
    grid = GRID.subdivided(subcells)
    differing, margin = compare_with_torch(random_labels(seed, channels, grid), grid, random_image(seed), subcells)
    assert margin[differing].numel() == 0 or float(margin[differing].max()) < 1e-3


@kernel
@pytest.mark.parametrize("drawn", ["small objects", "traces everywhere", "an object from side to side"])
def test_the_kernel_decides_as_torch_where_channels_are_only_somewhere(drawn):
    values = torch.zeros(12, 16, 40)
    if drawn == "small objects":
        for c in range(1, 40):
            values[c * 5 % 12, c * 3 % 16, c] = 0.6
    elif drawn == "traces everywhere":
        values[...] = 5e-4
        values[3:6, 4:9, 7] = 0.8
    else:
        values[:5, :, 3] = 1  # it changes along one line, and is whole above
    values[..., 0] = 1 - values[..., 1:].sum(dim=-1)
    differing, margin = compare_with_torch(values, GRID, random_image(8), subcells=1)
    assert float(differing.float().mean()) < 2e-3
    assert margin[differing].numel() == 0 or float(margin[differing].max()) < 1e-3


def compare_with_torch(values, grid, image, subcells):
    """Return where the kernel decides otherwise than torch, and by how much torch prefers its choice."""
    compiled = guided_argmax(values, grid, image=image, subcells=subcells)
    soft = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timecycle.labels.guided.kernel_for", lambda *_: None)
        patch.setattr("timecycle.labels.guided.evaluate", lambda *given: soft.append(evaluate(*given)) or soft[0])
        torch_ids = guided_argmax(values, grid, image=image, subcells=subcells)
    chosen = soft[0].gather(0, compiled[None].long())[0]
    return torch_ids != compiled, soft[0].amax(dim=0) - chosen


@kernel
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.rand(11, 16, 2)}, "a label map of .11, 16, 2. does not fit"),
        ({"radius": 0}, "does not fit a grid"),
        ({"colours": torch.rand(12, 16, 3)}, "colours of .12, 16, 3. do not fit a grid of 24x32"),
        ({"image": random_image(1)[:50]}, "an image of .50, 128, 3. is not 96x128"),
    ],
)
def test_the_kernel_refuses_what_does_not_fit(change, message):
    functions = find_kernel().functions
    given = {
        "values": torch.rand(12, 16, 2),
        "divided": Grid(Axis(12, 24, 2, 0.5), Axis(16, 32, 2, 0.5)),
        "colours": torch.rand(24, 32, 3),
        "grid": GRID.subdivided(2),
        "image": random_image(1),
        "radius": 2,
        "epsilon": 1e-3,
    }
    deciding.decide_guided(functions, **given)
    with pytest.raises(ValueError, match=message):
        deciding.decide_guided(functions, **(given | change))
    with pytest.raises(ValueError, match="is not 96x128"):
        deciding.pool_image(functions, random_image(1)[:50], GRID)


def test_threads_do_not_change_the_result():
    values, grid = labels_of(disc(), 2)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(guided_argmax(values, grid, image=random_image(2), subcells=2))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
