"""How many steps fit into a given time on this machine: the first thing to know where a schedule must end in time."""

import time
from itertools import islice
from pathlib import Path

from timecycle.data.clips import ClipReader
from timecycle.data.index import make_index, split
from timecycle.data.loader import Loader
from timecycle.data.order import places
from timecycle.model.resnet import random_resnet
from timecycle.training.examples import Examples
from timecycle.training.settings import TrainConfig
from timecycle.training.state import State

_WARM_UP, _TIMED = 2, 6  # steps: the first ones allocate memory and fill queues


def steps_in(minutes: float, videos: Path, folder: Path, config: TrainConfig) -> int:
    """The number of steps that take about so many minutes, from a few that are timed and thrown away."""
    training, _ = split(make_index(videos, folder / "index.jsonl"), config.held_out)
    examples = Examples(ClipReader(videos, training.entries, config.clips, seed=config.seed), config)
    state = State.fresh(random_resnet(config.encoder, seed=config.seed), config)
    count, share = len(examples.reader), config.batch // config.accumulate
    parts = (_WARM_UP + _TIMED) * config.accumulate
    order = (places(part, batch=share, rank=0, world=1, count=count) for part in range(parts))
    with Loader(examples, order, workers=config.workers) as loader:
        began = time.monotonic()
        for step in range(_WARM_UP + _TIMED):
            if step == _WARM_UP:
                began = time.monotonic()
            state.advance(state.learner, islice(loader, config.accumulate))
        seconds = (time.monotonic() - began) / _TIMED
    return max(round(minutes * 60 / seconds), 1)
