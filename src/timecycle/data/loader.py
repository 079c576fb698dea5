"""Batches made in the background, in the order asked for.

Threads rather than processes: decoding, resizing and sampling release Python's lock, nothing has to be pickled, and
nothing of the program is started twice. The order and content of batches never depend on how many there are.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from timecycle.data.order import Place
from timecycle.errors import SettingsError, TimecycleError

Example = Any  # a mapping or dataclass of arrays, tensors and numbers
Batch = dict[str, Tensor]


class Loader:
    """Iterate for batches; use it in a `with` block, so that the workers stop when the loop does.

    `make_example(epoch, position)` must be a pure function. `workers` threads run up to `prefetch` batches ahead;
    with 0, examples are made while the loop waits for them.
    """

    def __init__(
        self,
        make_example: Callable[[int, int], Example],
        batches: Iterable[Sequence[Place]],
        *,
        workers: int = 1,
        prefetch: int = 2,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if workers < 0 or prefetch < 1:
            raise SettingsError(
                f"workers is {workers} and prefetch {prefetch}",
                remedy="give 0 or more workers, 1 or more batches ahead",
            )
        self.seconds_waited = 0.0  # what the loop has spent waiting for data
        self._make_example = make_example
        self._batches = iter(batches)
        self._prefetch = prefetch
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="loader") if workers else None
        self._ahead: deque[list[Future[Example]]] = deque()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        start = self._clock()
        try:
            return collate(self._next_examples())
        finally:
            self.seconds_waited += self._clock() - start

    def close(self) -> None:
        """Stop the workers; at most the examples in their hands are finished first."""
        self._batches = iter(())
        self._ahead.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _next_examples(self) -> list[Example]:
        if self._pool is None:
            return [self._example(place) for place in next(self._batches)]
        while len(self._ahead) <= self._prefetch and (batch := next(self._batches, None)) is not None:
            self._ahead.append([self._pool.submit(self._example, place) for place in batch])
        if not self._ahead:
            raise StopIteration
        return [future.result() for future in self._ahead.popleft()]

    def _example(self, place: Place) -> Example:
        epoch, position = place
        try:
            return self._make_example(epoch, position)
        except TimecycleError as error:
            problem = f"the example at epoch {epoch}, position {position}: {error.problem}"
            raise type(error)(problem, remedy=error.remedy) from error
        except Exception as error:
            error.add_note(f"while making the example at epoch {epoch}, position {position}")
            raise


def collate(examples: Sequence[Example]) -> Batch:
    """Tensors of all examples stacked, by name."""
    parts = [_parts(example) for example in examples]
    batch = {}
    for name in parts[0]:
        values = [
            torch.from_numpy(np.ascontiguousarray(part[name])) if isinstance(part[name], np.ndarray) else part[name]
            for part in parts
        ]
        batch[name] = torch.stack(values) if isinstance(values[0], Tensor) else torch.tensor(values)
    return batch


def _parts(example: Example) -> Mapping[str, Any]:
    if is_dataclass(example):
        return {field.name: getattr(example, field.name) for field in fields(example)}
    parts: Mapping[str, Any] = example
    return parts
