"""One process of a small training run from a pack that notes which clip it read when; for the kills of others.

    python benchmarks/noted_training.py PACK RUN CACHE LOG KEPT_ASIDE LAST CACHE_GB SETTING ...

Every finished step is printed. After step LAST the run stops as if it had been asked to. Readers of at most KEPT_ASIDE
clips are not noted: those are the clips that are not trained on.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from timecycle.config import train_config
from timecycle.data.clips import Clip, ClipReader
from timecycle.training.corpus import Videos
from timecycle.training.trainer import Progress, Watch, train


def samples(log: Path) -> dict[tuple[int, int], str]:
    """The clip at every place that a log tells of; however often a place was read, it must be the same clip."""
    found: dict[tuple[int, int], str] = {}
    for line in log.read_text().splitlines():
        epoch, position, clip = line.split()
        if found.setdefault((int(epoch), int(position)), clip) != clip:
            raise ValueError(f"position {position} of epoch {epoch} gave two clips")
    return found


def main() -> int:
    place, folder, cache, log, kept_aside, last, cache_gb, *settings = sys.argv[1:]
    read = ClipReader.read

    def noted(self: ClipReader, epoch: int, position: int, rng: np.random.Generator) -> Clip:
        clip = read(self, epoch, position, rng)
        if len(self) > int(kept_aside):
            with Path(log).open("a") as file:
                file.write(f"{epoch} {position} {clip.path}\n")
        return clip

    def show(progress: Progress) -> None:
        print(progress.step, flush=True)
        if progress.step == int(last):
            os.kill(os.getpid(), signal.SIGTERM)

    ClipReader.read = noted  # type: ignore[method-assign]
    videos = Videos(place=place, cache=Path(cache), cache_gb=float(cache_gb))
    resume = Path(folder, "train.json").exists()
    train(videos, Path(folder), train_config("small", settings), resume=resume, watch=Watch(step=show))
    return 0


if __name__ == "__main__":
    sys.exit(main())
