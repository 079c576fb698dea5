"""`timecycle train`"""

import dataclasses
import math
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import Bar, board, err, out
from timecycle.cli.options import Out
from timecycle.config import build, preset_names, train_config
from timecycle.errors import SettingsError
from timecycle.model.shipped import find_shipped
from timecycle.model.weights import load_weights, read_card
from timecycle.training import trainer
from timecycle.training.corpus import DEFAULT_CACHE_GB, Videos
from timecycle.training.distributed import Crew, crew_here
from timecycle.training.heldout import fewest_steps, verdict
from timecycle.training.pace import steps_in
from timecycle.training.record import finished_weights, has_record, read_settings
from timecycle.training.settings import TrainConfig

_PRESETS = ", ".join(preset_names("train"))
_INTERRUPTED = 130  # what a shell expects of a command that Ctrl-C ended
_MUCH_WAITING = 0.1  # of the time: below, clips come as fast as they are learned from


@dataclass(frozen=True, kw_only=True)
class Train:
    """Learn an encoder from raw video, without a label.

    For example: timecycle train videos/ -o run --minutes 30

    then: timecycle propagate dog.mp4 first.png --encoder run/weights.safetensors -o out

    Ctrl-C saves. An interrupted run goes on with: timecycle train videos/ -o run --resume
    """

    videos: Annotated[
        Positional[str],
        arg(
            metavar="VIDEOS",
            help="a folder of videos, searched recursively, one video, or a pack as s3://bucket/corpus",
        ),
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
    licence: Annotated[
        str, arg(aliases=["--license"], metavar="NAME", help="terms of the weights, for their card, as CC-BY-4.0")
    ] = ""
    cache: Annotated[Path | None, arg(help="where shards of a pack are kept; by default in the user's cache")] = None
    cache_gb: Annotated[float, arg(help="how many gigabytes of them at most")] = DEFAULT_CACHE_GB
    resume: Annotated[bool, arg(help="go on with the run in the folder, with its own settings")] = False
    overwrite: Annotated[bool, arg(help="replace an earlier run")] = False

    def __call__(self) -> None:
        self._check_amounts()
        crew = crew_here()
        try:
            with board(shown=crew.leads) as bar:
                done = self._train(bar, crew)
        except KeyboardInterrupt:
            if has_record(self.out):
                raise
            err.print("interrupted before the first step; give the same command again: examined videos are kept")
            raise SystemExit(_INTERRUPTED) from None
        if crew.leads:
            self._print(done)
        if done.interrupted:
            raise SystemExit(_INTERRUPTED)

    def _train(self, bar: Callable[[str], Bar], crew: Crew) -> trainer.Trained:
        if self.resume:
            config = self._resumed_config()
            weights = finished_weights(self.out)
            if weights is not None:
                return trainer.Trained(self.out, weights, config.steps, None, None)
        examined = None if self.resume else bar("examining")  # a resumed run keeps to the index it began with
        watch = trainer.Watch(
            step=_shown_on(bar("learning")),
            video=examined or _unseen,
            note=err.print if crew.leads else _unsaid,
            worry=err.print,
        )
        if not self.resume:
            config = self._config()
        start_path = find_shipped(str(self.start)) or self.start if self.start else None
        start = load_weights(start_path) if start_path else None
        start_card = read_card(start_path) if start_path else None
        if start is not None:
            config = dataclasses.replace(config, encoder=start.config)
        if start_card is not None and self.licence not in ("", start_card.licence):
            watch.worry(f"the weights this run begins with are under {start_card.licence}, whose terms stay with them")
        if self.minutes is not None and not self.resume:
            config = self._fitted(self.minutes, config, dataclasses.replace(watch, worry=_unsaid))
        return trainer.train(
            self._videos,
            self.out,
            config,
            start=start,
            start_card=start_card,
            resume=self.resume,
            overwrite=self.overwrite,
            licence=self.licence,
            watch=watch,
            processes=os.cpu_count() or 1,
        )

    @property
    def _videos(self) -> Videos:
        return Videos(place=self.videos, cache=self.cache, cache_gb=self.cache_gb)

    def _check_amounts(self) -> None:
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise SettingsError(
                f"--minutes is {self.minutes:g}", remedy="give more than 0, or leave it out for the steps of the preset"
            )
        if self.steps is not None and self.minutes is not None:
            raise SettingsError("--steps and --minutes were both given", remedy="leave one of them out")

    def _config(self) -> TrainConfig:
        steps = (f"steps={self.steps}",) if self.steps is not None else ()
        return train_config(self.preset, (*self.set, *steps))

    def _resumed_config(self) -> TrainConfig:
        """The settings of the run that is resumed; given again, they must be the same."""
        recorded = build(TrainConfig, read_settings(self.out))
        if self.steps is None and not self.set:
            return recorded
        given = self._config()
        # What was found out when the run began: how many steps fit, and what the processor can do.
        given = dataclasses.replace(
            given,
            steps=recorded.steps if self.steps is None else given.steps,
            precision=recorded.precision if given.precision == "auto" else given.precision,
            encoder=recorded.encoder,
        )
        if given != recorded:
            changed = [
                field.name
                for field in dataclasses.fields(TrainConfig)
                if getattr(given, field.name) != getattr(recorded, field.name)
            ]
            raise SettingsError(
                f"the run in {self.out} was started with another setting of {', '.join(changed)}",
                remedy="a run goes on with its own settings: leave --preset, --set and --steps out",
            )
        return recorded

    def _fitted(self, minutes: float, config: TrainConfig, watch: trainer.Watch) -> TrainConfig:
        """As many steps as take about so many minutes."""
        _refuse_several_processes()
        err.print("timing a few steps first, to see how many fit")
        trainer.prepare(self._videos, self.out, overwrite=self.overwrite, watch=watch, processes=os.cpu_count() or 1)
        fitting = steps_in(minutes, self._videos, self.out, config)
        out.print(f"{fitting} steps take about {minutes:g} minutes here")
        fewest = fewest_steps(config.batch)
        if fitting < fewest:
            err.print(f"note: that is too few to learn anything; {fewest} steps would be a beginning")
        return dataclasses.replace(config, steps=fitting)

    def _print(self, done: trainer.Trained) -> None:
        if done.weights is None:
            words = shlex.join(["timecycle", "train", self.videos, "-o", str(self.out), "--resume"])
            out.print(f"stopped after {done.steps} steps, all saved; to go on: {words}")
            return
        if done.after is None:
            out.print(f"this run is finished: {done.steps:,} of {done.steps:,} steps")
        else:
            for name, value in done.after.figures().items():
                was = f" (before: {done.before.figures()[name]:.3f})" if done.before is not None else ""
                out.print(f"  {name:<16} {value:.3f}{was}")
            said = verdict(done.before, done.after, steps=done.steps, batch=done.batch)
            if said:
                out.print(said)
        out.print(f"weights: {done.weights}; curves: {self.out / 'journal.jsonl'}; pictures: {self.out / 'pictures'}")


def _refuse_several_processes() -> None:
    """Each would time its own steps, and they would not end together."""
    if crew_here().world > 1:
        raise SettingsError("--minutes was given to several processes", remedy="give the number of steps with --steps")


def _unseen(_: int, __: int) -> None:
    """Show nothing."""


def _unsaid(_: str) -> None:
    """Say nothing: what examining finds is said when the run itself begins, and by one process."""


def _shown_on(bar: Bar) -> Callable[[trainer.Progress], None]:
    def show(now: trainer.Progress) -> None:
        waiting = f" · {now.data_share:.0%} waiting" if now.data_share > _MUCH_WAITING else ""
        bar(now.step, now.steps, f"loss {now.losses['total']:.3f}{waiting}")

    return show
