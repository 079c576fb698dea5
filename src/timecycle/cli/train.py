"""`timecycle train`"""

import dataclasses
import logging
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.learning import refuse_other_settings, show_steps
from timecycle.cli.console import Bar, ExitCode, Result, note, progress_bars, say
from timecycle.cli.options import Device, Out
from timecycle.concurrency import usable_cores
from timecycle.config import build, preset_names, train_config
from timecycle.errors import SettingsError
from timecycle.model.weights import find_bundled, load_weights, read_card
from timecycle.training import trainer
from timecycle.training.corpus import DEFAULT_CACHE_GB, VideoSource
from timecycle.training.distributed import ProcessGroup, process_group
from timecycle.training.heldout import fewest_steps, recommendation
from timecycle.training.record import finished_weights, has_record, read_settings
from timecycle.training.settings import TrainConfig
from timecycle.training.trainer import steps_in

log = logging.getLogger("timecycle")

_PRESETS = ", ".join(preset_names("train"))


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train an encoder on raw video, without labels.

    For example: timecycle train videos/ -o run --minutes 30

    then: timecycle propagate dog.mp4 first.png --encoder run/weights.safetensors -o out

    Ctrl-C saves. Resume an interrupted run with: timecycle train videos/ -o run --resume
    """

    videos: Annotated[
        Positional[str],
        arg(
            metavar="VIDEOS",
            help="a folder of videos, searched recursively, one video, or a pack such as s3://bucket/corpus",
        ),
    ]
    out: Out
    preset: Annotated[str, arg(help=f"settings: {_PRESETS}")] = "small"
    set: Annotated[
        tuple[str, ...],
        arg(
            metavar="NAME=VALUE ...",
            help="change settings of the preset, such as optimizer.learning_rate=1e-3 walks.dropout=0",
        ),
    ] = ()
    start: Annotated[
        Path | None,
        arg(name="from", metavar="WEIGHTS", help="start from these weights, and report whether training helped"),
    ] = None
    steps: Annotated[int | None, arg(help="number of steps; by default the preset's")] = None
    minutes: Annotated[float | None, arg(help="train for about so long: sets the number of steps")] = None
    licence: Annotated[
        str,
        arg(aliases=["--license"], metavar="NAME", help="licence of the weights, for their card, such as CC-BY-4.0"),
    ] = ""
    cache: Annotated[Path | None, arg(help="folder for cached shards of a pack; by default in the user's cache")] = None
    cache_gb: Annotated[float, arg(help="size limit of this cache in gigabytes")] = DEFAULT_CACHE_GB
    device: Device = "auto"
    resume: Annotated[bool, arg(help="resume the run in the folder, with its own settings")] = False
    overwrite: Annotated[bool, arg(help="replace an earlier run")] = False

    def __call__(self) -> Result:
        self._check_amounts()
        group = process_group()
        try:
            with progress_bars(shown=group.is_main) as bar:
                done = self._train(bar, group)
        except KeyboardInterrupt:
            if has_record(self.out):
                raise
            raise KeyboardInterrupt("run the same command again: probed videos are kept") from None
        code = ExitCode.INTERRUPTED if done.interrupted else ExitCode.DONE
        if not group.is_main:
            raise SystemExit(code)  # one process prints the result
        self._print(done)
        return {
            "folder": self.out,
            "steps": done.steps,
            "interrupted": done.interrupted,
            "weights": done.weights,
            "scores": None if done.after is None else done.after.figures(),
            "scores_before": None if done.before is None else done.before.figures(),
            "journal": self.out / "journal.jsonl",
            "exit_code": code,
        }

    def _train(self, bar: Callable[[str], Bar], group: ProcessGroup) -> trainer.TrainingResult:
        if self.resume:
            config = self._resumed_config()
            weights = finished_weights(self.out)
            if weights is not None:
                return trainer.TrainingResult(self.out, weights, config.steps, None, None)
        probing = None if self.resume else bar("probing")  # a resumed run keeps its index
        callbacks = trainer.Callbacks(
            step=show_steps(bar("training")),
            probed=probing or _ignore,
            info=note if group.is_main else _ignore,
            warning=note,
        )
        if not self.resume:
            config = self._config()
        start_path = find_bundled(str(self.start)) or self.start if self.start else None
        start = load_weights(start_path) if start_path else None
        start_card = read_card(start_path) if start_path else None
        if start is not None:
            config = dataclasses.replace(config, encoder=start.config)
        if start_card is not None and self.licence not in ("", start_card.licence):
            callbacks.warning(f"the initial weights are under {start_card.licence}, whose terms still apply to them")
        if self.minutes is not None and not self.resume:
            # Unusable videos are reported when the run itself begins.
            config = self._config_for_minutes(self.minutes, config, dataclasses.replace(callbacks, warning=_ignore))
        return trainer.train(
            self._videos,
            self.out,
            config,
            start=start,
            start_card=start_card,
            resume=self.resume,
            overwrite=self.overwrite,
            licence=self.licence,
            callbacks=callbacks,
            processes=usable_cores(),
            device=self.device,
        )

    @property
    def _videos(self) -> VideoSource:
        return VideoSource(location=self.videos, cache=self.cache, cache_gb=self.cache_gb)

    def _check_amounts(self) -> None:
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise SettingsError(
                f"--minutes is {self.minutes:g}", remedy="give more than 0, or leave it out to use the preset's steps"
            )
        if self.steps is not None and self.minutes is not None:
            raise SettingsError("--steps and --minutes were both given", remedy="leave one of them out")

    def _config(self) -> TrainConfig:
        steps = (f"steps={self.steps}",) if self.steps is not None else ()
        config = train_config(self.preset, (*self.set, *steps))
        log.info("preset %s with %s: %s", self.preset, " ".join((*self.set, *steps)) or "no changes", config)
        return config

    def _resumed_config(self) -> TrainConfig:
        """Return the settings of the resumed run; settings on the command line must equal them."""
        recorded = build(TrainConfig, read_settings(self.out))
        if self.steps is None and not self.set:
            return recorded
        remedy = "leave --preset, --set and --steps out"
        refuse_other_settings(self.out, recorded, self._config(), self.steps, remedy=remedy)
        return recorded

    def _config_for_minutes(self, minutes: float, config: TrainConfig, callbacks: trainer.Callbacks) -> TrainConfig:
        """Set the number of steps that take about so many minutes."""
        _refuse_several_processes()
        note("timing a few steps first, to compute how many fit")
        trainer.prepare(
            self._videos, self.out, config, overwrite=self.overwrite, callbacks=callbacks, processes=usable_cores()
        )
        fitting = steps_in(minutes, self._videos, self.out, config, self.device)
        say(f"{fitting} steps take about {minutes:g} minutes here")
        fewest = fewest_steps(config.batch)
        if fitting < fewest:
            note(f"note: that is too few to learn anything; train for {fewest} steps or more")
        return dataclasses.replace(config, steps=fitting)

    def _print(self, done: trainer.TrainingResult) -> None:
        if done.weights is None:
            command = shlex.join(["timecycle", "train", self.videos, "-o", str(self.out), "--resume"])
            say(f"stopped after {done.steps} steps, all saved; to resume: {command}")
            return
        if done.after is None:
            say(f"this run is finished: {done.steps:,} of {done.steps:,} steps")
        else:
            for name, value in done.after.figures().items():
                before = f" (before: {done.before.figures()[name]:.3f})" if done.before is not None else ""
                say(f"  {name:<16} {value:.3f}{before}")
            advice = recommendation(done.before, done.after, steps=done.steps, batch=done.batch)
            if advice:
                say(advice)
        say(f"weights: {done.weights}; curves: {self.out / 'journal.jsonl'}; pictures: {self.out / 'pictures'}")


def _refuse_several_processes() -> None:
    """Refuse --minutes for several processes: each would time its own steps, and they would stop at different ones."""
    if process_group().world_size > 1:
        raise SettingsError("--minutes was given to several processes", remedy="give the number of steps with --steps")


def _ignore(*_: object) -> None:
    pass
