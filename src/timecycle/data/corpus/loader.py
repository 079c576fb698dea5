"""Prefetch batches in background threads, in a fixed order.

Threads rather than processes: decoding, resizing and sampling release Python's lock, nothing has to be pickled, and
nothing of the program is started twice. The order and content of batches do not depend on the number of threads.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields, is_dataclass
from itertools import chain, tee
from typing import Any

import numpy as np
import torch
from torch import Tensor

from timecycle.concurrency import ordered
from timecycle.data.corpus.order import SampleKey
from timecycle.errors import SettingsError, TimecycleError

Example = Any  # a mapping or dataclass of arrays, tensors and numbers
Batch = dict[str, Tensor]


class Loader:
    """An iterator over batches; use it in a `with` block, so that the workers stop when the loop does.

    `make_example(epoch, position)` must be a pure function. `workers` threads prefetch up to `prefetch` batches;
    with 0 workers, examples are made while the loop waits. `finish` is applied to every batch before it is given out.
    """

    def __init__(
        self,
        make_example: Callable[[int, int], Example],
        batches: Iterable[Sequence[SampleKey]],
        *,
        workers: int = 1,
        prefetch: int = 2,
        finish: Callable[[Batch], Batch] = dict,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if workers < 0 or prefetch < 1:
            raise SettingsError(
                f"workers is {workers} and prefetch {prefetch}",
                remedy="give 0 or more workers, and prefetch 1 or more batches",
            )
        self.seconds_waited = 0.0  # that the loop has waited for data
        self._make_example = make_example
        self._finish = finish
        self._clock = clock
        self._batches = self._prefetched(batches, workers, prefetch)

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        start = self._clock()
        try:
            return next(self._batches)
        finally:
            self.seconds_waited += self._clock() - start

    def close(self) -> None:
        """Stop the workers, after the examples that they are making."""
        self._batches.close()

    def _prefetched(
        self, batches: Iterable[Sequence[SampleKey]], workers: int, prefetch: int
    ) -> Generator[Batch, None, None]:
        # Workers make single examples rather than batches, so that all of them work for the batch that is needed next.
        remaining = iter(batches)
        first = next(remaining, None)
        if first is None:
            return
        requested, submitted = tee(chain([first], remaining))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="loader") if workers else None
        keys = chain.from_iterable(submitted)
        with closing(ordered(pool, self._example, keys, ahead=prefetch * len(first))) as examples:
            for batch in requested:
                yield self._finish(collate([next(examples) for _ in batch]))

    def _example(self, key: SampleKey) -> Example:
        epoch, position = key
        try:
            return self._make_example(epoch, position)
        except TimecycleError as error:
            problem = f"the example at epoch {epoch}, position {position}: {error.problem}"
            raise type(error)(problem, remedy=error.remedy) from error
        except Exception as error:
            error.add_note(f"while making the example at epoch {epoch}, position {position}")
            raise


def collate(examples: Sequence[Example]) -> Batch:
    """Stack the values of all examples into tensors, by name."""
    rows = [_values(example) for example in examples]
    batch = {}
    for name in rows[0]:
        values = [
            torch.from_numpy(np.ascontiguousarray(row[name])) if isinstance(row[name], np.ndarray) else row[name]
            for row in rows
        ]
        batch[name] = torch.stack(values) if isinstance(values[0], Tensor) else torch.tensor(values)
    return batch


def _values(example: Example) -> Mapping[str, Any]:
    if is_dataclass(example):
        return {field.name: getattr(example, field.name) for field in fields(example)}
    values: Mapping[str, Any] = example
    return values
