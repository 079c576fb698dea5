"""Frames decoded and encoded ahead of the labels, several at a time.

Frames do not wait for each other's labels, so each is encoded by one worker with its share of the threads: two
convolutions side by side keep two cores busier than one convolution on both. The result does not depend on it to a bit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np
import torch
from jaxtyping import UInt8

from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.video import Frame

Encode = Callable[[UInt8[np.ndarray, "height width 3"]], FeatureMap]
Known = Callable[[int], FeatureMap | None]

_MOST_WORKERS = 4  # each needs memory for its own activations: about 100 MB at 480p


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame and its features."""

    frame: Frame
    features: FeatureMap


def encode_ahead(
    frames: Iterable[Frame], encode: Encode, *, workers: int, known: Known = lambda _: None
) -> Iterator[EncodedFrame]:
    """The frames in their order with their features. At most `workers` and one more are held beyond the one given.

    A frame whose features are `known`, by its index, is not encoded.
    """

    def features_of(frame: Frame) -> FeatureMap:
        return known(frame.index) or encode(frame.image)

    if workers < 2:
        for frame in frames:
            yield EncodedFrame(frame, features_of(frame))
        return
    waiting: deque[tuple[Frame, Future[FeatureMap]]] = deque()
    pool = _pool(workers)
    try:
        for frame in frames:
            waiting.append((frame, pool.submit(features_of, frame)))
            if len(waiting) > workers:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)
    finally:  # also where the stream is not read to its end
        pool.shutdown(cancel_futures=True)


def workers_for(encoder: Encoder) -> int:
    """How many frames to encode at once: one, unless the encoder computes on the CPU and says it may be shared."""
    return min(torch.get_num_threads(), _MOST_WORKERS) if getattr(encoder, "shareable", False) else 1


def live_worker(encoder: Encoder) -> Executor | None:
    """Start a worker that encodes frames which come one at a time; None where the caller's own thread does as well.

    The caller matches while the worker waits, and the worker encodes while the caller waits. On one thread both would
    share one set of OpenMP threads, which keep their cores busy while they wait; with a set of its own for each there
    are more OpenMP threads than cores, and libgomp lets those that wait sleep. Results are the same to a bit.
    """
    return ThreadPoolExecutor(1, "timecycle-live") if workers_for(encoder) > 1 else None


def _first(waiting: deque[tuple[Frame, Future[FeatureMap]]]) -> EncodedFrame:
    frame, features = waiting.popleft()
    return EncodedFrame(frame, features.result())


def _pool(workers: int) -> ThreadPoolExecutor:
    """Workers that share torch's threads among them."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        workers, "timecycle-encode", initializer=torch.set_num_threads, initargs=(-(-threads // workers),)
    )
    # torch keeps the number for each thread, but threads begun later take the last one set by any: let all workers
    # begin, then say again what it is for the others.
    barrier = Barrier(workers)
    for begun in [pool.submit(barrier.wait) for _ in range(workers)]:
        begun.result()
    torch.set_num_threads(threads)
    return pool
