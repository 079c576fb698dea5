"""Measure how many training steps fit into a given time on this machine."""

import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from timecycle.data.augment.clips import ClipReader
from timecycle.data.corpus.loader import Loader
from timecycle.model.resnet import random_resnet
from timecycle.training.corpus import VideoSource, read_corpus
from timecycle.training.examples import Examples
from timecycle.training.settings import TrainConfig
from timecycle.training.state import State

_WARMUP, _TIMED = 2, 6  # steps: the first ones allocate memory and fill queues


def steps_in(minutes: float, videos: VideoSource, folder: Path, config: TrainConfig) -> int:
    """Return the number of steps that take about so many minutes on indexed videos, by timing a few of them."""
    return max(round(minutes * 60 / time_steps(videos, folder, config).seconds), 1)


@dataclass(frozen=True)
class Pace:
    """The duration of a step, and the share of it that is spent waiting for clips."""

    seconds: float
    waiting: float


def time_steps(videos: VideoSource, folder: Path, config: TrainConfig, *, timed: int = _TIMED) -> Pace:
    """Time some steps on real clips and discard their result."""
    corpus = read_corpus(videos, folder, config)
    reader = ClipReader(corpus.footage, corpus.training.entries, config.clips, seed=config.seed)
    examples = Examples(reader, config)
    state = State.fresh(random_resnet(config.encoder, seed=config.seed), config)
    with Loader(examples, examples.micro_batches(range(_WARMUP + timed)), workers=config.workers) as loader:
        began, waited = time.monotonic(), 0.0
        for step in range(_WARMUP + timed):
            if step == _WARMUP:
                began, waited = time.monotonic(), loader.seconds_waited
            state.advance(state.learner, islice(loader, config.accumulate))
        seconds = time.monotonic() - began
        return Pace(seconds / timed, (loader.seconds_waited - waited) / seconds)
