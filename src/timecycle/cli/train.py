"""`timecycle train`"""

import logging
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.learning import train
from timecycle.cli.console import ExitCode, Result, note, say
from timecycle.cli.options import Device, Out
from timecycle.concurrency import usable_cores
from timecycle.config import preset_names, train_config
from timecycle.training.corpus import DEFAULT_CACHE_GB
from timecycle.training.distributed import process_group
from timecycle.training.heldout import recommendation
from timecycle.training.record import has_record
from timecycle.training.settings import TrainConfig
from timecycle.training.trainer import TrainingResult

log = logging.getLogger("timecycle")

_PRESETS, _PRESET = ", ".join(preset_names("train")), "small"


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
    preset: Annotated[str | None, arg(help=f"settings: {_PRESETS}; by default {_PRESET}")] = None
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
        group = process_group()
        try:
            done = train(
                self.videos,
                self.out,
                config=self._config(),
                start=self.start,
                steps=self.steps,
                minutes=self.minutes,
                licence=self.licence,
                cache=self.cache,
                cache_gb=self.cache_gb,
                processes=usable_cores(),
                device=self.device,
                resume=self.resume,
                overwrite=self.overwrite,
                progress=group.is_main,
                say=note,
            )
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

    def _config(self) -> TrainConfig | None:
        """Return the settings; None for those of the run that is resumed."""
        if self.resume and self.preset is None and not self.set:
            return None
        config = train_config(self.preset or _PRESET, self.set)
        log.info("preset %s with %s: %s", self.preset or _PRESET, " ".join(self.set) or "no changes", config)
        return config

    def _print(self, done: TrainingResult) -> None:
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
