"""`timecycle train`"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import Bar, board, err, out
from timecycle.cli.options import Out
from timecycle.config import build, preset_names, train_config
from timecycle.errors import SettingsError
from timecycle.files import make_folder
from timecycle.model.weights import load_weights
from timecycle.training import trainer
from timecycle.training.corpus import DEFAULT_CACHE_GB, Videos, examine_videos
from timecycle.training.distributed import crew_here
from timecycle.training.pace import steps_in
from timecycle.training.settings import TrainConfig

_PRESETS = ", ".join(preset_names("train"))


@dataclass(frozen=True, kw_only=True)
class Train:
    """Learn an encoder from raw video, without a label.

    For example: timecycle train videos/ -o run --minutes 30

    then: timecycle propagate dog.mp4 first.png --encoder run/weights.safetensors -o out

    An interrupted run goes on with: timecycle train videos/ -o run --resume
    """

    videos: Annotated[
        Positional[str],
        arg(metavar="VIDEOS", help="a folder of videos, searched through and through, or a pack as s3://bucket/corpus"),
    ]
    out: Out
    preset: Annotated[str, arg(help=f"settings: {_PRESETS}")] = "small"
    set: Annotated[
        tuple[str, ...],
        arg(metavar="NAME=VALUE ...", help="change settings of the preset, as optimizer.rate=1e-3 walks.dropout=0"),
    ] = ()
    start: Annotated[
        Path | None, arg(name="from", metavar="WEIGHTS", help="go on from these weights, and say whether it helped")
    ] = None
    steps: Annotated[int | None, arg(help="how many steps; by default the preset's")] = None
    minutes: Annotated[float | None, arg(help="as many steps as take about so long")] = None
    cache: Annotated[Path | None, arg(help="where shards of a pack are kept; by default in the user's cache")] = None
    cache_gb: Annotated[float, arg(help="how many gigabytes of them at most")] = DEFAULT_CACHE_GB
    resume: Annotated[bool, arg(help="go on with the run in the folder, with its own settings")] = False
    overwrite: Annotated[bool, arg(help="replace an earlier run")] = False

    def __call__(self) -> None:
        start = load_weights(self.start) if self.start else None
        crew = crew_here()
        with board(shown=crew.leads) as bar:
            examined = bar("examining")
            config = self._config(examined)
            if start is not None:
                config = dataclasses.replace(config, encoder=start.config)
            done = trainer.train(
                self._videos,
                self.out,
                config,
                start=start,
                resume=self.resume,
                overwrite=self.overwrite,
                watch=trainer.Watch(step=_shown_on(bar("learning")), video=examined, worry=err.print),
                processes=os.cpu_count() or 1,
            )
        if crew.leads:
            self._print(done)

    @property
    def _videos(self) -> Videos:
        return Videos(place=self.videos, cache=self.cache, cache_gb=self.cache_gb)

    def _config(self, examined: Bar) -> TrainConfig:
        if self.resume:
            given = [f"--{name}" for name in ("set", "steps", "minutes") if getattr(self, name)]
            if given:
                raise SettingsError(
                    f"{given[0]} and --resume were both given", remedy="a run goes on with its own settings"
                )
            return build(TrainConfig, trainer.read_settings(self.out))
        if self.steps and self.minutes:
            raise SettingsError("--steps and --minutes were both given", remedy="leave one of them out")
        steps = (f"steps={self.steps}",) if self.steps else ()
        config = train_config(self.preset, (*self.set, *steps))
        if self.minutes:
            _refuse_several_processes()
            trainer.refuse_used(self.out, overwrite=self.overwrite)
            examine_videos(
                self._videos, make_folder(self.out), processes=os.cpu_count() or 1, show=examined, warn=_unsaid
            )
            fitting = steps_in(self.minutes, self._videos, self.out, config)
            out.print(f"{fitting} steps take about {self.minutes:g} minutes here")
            config = dataclasses.replace(config, steps=fitting)
        return config

    def _print(self, done: trainer.Trained) -> None:
        if done.weights is None:
            out.print(
                f"stopped after {done.steps} steps; to go on: timecycle train {self.videos} -o {self.out} --resume"
            )
            return
        if done.after is not None:
            for name, value in done.after.figures().items():
                was = f" (before: {done.before.figures()[name]:.3f})" if done.before is not None else ""
                out.print(f"  {name:<16} {value:.3f}{was}")
        if done.before is not None and done.after is not None:
            out.print(trainer.verdict(done.before, done.after))
        out.print(f"weights: {done.weights}; curves: {self.out / 'journal.jsonl'}; pictures: {self.out / 'pictures'}")


def _refuse_several_processes() -> None:
    """Each would time its own steps, and they would not end together."""
    if crew_here().world > 1:
        raise SettingsError("--minutes was given to several processes", remedy="give the number of steps with --steps")


def _unsaid(_: str) -> None:
    """What examining finds is said when the run itself begins."""


def _shown_on(bar: Bar) -> Callable[[trainer.Progress], None]:
    def show(now: trainer.Progress) -> None:
        losses = " ".join(f"{name} {value:.3f}" for name, value in now.losses.items())
        bar(now.step, now.steps, f"{losses} · waiting for clips {now.data_share:.0%}")

    return show
