"""How many steps fit into a given time on this machine: the first thing to know where a schedule must end in time."""

import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from timecycle.data.clips import ClipReader
from timecycle.data.loader import Loader
from timecycle.model.resnet import random_resnet
from timecycle.training.corpus import Videos, read_corpus
from timecycle.training.examples import Examples
from timecycle.training.settings import TrainConfig
from timecycle.training.state import State

_WARM_UP, _TIMED = 2, 6  # steps: the first ones allocate memory and fill queues


def steps_in(minutes: float, videos: Videos, folder: Path, config: TrainConfig) -> int:
    """The number of steps that take about so many minutes on examined videos, by a few that are thrown away."""
    return max(round(minutes * 60 / time_steps(videos, folder, config).seconds), 1)


@dataclass(frozen=True)
class Pace:
    """What a step takes, and the share of it that is spent waiting for clips."""

    seconds: float
    waiting: float


def time_steps(videos: Videos, folder: Path, config: TrainConfig, *, timed: int = _TIMED) -> Pace:
    """The mean over some steps on real clips."""
    corpus = read_corpus(videos, folder, config)
    reader = ClipReader(corpus.footage, corpus.training.entries, config.clips, seed=config.seed)
    examples = Examples(reader, config)
    state = State.fresh(random_resnet(config.encoder, seed=config.seed), config)
    with Loader(examples, examples.parts(range(_WARM_UP + timed)), workers=config.workers) as loader:
        began, waited = time.monotonic(), 0.0
        for step in range(_WARM_UP + timed):
            if step == _WARM_UP:
                began, waited = time.monotonic(), loader.seconds_waited
            state.advance(state.learner, islice(loader, config.accumulate))
        seconds = time.monotonic() - began
        return Pace(seconds / timed, (loader.seconds_waited - waited) / seconds)
