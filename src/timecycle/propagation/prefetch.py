"""Prefetch: decode and encode frames ahead of matching, several at a time.

Encoding does not depend on other frames' labels, so each frame is encoded by one worker with its share of the threads:
two convolutions side by side use two cores better than one convolution on both. The results are bit-identical.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np
import torch
from jaxtyping import UInt8

from timecycle.concurrency import ordered
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.video import Frame

Encode = Callable[[UInt8[np.ndarray, "height width 3"]], FeatureMap]
Known = Callable[[int], FeatureMap | None]

_MAX_WORKERS = 4  # each needs memory for its own activations: about 100 MB at 480p


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame and its features."""

    frame: Frame
    features: FeatureMap


def prefetch_features(
    frames: Iterable[Frame], encode: Encode, *, workers: int, known: Known = lambda _: None
) -> Iterator[EncodedFrame]:
    """Yield the frames in order with their features; at most `workers` + 1 frames are held in advance.

    A frame whose features are `known`, by its index, is not encoded.
    """

    def features_of(frame: Frame) -> FeatureMap:
        return known(frame.index) or encode(frame.image)

    pool = _pool(workers) if workers > 1 else None
    yield from ordered(pool, lambda frame: EncodedFrame(frame, features_of(frame)), frames, ahead=workers)


def encoding_workers(encoder: Encoder) -> int:
    """Return how many frames to encode at once: one, unless the encoder runs on the CPU and is `thread_safe`."""
    return min(torch.get_num_threads(), _MAX_WORKERS) if getattr(encoder, "thread_safe", False) else 1


def live_worker(encoder: Encoder) -> Executor | None:
    """Start a worker that encodes frames of a live stream; None where the caller's own thread does as well.

    The caller matches while the worker waits, and the reverse. On one thread both would share one set of OpenMP
    threads, which spin while they wait; with a set for each there are more OpenMP threads than cores, and libgomp lets
    waiting threads sleep. The results are bit-identical.
    """
    return ThreadPoolExecutor(1, "timecycle-live") if encoding_workers(encoder) > 1 else None


def _pool(workers: int) -> ThreadPoolExecutor:
    """Start workers that share torch's threads among them."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        workers, "timecycle-encode", initializer=torch.set_num_threads, initargs=(-(-threads // workers),)
    )
    # torch keeps the number per thread, but new threads take the last one set by any thread: let all workers start,
    # then set the caller's number again.
    barrier = Barrier(workers)
    for started in [pool.submit(barrier.wait) for _ in range(workers)]:
        started.result()
    torch.set_num_threads(threads)
    return pool
