"""Measure the time of a training step relative to the bare encoder's forward and backward pass on the same frames.

    python benchmarks/training_step.py [VIDEOS] [--objective walks cycles] [--rounds N]

Both are timed in turns in one process, so that a busy machine slows both; the result is the ratio of medians. With a
folder of videos the pace of training on it is measured too: seconds per step, and the share spent waiting for clips.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from record import write_record
from timecycle.config import train_config
from timecycle.device import CPU
from timecycle.model.resnet import grid_of, random_resnet
from timecycle.pose import cell_centres
from timecycle.training.corpus import VideoSource, index_videos
from timecycle.training.settings import TrainConfig, pick_precision
from timecycle.training.step import Batch, State, encode
from timecycle.training.trainer import time_steps

PRESETS = {"walks": "small", "cycles": "small-cycles"}
_PACED = 30  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path, nargs="?")
    parser.add_argument("--objective", nargs="*", default=["walks", "cycles"])
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    started = time.monotonic()
    measured = {}
    for objective in chosen.objective:
        for name, settings in _sizes().items():
            config = train_config(PRESETS[objective], settings)
            measured[f"{objective}_{name}"] = measure(config, rounds=chosen.rounds)
            print(objective, name, measured[f"{objective}_{name}"], flush=True)
    ratios = {f"{name}_step_over_bare": row["ratio"] for name, row in measured.items()}
    pace = {objective: measure_pace(chosen.videos, objective) for objective in chosen.objective if chosen.videos}
    print(pace, flush=True)
    write_record(
        "training_step",
        settings={"rounds": chosen.rounds, "frames": 4, "precision": pick_precision("auto", CPU)},
        measured={"ratios": ratios, "seconds": measured, "pace": pace},
        seconds=time.monotonic() - started,
    )


def measure_pace(videos: Path, objective: str) -> dict[str, float]:
    """Measure the pace of training on real clips."""
    config = train_config(PRESETS[objective])
    with TemporaryDirectory() as folder:
        index_videos(VideoSource(location=str(videos)), Path(folder), config, processes=os.cpu_count() or 1, warn=print)
        seconds, waiting = time_steps(VideoSource(location=str(videos)), Path(folder), config, timed=_PACED)
    return {
        "seconds_per_step": round(seconds, 3),
        "waiting_for_clips": round(waiting, 3),
        "steps_in_half_an_hour": round(1800 / seconds),
    }


def _sizes() -> dict[str, tuple[str, ...]]:
    """Return settings by name."""
    return {
        "resnet18_128px_batch8": ("view_px=128", "clips.crop_px=128", "clips.short_side_px=128", "batch=8"),
        "resnet18_240px_batch2": ("view_px=240", "clips.crop_px=240", "clips.short_side_px=240", "batch=2"),
        "resnet50_128px_batch2": (
            "view_px=128",
            "clips.crop_px=128",
            "clips.short_side_px=128",
            "batch=2",
            "encoder.architecture=resnet50",
        ),
    }


def measure(config: TrainConfig, *, rounds: int) -> dict[str, float]:
    """Return the median seconds of the whole step and of the bare encoder, and their ratio."""
    batch = make_batch(config)
    state = State.fresh(random_resnet(config.encoder, seed=0), config)
    bare = State.fresh(random_resnet(config.encoder, seed=0), config).learner.encoder
    images = [tensor.flatten(0, 1) if tensor.ndim == 5 else tensor for tensor in _images(batch)]

    def step() -> None:
        state.advance(state.learner, [batch])

    def forward_and_backward() -> None:
        bare.zero_grad(set_to_none=True)
        precision = pick_precision(config.precision, CPU)
        features = [encode(bare.learned, group, precision) for group in _grouped_by_size(images)]
        torch.cat([one.flatten() for one in features]).square().mean().backward()  # type: ignore[no-untyped-call]

    seconds = interleaved([step, forward_and_backward], rounds=rounds)
    return {"step": seconds[0], "bare": seconds[1], "ratio": round(seconds[0] / seconds[1], 3)}


def interleaved(works: Sequence[Callable[[], None]], *, rounds: int) -> list[float]:
    """Return the median seconds of each, timed in turns after one warm-up round."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(rounds + 1):
        for work, taken in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            if turn:
                taken.append(time.perf_counter() - began)
    return [round(statistics.median(taken), 4) for taken in times]


def make_batch(config: TrainConfig) -> Batch:
    """Make a batch of noise: the content does not change the time of a step."""
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)

    b, n, side = config.batch, config.clips.frames, config.clips.crop_px
    if config.objective == "cycles":
        p = config.patches.patch_px
        return {
            "frames": noise(b, n, side, side, 3),
            "patch": noise(b, p, p, 3),
            "theta": torch.zeros(b, 3),
            "seed": torch.arange(b),
        }
    out, back = (noise(b, frames, config.view_px, config.view_px, 3) for frames in (n, n - 1))
    places = (cell_centres(grid_of(config.view_px)) + 0.1).expand(b, -1, -1)
    return {
        "forward": out,
        "backward": back,
        "targets": places,
        "visible": torch.ones(places.shape[:2], dtype=torch.bool),
        "seed": torch.arange(b),
    }


def _images(batch: Batch) -> list[Tensor]:
    return [batch[name] for name in ("frames", "patch", "forward", "backward") if name in batch]


def _grouped_by_size(images: list[Tensor]) -> list[Tensor]:
    """Concatenate images of the same size, which are encoded together as in a training step."""
    sizes: dict[tuple[int, ...], list[Tensor]] = {}
    for tensor in images:
        sizes.setdefault(tuple(tensor.shape[1:]), []).append(tensor)
    return [torch.cat(group) for group in sizes.values()]


if __name__ == "__main__":
    main()
