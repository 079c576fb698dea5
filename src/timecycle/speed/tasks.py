"""What is measured: encoding frames, matching a frame with its references, and training steps, on synthetic clips."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
import torch
from jaxtyping import UInt8

from timecycle.config import propagate_config, train_config
from timecycle.data.augment.clips import Clip, ClipChoice, ClipConfig
from timecycle.data.corpus.loader import collate
from timecycle.device import pinned
from timecycle.kernel.library import kernel_for
from timecycle.matching.neighbours import Reference, neighbours, packed_like
from timecycle.model.encoder import Encoder
from timecycle.model.resnet import random_resnet
from timecycle.propagation.settings import PropagateConfig
from timecycle.speed.table import SpeedRow, row_of
from timecycle.speed.timing import Timing, time_repeats
from timecycle.synthetic import WorldConfig, make_world
from timecycle.training.corpus import Examples
from timecycle.training.settings import TrainConfig, TrainPrecision
from timecycle.training.step import State

Image = UInt8[np.ndarray, "height width 3"]

WIDTHS_PX = {240: 426, 480: 854, 720: 1280}  # by height
_ENCODED_FRAMES = 4  # different ones, in turns
_CLIPS = 8  # different ones: larger batches repeat them, in other views


def measure_encoding(encoder: Encoder, height_px: int, precision: str, *, budget_seconds: float) -> SpeedRow:
    """Measure an encoder: images in the memory of the host to features on the device, one frame at a time."""
    frames = synthetic_frames(height_px, range(_ENCODED_FRAMES))
    device = encoder.encode(frames[0]).cells.device
    following = cycle(frames)
    timing = _timed(lambda: encoder.encode(next(following)), device, budget_seconds)
    return row_of("encode", f"{height_px}p", precision, timing, items=1)


def measure_matching(encoder: Encoder, precision: str, *, budget_seconds: float) -> SpeedRow:
    """Measure the search of a frame's cells in all references of the preset `default`, once its memory is full."""
    config = propagate_config("default")
    indices = memory_indices(config)
    *earlier, last = (encoder.encode(frame) for frame in synthetic_frames(config.image_size_px, indices))
    references = [
        Reference(features.cells, config.window(features.grid, annotated=index == 0))
        for index, features in zip(indices, earlier, strict=False)
    ]
    query = last.cells
    timing = _timed(partial(_match, query, references, config), query.device, budget_seconds)
    path = "torch" if kernel_for(query) is None else "kernel"
    return row_of("match", f"{config.image_size_px}p", precision, timing, items=1, path=path)


def measure_training(
    preset: str,
    precision: TrainPrecision,
    device: torch.device,
    *,
    budget_seconds: float,
    overrides: Sequence[str] = (),
) -> SpeedRow:
    """Measure steps of a training preset on one batch, which is made before and copied to the device in every step."""
    config = train_config(preset, (*overrides, f"precision={precision}"))
    batches = make_batches(config, device)

    def prepare() -> Callable[[], object]:
        state = State.fresh(random_resnet(config.encoder, seed=config.seed), config, device)
        return lambda: state.advance(state.learner, batches)

    timing = _timed_where_it_fits(prepare, device, budget_seconds)
    return row_of("train", preset, precision, timing, items=config.batch)


def synthetic_frames(height_px: int, indices: Sequence[int]) -> list[Image]:
    """Render some frames of a synthetic clip."""
    # Events happen at fractions of a clip: in sixty frames, objects move about as fast as filmed ones.
    world = make_world(WorldConfig(height_px=height_px, width_px=WIDTHS_PX[height_px], frames=60))
    return [world.frame(t) for t in indices]


def memory_indices(config: PropagateConfig) -> list[int]:
    """Return the references of the first frame with a full memory and that frame, as they are searched.

    Frame 0 is annotated; the last `past_frames` frames come newest first, then the older ones.
    """
    last = (config.older_frames + 1) * config.older_interval + config.past_frames
    past = range(last - 1, last - 1 - config.past_frames, -1)
    older = [index for index in range(past[-1] - 1, 0, -1) if index % config.older_interval == 0]
    return [0, *past, *older[: config.older_frames], last]


def make_batches(config: TrainConfig, device: torch.device) -> list[dict[str, torch.Tensor]]:
    """Make the micro-batches of a step from synthetic clips."""
    examples = Examples(SyntheticClips.of(config.clips), config)
    return [
        pinned(collate([examples(epoch, position) for epoch, position in keys]), device)
        for keys in examples.micro_batches(range(1))
    ]


@dataclass(frozen=True, eq=False)
class SyntheticClips:
    """Clips that are rendered once; a position beyond them repeats one."""

    clips: Sequence[Clip]

    @classmethod
    def of(cls, config: ClipConfig) -> "SyntheticClips":
        side, frames = config.crop_px, config.frames
        choice = ClipChoice(tuple(range(frames)), side, 0, 0, False)
        worlds = (WorldConfig(height_px=side, width_px=side, frames=frames, seed=seed) for seed in range(_CLIPS))
        return cls([Clip(make_world(world).video(), f"synthetic {world.seed}", choice) for world in worlds])

    def __len__(self) -> int:
        return len(self.clips)

    def read(self, epoch: int, position: int, rng: np.random.Generator) -> Clip:
        del epoch, rng
        return self.clips[position % len(self)]

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        return position + int(rng.integers(1, len(self)))


@torch.inference_mode()
def _match(query: torch.Tensor, references: Sequence[Reference], config: PropagateConfig) -> object:
    """Search as propagation does: the references keep their layout for the kernel, the new frame is brought into it."""
    return neighbours(
        query,
        references,
        k=config.neighbours,
        temperature=config.temperature,
        weighting=config.weighting,
        packing=packed_like(query, (reference.packing for reference in references)),
    )


def _timed(work: Callable[[], object], device: torch.device, budget_seconds: float) -> Timing | None:
    return _timed_where_it_fits(lambda: work, device, budget_seconds)


def _timed_where_it_fits(
    prepare: Callable[[], Callable[[], object]], device: torch.device, budget_seconds: float
) -> Timing | None:
    """Time what `prepare` returns; None if the device has too little memory: a small one still gets a table."""
    try:
        return time_repeats(prepare(), device, budget_seconds=budget_seconds)
    except torch.OutOfMemoryError:
        pass
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return None
