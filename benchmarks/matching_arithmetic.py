"""Estimate the time of matching on an A100-class GPU, from the work of the real code on tensors without values.

    python benchmarks/matching_arithmetic.py

No GPU is used. The search in tiles and the bundled encoder run on meta tensors at 854x480 with the preset `default`;
every operation that a device would run is counted, with its multiply-adds and the bytes it reads and writes. The time
of an operation is the longer of arithmetic and memory at the assumed rates (`Card`), the time of a part is the longer
of its operations and their launches. A fused kernel is one launch that keeps scores on the chip. Work of the host is
measured on this machine, in seconds of one core: what `timecycle propagate` does that a GPU would not do.
Results: matching_arithmetic.json.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from record import write_record
from timecycle import Masks, PropagateConfig, Propagator, load_encoder, propagate_to_folder
from timecycle.confidence.estimator import ConfidenceEstimator
from timecycle.config import propagate_config
from timecycle.grid import Grid
from timecycle.matching import forward_backward, tiles
from timecycle.matching.neighbours import neighbours
from timecycle.matching.tiles import WindowedFeatures, search_tiles
from timecycle.model.inference import ResNetEncoder, fold_batch_norm
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.model.resnet import ResNet
from timecycle.propagation import aggregate, propagator
from timecycle.synthetic import WorldConfig, make_world

WIDTH_PX, HEIGHT_PX = 854, 480
_META = torch.device("meta")
_FRAMES = 12, 36  # of two runs: what they differ by is the cost of frames alone, with a full memory bank
_CYCLES = 4  # searches of confidence: there and back, in a past frame and in the annotated one
_FLOAT = 4  # bytes
_ANNOTATED = 1  # annotated frames in memory
_FUSED_SIDE = 8  # queries of a block of the fused kernel, to a side


@dataclass(frozen=True)
class Card:
    """Peak rates of an A100 (40 GB), and how much of them is assumed to be reached."""

    fp32_tera: float = 19.5
    tf32_tera: float = 156.0
    memory_tera_bytes: float = 1.555
    arithmetic_share: float = 0.6  # of the peak, in large matrix products and convolutions
    fused_share: float = 0.4  # of the peak, beside the choice of the best in the same kernel
    memory_share: float = 0.8
    launch_seconds: float = 6e-6  # of the host, for each operation
    topk_passes: int = 5  # over the scores: four of eight bits each, one to gather


@dataclass(frozen=True)
class Work:
    """What a device is asked to do: operations, multiply-adds as two, bytes, and seconds at the rates of a card."""

    launches: int
    flop: float
    bytes: float
    seconds: float

    def record(self) -> dict[str, float]:
        return {
            "launches": self.launches,
            "giga_flop": round(self.flop / 1e9, 2),
            "giga_bytes": round(self.bytes / 1e9, 3),
            "milliseconds": round(1e3 * self.seconds, 2),
        }


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count what a device would run: everything on meta tensors but views."""

    def __init__(self, card: Card, tera: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.card, self.tera = card, tera
        self.launches, self.flop, self.bytes, self.seconds = 0, 0.0, 0.0, 0.0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        counter = FlopCounterMode(display=False)
        with counter:
            result = func(*args, **(kwargs or {}))
        tensors = [one for one in tree_leaves((args, kwargs, result)) if isinstance(one, Tensor)]
        if func.is_view or not any(one.device == _META for one in tensors):
            return result
        passes = self.card.topk_passes if "topk" in str(func) else 1
        size = passes * sum(one.numel() * one.element_size() for one in tensors)
        flop = float(counter.get_total_flops())
        self.launches += 1
        self.flop += flop
        self.bytes += size
        self.seconds += max(
            flop / (self.tera * 1e12 * self.card.arithmetic_share),
            size / (self.card.memory_tera_bytes * 1e12 * self.card.memory_share),
        )
        return result

    def work(self) -> Work:
        return Work(self.launches, self.flop, self.bytes, max(self.seconds, self.launches * self.card.launch_seconds))


def main() -> int:
    began = time.monotonic()
    card, config, encoder = Card(), propagate_config("default"), load_encoder(DEFAULT_ENCODER, device="cpu")
    if not isinstance(encoder, ResNetEncoder):
        raise TypeError("the bundled encoder is a ResNet")
    features = encoder.encode(np.zeros((HEIGHT_PX, WIDTH_PX, 3), np.uint8))
    references = _references(features.cells.shape, features.grid, config)
    scene = _Scene(features.cells.to(_META), references, config.neighbours, card)
    by_side = {side: scene.tiles(side) for side in (8, 16, tiles._TILE_ACCELERATOR, 64)}
    once = _Scene(scene.query, references[:1], 1, card)
    parts = {
        "encoder": encoder_work(encoder, card),
        "search": by_side[tiles._TILE_ACCELERATOR],
        "search_of_confidence": repeated(once.tiles(tiles._TILE_ACCELERATOR), _CYCLES),
        "fused_search": scene.fused(),
        "fused_search_of_confidence": repeated(once.fused(), _CYCLES),
    }
    in_tiles = sum(parts[name].seconds for name in ("encoder", "search", "search_of_confidence"))
    fused = sum(parts[name].seconds for name in ("encoder", "fused_search", "fused_search_of_confidence"))
    host = host_seconds(encoder, config)
    step = parts["encoder"].seconds + host["decode"]
    command = host["decode"] + host["other"]
    measured = {
        "cells": list(features.cells.shape[:2]),
        "dimensions": features.cells.shape[2],
        "references": len(references),
        "window_cells": scene.window_cells(),
        "needed_giga_flop": round(scene.needed_flop() / 1e9, 2),
        "tile_sides": {str(side): work.record() for side, work in by_side.items()},
        "parts": {name: work.record() for name, work in parts.items()},
        "masks": scene.masks().record(),
        "host_milliseconds": {name: round(1e3 * seconds, 1) for name, seconds in host.items()},
        "device_milliseconds": {"tiles": round(1e3 * in_tiles, 1), "fused": round(1e3 * fused, 1)},
        "frame_over_fused_frame": {
            "step": round((step + parts["search"].seconds) / (step + parts["fused_search"].seconds), 2),
            "command": round((in_tiles + command) / (fused + command), 2),
        },
    }
    for name, value in measured.items():
        print(f"{name:28}{value}")
    settings = {
        "size": f"{WIDTH_PX}x{HEIGHT_PX}",
        "preset": "default",
        "encoder": DEFAULT_ENCODER,
        "tile": tiles._TILE_ACCELERATOR,
        "fused_block": _FUSED_SIDE,
        "card": asdict(card),
    }
    write_record("matching_arithmetic", settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


def repeated(work: Work, times: int) -> Work:
    return Work(times * work.launches, times * work.flop, times * work.bytes, times * work.seconds)


def _references(shape: Sequence[int], grid: Grid, config: PropagateConfig) -> list[WindowedFeatures]:
    """The references of a frame in the middle of a video: the annotated one, the last ones, and older ones."""
    propagated = config.past_frames + config.older_frames
    return [
        WindowedFeatures(torch.empty(tuple(shape), device=_META), config.window(grid, annotated=index < _ANNOTATED))
        for index in range(_ANNOTATED + propagated)
    ]


@dataclass(frozen=True, eq=False)
class _Scene:
    """A frame and its references, to be searched on a card."""

    query: Tensor
    references: Sequence[WindowedFeatures]
    k: int
    card: Card

    def tiles(self, side: int) -> Work:
        """Count the search of tiles.py with tiles of this side."""

        def read(values: Tensor, waiting: str) -> list[float]:
            del waiting
            return [0.0] * len(values)  # no ties: tiles that have some are searched twice

        counter = _Counter(self.card, self.card.fp32_tera)
        with patch.object(tiles, "_TILE_ACCELERATOR", side), patch.object(tiles, "host_values", read):
            search_tiles(self.query, self.references, self.k)  # fills the caches, as the first frame does
            with counter:
                search_tiles(self.query, self.references, self.k)
        return counter.work()

    def fused(self) -> Work:
        """Count a kernel whose blocks score their queries with all keys their windows cover, and keep the best."""
        scores, key_bytes = 0, 0
        for tile, keys in self._regions(_FUSED_SIDE):
            scores += tile * keys
            key_bytes += keys * self.query.shape[2] * _FLOAT
        flop = 2.0 * scores * self.query.shape[2]
        size = key_bytes + self.query.numel() * _FLOAT + self._queries * self.k * (_FLOAT + 8 + 8)
        arithmetic = flop / (self.card.fp32_tera * 1e12 * self.card.fused_share)
        memory = size / (self.card.memory_tera_bytes * 1e12 * self.card.memory_share)
        return Work(1, flop, size, max(arithmetic, memory))

    def needed_flop(self) -> float:
        """The multiply-adds, as two, of the keys inside the windows alone."""
        return 2.0 * self.window_cells() * self._queries * len(self.references) * self.query.shape[2]

    def window_cells(self) -> float:
        """The mean number of cells of a reference inside the window of a query, less at the border."""
        rows, columns, _ = self.query.shape
        inside = 0
        for reference in self.references:
            widths = (columns - 1,) * rows if reference.window is None else reference.window.half_widths
            for dy in range(-len(widths) + 1, len(widths)):
                width = widths[abs(dy)]
                pairs = sum(max(columns - abs(dx), 0) for dx in range(-width, width + 1))
                inside += max(rows - abs(dy), 0) * pairs
        return round(inside / self._queries / len(self.references), 1)

    def masks(self) -> Work:
        """Count making the masks of all tiles, which is done for the first frame only."""
        counter = _Counter(self.card, self.card.fp32_tera)
        tiles._cached_window_mask.cache_clear()
        with counter:
            for window in {reference.window for reference in self.references}:
                for tile in tiles._tiles(self.query.shape[0], self.query.shape[1], tiles._TILE_ACCELERATOR):
                    tiles._region(tile, window, self.query.shape[0], self.query.shape[1], _META)
        return counter.work()

    @property
    def _queries(self) -> int:
        return self.query.shape[0] * self.query.shape[1]

    def _regions(self, side: int) -> list[tuple[int, int]]:
        """The numbers of queries and keys of every product, over tiles and references."""
        rows, columns, _ = self.query.shape
        found = []
        for tile in tiles._tiles(rows, columns, side):
            for reference in self.references:
                region = tiles._region(tile, reference.window, rows, columns, _META)
                queries = (tile.rows.stop - tile.rows.start) * (tile.columns.stop - tile.columns.start)
                found.append((queries, len(region.y)))
        return found


def encoder_work(encoder: ResNetEncoder, card: Card) -> Work:
    """Count the bundled network on one frame, in TF32, which torch uses for convolutions."""
    with _META:
        model = fold_batch_norm(ResNet(encoder._model.config))
        image = torch.empty(1, 3, HEIGHT_PX, WIDTH_PX)
    counter = _Counter(card, card.tf32_tera)
    with torch.inference_mode(), counter:
        model.activations(image)
    return counter.work()


def host_seconds(encoder: ResNetEncoder, config: PropagateConfig) -> dict[str, float]:
    """Measure a run to a folder: seconds of one core for each frame.

    `tensors` is what a GPU would do besides: votes, the target model, signals of confidence. `other` is reading,
    writing, and the overlay video.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        short, long = (_run_seconds(encoder, config, frames) for frames in _FRAMES)
    finally:
        torch.set_num_threads(threads)
    frames = _FRAMES[1] - _FRAMES[0]
    spent = {name: (long[name] - short[name]) / frames for name in long}
    tensors = sum(spent[name] for name in ("aggregate", "fit", "signals")) - spent["search"]
    other = spent["whole"] - tensors - sum(spent[name] for name in ("encode", "search", "decode"))
    return {**{name: spent[name] for name in ("encode", "search", "decode")}, "tensors": tensors, "other": other}


def _run_seconds(encoder: ResNetEncoder, config: PropagateConfig, frames: int) -> dict[str, float]:
    """Seconds of processor time of a whole run, and of some of its functions."""
    world = make_world(WorldConfig(height_px=HEIGHT_PX, width_px=WIDTH_PX, frames=frames, seed=0))
    video = np.stack(list(world.frames()))
    spent = dict.fromkeys(("encode", "search", "decode", "aggregate", "fit", "signals"), 0.0)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.thread_time() - began

        return run

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(ResNetEncoder, "encode", timed("encode", ResNetEncoder.encode)),
        patch.object(aggregate, "neighbours", timed("search", neighbours)),
        patch.object(forward_backward, "neighbours", timed("search", neighbours)),
        patch.object(propagator, "aggregate", timed("aggregate", aggregate.aggregate)),
        patch.object(Propagator, "_fit_target", timed("fit", Propagator._fit_target)),
        patch.object(ConfidenceEstimator, "signals", timed("signals", ConfidenceEstimator.signals)),
        patch.object(Propagator, "decode", timed("decode", Propagator.decode)),
    ):
        began = time.process_time()
        propagate_to_folder(video, {0: Masks.of(world.mask(0))}, folder, encoder=encoder, config=config)
        return {**spent, "whole": time.process_time() - began}


if __name__ == "__main__":
    sys.exit(main())
