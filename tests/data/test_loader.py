"""Batches come in the requested order, with any number of workers."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from timecycle.data.augment.clips import ClipConfig, ClipReader
from timecycle.data.augment.patches import PatchConfig, choose_patch, cut_patch
from timecycle.data.augment.views import ViewConfig, apply_view, choose_view, photometric
from timecycle.data.corpus.footage import FolderFootage
from timecycle.data.corpus.index import Index
from timecycle.data.corpus.loader import Loader, collate
from timecycle.data.corpus.order import SampleKey, generator, sample_keys
from timecycle.errors import SettingsError, VideoError

WORKERS = [0, 1, 3]


def batches(steps: int, *, batch: int = 4, count: int = 10) -> list[list[SampleKey]]:
    return [sample_keys(step, batch=batch, rank=0, world_size=1, count=count) for step in range(steps)]


def slow_at_first(epoch: int, position: int) -> dict[str, object]:
    """Make an example so that later ones finish before earlier ones."""
    time.sleep(0.01 if position % 4 == 0 else 0)
    draw = generator(seed=0, epoch=epoch, position=position).random(3)
    return {"key": np.array([epoch, position]), "draw": draw, "position": position}


def loader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")]


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_come_in_the_requested_order(workers: int):
    requested = batches(7)
    with Loader(slow_at_first, requested, workers=workers) as loader:
        got = [[tuple(key) for key in batch["key"].tolist()] for batch in loader]
    assert got == requested


def test_examples_are_equal_with_any_number_of_workers(videos: Path, index: Index):
    """Covers clip, patch, view and colours."""
    reader = ClipReader(FolderFootage(videos, index.entries), ClipConfig(short_side_px=56, crop_px=48), seed=3)
    view = ViewConfig()

    def example(epoch: int, position: int) -> dict[str, object]:
        rng = generator(seed=3, epoch=epoch, position=position)
        clip = reader.read(epoch, position, rng)
        pose = choose_patch(clip.frames, PatchConfig(patch_px=16), rng)
        affine = choose_view(view, rng, cover=2 / 3)
        shown = photometric(apply_view(clip.frames, affine, 32), view, rng)
        return {"patch": cut_patch(clip.frames[-1], pose, 16), "pose": pose, "affine": affine, "view": shown}

    results = []
    for workers in WORKERS:
        with Loader(example, batches(3, count=len(reader)), workers=workers) as loader:
            results.append(list(loader))
    assert results[0][0]["view"].shape == (4, 4, 32, 32, 3)
    for result in results[1:]:
        for one, other in zip(results[0], result, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_arrays_tensors_and_numbers_are_stacked_by_name():
    @dataclass
    class Pair:
        image: np.ndarray
        pose: torch.Tensor
        weight: float

    mirrored = np.arange(6, dtype=np.uint8).reshape(2, 3)[:, ::-1]
    batch = collate([Pair(mirrored, torch.zeros(3), 0.5), Pair(mirrored, torch.ones(3), 2.0)])
    assert {name: (tuple(part.shape), part.dtype) for name, part in batch.items()} == {
        "image": ((2, 2, 3), torch.uint8),
        "pose": ((2, 3), torch.float32),
        "weight": ((2,), torch.float32),
    }
    assert batch["image"][1].tolist() == mirrored.tolist()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (6, VideoError("a.mp4 is damaged", remedy="copy it again"), "position 6: a.mp4 is damaged; copy it again"),
        (5, ZeroDivisionError("a mistake"), "while making the example at epoch 0, position 5"),
    ],
)
def test_error_is_raised_with_its_position_after_the_good_batches(workers, bad, error, message):
    def example(epoch: int, position: int) -> dict[str, int]:
        if (epoch, position) == (0, bad):
            raise error
        return {"position": position}

    with Loader(example, batches(5), workers=workers) as loader:
        assert next(loader)["position"].tolist() == [0, 1, 2, 3]
        with pytest.raises(type(error)) as caught:
            next(loader)
    assert message in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert loader_threads() == []


def test_prefetch_is_bounded():
    made: list[int] = []

    def example(epoch: int, position: int) -> dict[str, int]:
        made.append(position)
        return {"position": position}

    with Loader(example, batches(100, count=1000), workers=2, prefetch=3) as loader:
        next(loader)
        time.sleep(0.05)
        assert len(made) == 4 * 4


def test_closing_stops_the_workers_promptly():
    started = threading.Event()

    def example(epoch: int, position: int) -> dict[str, int]:
        started.set()
        time.sleep(0.05)
        return {"position": position}

    loader = Loader(example, batches(1000, batch=50, count=1000), workers=3)
    first = threading.Thread(target=lambda: next(loader, None))
    first.start()
    assert started.wait(5)
    first.join()
    before = time.perf_counter()
    loader.close()
    assert time.perf_counter() - before < 1
    assert loader_threads() == []
    assert list(loader) == []
    loader.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_of_no_batches_is_empty(workers: int):
    with Loader(slow_at_first, [], workers=workers) as loader:
        assert list(loader) == []


def test_waiting_is_measured_by_the_given_clock():
    ticks = iter(range(100))
    with Loader(slow_at_first, batches(3), workers=0, clock=lambda: float(next(ticks))) as loader:
        list(loader)
    assert loader.seconds_waited == 4  # three batches and the end


def test_invalid_loader_settings_are_refused():
    with pytest.raises(SettingsError, match="workers is -1 and prefetch 2; give 0 or more workers"):
        Loader(slow_at_first, [], workers=-1)
