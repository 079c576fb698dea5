"""The target model: what it learns, how it enters the labels, and that neither threads nor interruptions change it."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.errors import SettingsError
from timecycle.grid import grid_over
from timecycle.labels import Masks
from timecycle.labels.label_map import LabelMap
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.memory import Memory, MemoryFrame
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.target import TargetModel, fit_target, with_prior
from timecycle.propagation.video import propagate
from timecycle.propagation.workfolder import WorkFolder
from timecycle.video import open_video

EVERYTHING = PropagateConfig(
    temperature=0.05,
    window_px=32,
    anchor_window_px=32,
    past_frames=2,
    older_frames=2,
    older_interval=2,
    subcells=2,
    sharpening=2,
    target_weight=0.5,
    target_interval=2,
    guided_filter=True,
)


def features_of(cells):
    rows, columns, _ = cells.shape
    grid = grid_over(rows * 8, columns * 8, cells=(rows, columns), stride_px=8, first_px=3.5)
    return FeatureMap(torch.nn.functional.normalize(cells, dim=-1), grid)


def memory_frame(index, cells, channel, *, channels=3, annotated=True, known=None):
    features = features_of(cells)
    values = torch.nn.functional.one_hot(channel, channels).float()
    known = torch.ones(channels, dtype=torch.bool) if known is None else known
    return MemoryFrame(index, features, LabelMap(values, known, features.grid), known if annotated else None)


def memory_of(*frames):
    memory = Memory(past_frames=5, anchor_frames=3)
    for frame in frames:
        memory.add(frame)
    return memory


def clusters(seed, rows=10, columns=12, channels=3, dimensions=16):
    """Cells of a few channels, each around a direction of its own; channel 0 has most of them."""
    generator = torch.Generator().manual_seed(seed)
    channel = torch.randint(0, 3 * channels, (rows, columns), generator=generator).clamp_max(3 * channels - 1)
    channel = torch.where(channel < channels, channel, 0)
    centres = torch.randn(channels, dimensions, generator=torch.Generator().manual_seed(99))
    return centres[channel] + 0.4 * torch.randn(rows, columns, dimensions, generator=generator), channel


def test_channels_that_look_different_are_told_apart_on_a_new_frame():
    model = fit_target(memory_of(memory_frame(0, *clusters(1))))
    cells, channel = clusters(2)
    posterior = model.posterior(features_of(cells))
    assert torch.allclose(posterior.sum(dim=-1), torch.ones(10, 12), atol=1e-5)
    assert float((posterior.argmax(dim=-1) == channel).float().mean()) > 0.97


def test_the_names_of_channels_do_not_matter():
    cells, channel = clusters(1)
    order = torch.tensor([2, 0, 1])
    one = fit_target(memory_of(memory_frame(0, cells, channel))).posterior(features_of(cells))
    other = fit_target(memory_of(memory_frame(0, cells, order[channel]))).posterior(features_of(cells))
    assert torch.allclose(other[..., order], one, atol=1e-4)


def test_a_large_background_counts_no_more_than_a_small_one():
    cells, channel = clusters(1)
    background = channel.flatten() == 0
    more = torch.cat([cells.flatten(0, 1), cells.flatten(0, 1)[background].repeat(4, 1)])[:, None]
    labels = torch.cat([channel.flatten(), channel.flatten()[background].repeat(4)])[:, None]
    small = fit_target(memory_of(memory_frame(0, cells, channel))).posterior(features_of(cells))
    large = fit_target(memory_of(memory_frame(0, more, labels))).posterior(features_of(cells))
    assert torch.allclose(small, large, atol=1e-3)


def test_the_annotation_outweighs_any_number_of_wrong_frames():
    cells, channel = clusters(1)
    wrong = [memory_frame(i, cells, (channel + 1) % 3, annotated=False) for i in range(1, 5)]
    both = fit_target(memory_of(memory_frame(0, cells, channel), *wrong)).posterior(features_of(cells))
    right = both.gather(2, channel[..., None])
    mistaken = both.gather(2, ((channel + 1) % 3)[..., None])
    assert float((right - mistaken).mean()) > 0.1


def test_the_last_wrong_cells_of_an_object_that_has_left_teach_little():
    cells, channel = clusters(1, channels=2)
    wrong = torch.zeros_like(channel)
    mistaken = (channel == 0).nonzero()[0]
    wrong[tuple(mistaken)] = 1
    later = [memory_frame(i, cells, wrong, channels=2, annotated=False) for i in range(1, 5)]
    posterior = fit_target(memory_of(memory_frame(0, cells, channel, channels=2), *later)).posterior(features_of(cells))
    assert float(posterior[tuple(mistaken)][1]) < 0.5  # balanced without regard to size: 0.8


def test_frames_without_an_object_do_not_teach_it():
    cells, channel = clusters(1)
    known = torch.tensor([True, True, False])
    model = fit_target(memory_of(memory_frame(0, cells, channel.clamp_max(1), known=known)))
    assert model.seen.tolist() == [True, True, False]
    assert float(model.posterior(features_of(cells))[..., 2].max()) == 0


def test_threads_do_not_change_the_fit():
    frames = [memory_frame(0, *clusters(1, 60, 100, dimensions=160))]
    frames += [memory_frame(i, *clusters(i, 60, 100, dimensions=160), annotated=False) for i in (2, 3)]
    threads = torch.get_num_threads()
    fitted = []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            model = fit_target(memory_of(*frames))
            again = fit_target(memory_of(*frames), model)
            fitted.append((again.weights, again.posterior(frames[0].features)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    for weights, posterior in fitted[1:]:
        assert torch.equal(weights, fitted[0][0])
        assert torch.equal(posterior, fitted[0][1])


def distribution(seed, channels=3, rows=4, columns=5):
    return torch.rand(rows, columns, channels, generator=torch.Generator().manual_seed(seed)).softmax(dim=-1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 2), st.integers(1, 3))
def test_labels_stay_a_distribution_and_nothing_comes_from_nothing(seed, weight, subcells):
    values, posterior = distribution(seed, rows=4 * subcells, columns=5 * subcells), distribution(seed + 1)
    values[0, 0] = torch.tensor([0.0, 1.0, 0.0])
    values[1, 1] = torch.tensor([0.5, 0.0, 0.5])
    changed = with_prior(values, posterior, weight=weight, subcells=subcells)
    assert torch.allclose(changed.sum(dim=-1), torch.ones(values.shape[:2]), atol=1e-5)
    assert torch.allclose(changed[0, 0], values[0, 0], atol=1e-6)
    assert float(changed[1, 1, 1]) == 0


def test_a_model_that_knows_nothing_changes_nothing():
    values = distribution(3)
    assert torch.allclose(with_prior(values, torch.full((4, 5, 3), 1 / 3), weight=1), values, atol=1e-6)


def test_a_model_that_contradicts_the_votes_changes_nothing():
    values = torch.zeros(4, 5, 2)
    values[..., 0], values[:, :2, 0] = 0.9, 0.1
    values[..., 1] = 1 - values[..., 0]
    assert torch.equal(with_prior(values, values.flip(-1), weight=1), values)


def test_a_model_that_agrees_makes_labels_clearer():
    values = torch.zeros(4, 5, 2)
    values[..., 0], values[:, :2, 0] = 0.7, 0.3
    values[..., 1] = 1 - values[..., 0]
    prior = torch.where(values > 0.5, 0.95, 0.05)
    clearer = with_prior(values, prior, weight=0.5)
    assert (clearer.amax(dim=-1) > 0.75).all()
    assert torch.equal(clearer.argmax(dim=-1), values.argmax(dim=-1))


def test_channels_the_model_has_not_seen_keep_their_share():
    values, posterior = distribution(5), distribution(6)
    posterior[..., 2] = 0
    changed = with_prior(values, posterior, weight=1)
    assert torch.equal(changed[..., 2], values[..., 2])
    assert torch.allclose(changed.sum(dim=-1), torch.ones(4, 5), atol=1e-5)


def test_added_channels_are_not_seen():
    model = fit_target(memory_of(memory_frame(0, *clusters(1))))
    wider = model.with_channels(2)
    cells, _ = clusters(2)
    posterior = wider.posterior(features_of(cells))
    assert torch.allclose(posterior[..., :3], model.posterior(features_of(cells)), atol=1e-6)
    assert not posterior[..., 3:].any()
    assert isinstance(wider, TargetModel)


def test_the_model_is_fitted_on_annotated_frames_and_at_intervals(world, encoder):
    propagator = Propagator(encoder, EVERYTHING)
    models = []
    for t in range(6):
        propagator.step(world.frame(t), Masks(world.mask(t)) if t in (0, 3) else None)
        models.append(propagator.target)
    changed = [t for t in range(1, 6) if models[t] is not models[t - 1]]
    assert changed == [2, 3, 5]


def test_without_a_weight_there_is_no_model(world, encoder):
    propagator = Propagator(encoder, dataclasses.replace(EVERYTHING, target_weight=0))
    propagator.step(world.frame(0), Masks(world.mask(0)))
    assert propagator.target is None


def ids_and_confidence(frames):
    return [
        (frame.labels.ids, frame.label_map.values, [one.value for one in frame.confidence.objects.values()])
        for frame in frames
    ]


def assert_same(one, other):
    for (ids, values, confidence), (ids_again, values_again, confidence_again) in zip(one, other, strict=True):
        assert np.array_equal(ids, ids_again)
        assert torch.equal(values, values_again)
        assert confidence == confidence_again


@pytest.fixture(scope="module")
def stream(world, encoder):
    labels = {2: Masks(np.where(world.mask(2) < 3, world.mask(2), 0)), 9: Masks(world.mask(9))}

    def run(work=None):
        return propagate(
            open_video(world.video()),
            labels,
            encoder=encoder,
            config=EVERYTHING,
            confidence=ConfidenceConfig(),
            work=work,
        )

    return run


@pytest.mark.parametrize("taken", [1, 4, 8])
def test_an_interrupted_run_of_both_directions_resumes_exactly(stream, tmp_path, monkeypatch, taken):
    monkeypatch.setattr("timecycle.propagation.video._SNAPSHOT_FRAMES", 3)
    whole = ids_and_confidence(stream())
    started = stream(WorkFolder(tmp_path))
    for _ in range(taken):
        next(started)
    started.close()
    resumed = ids_and_confidence(stream(WorkFolder(tmp_path)))
    assert_same(whole[-len(resumed) :], resumed)


def test_threads_do_not_change_the_prior_of_a_large_map():
    values = distribution(1, channels=20, rows=90, columns=160)
    posterior = distribution(2, channels=20, rows=90, columns=160)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(with_prior(values, posterior, weight=0.5))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_read_only_image_guides_without_a_warning(world, encoder, recwarn):
    image = world.frame(0).copy()
    image.setflags(write=False)
    propagator = Propagator(encoder, EVERYTHING)
    propagator.step(image, Masks(world.mask(0)))
    assert not recwarn.list


def test_threads_do_not_change_a_run(stream):
    threads = torch.get_num_threads()
    runs = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            runs.append(ids_and_confidence(stream()))
    finally:
        torch.set_num_threads(threads)
    assert_same(*runs)


@pytest.mark.parametrize(("name", "value"), [("target_weight", -0.1), ("target_interval", 0), ("enlarge", 0.5)])
def test_senseless_settings_are_refused(name, value):
    with pytest.raises(SettingsError, match=name):
        PropagateConfig(**{name: value})
