"""One process of a small training run from a pack, which logs the clips it reads; made to be killed.

    python tests/shared/logged_training.py PACK RUN CACHE LOG HELD_OUT LAST CACHE_GB SETTING ...

Every finished step is printed. After step LAST the run sends SIGTERM to itself. Readers of at most HELD_OUT clips are
not logged: they read the held-out clips.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from timecycle.config import train_config
from timecycle.data.augment.clips import Clip, ClipReader
from timecycle.training.corpus import VideoSource
from timecycle.training.trainer import Callbacks, Progress, train


def samples(log: Path) -> dict[tuple[int, int], str]:
    """Read the clip of every (epoch, position) from a log; repeated reads must give the same clip."""
    clips: dict[tuple[int, int], str] = {}
    for line in log.read_text().splitlines():
        epoch, position, clip = line.split()
        if clips.setdefault((int(epoch), int(position)), clip) != clip:
            raise ValueError(f"position {position} of epoch {epoch} gave two clips")
    return clips


def main() -> int:
    pack, folder, cache, log, held_out, last, cache_gb, *settings = sys.argv[1:]
    read = ClipReader.read

    def logged_read(self: ClipReader, epoch: int, position: int, rng: np.random.Generator) -> Clip:
        clip = read(self, epoch, position, rng)
        if len(self) > int(held_out):
            with Path(log).open("a") as file:
                file.write(f"{epoch} {position} {clip.path}\n")
        return clip

    def show(progress: Progress) -> None:
        print(progress.step, flush=True)  # noqa: T201  whoever started it reads this
        if progress.step == int(last):
            os.kill(os.getpid(), signal.SIGTERM)

    ClipReader.read = logged_read  # type: ignore[method-assign]
    videos = VideoSource(location=pack, cache=Path(cache), cache_gb=float(cache_gb))
    resume = Path(folder, "train.json").exists()
    train(videos, Path(folder), train_config("small", settings), resume=resume, callbacks=Callbacks(step=show))
    return 0


if __name__ == "__main__":
    sys.exit(main())
