"""The training loop. A run can be killed at any moment and resumed to the same weights.

RUN/index.jsonl      the videos when the run began,       RUN/journal.jsonl   losses and figures of every step
                     or RUN/shards.jsonl of a pack
RUN/checkpoints/     the state to resume from             RUN/pictures/       correspondences on held-out clips
RUN/train.json       settings, commit, machine            RUN/weights.*       the averaged (EMA) weights
"""

import copy
import dataclasses
import logging
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from timecycle.data.augment.clips import ClipReader
from timecycle.data.corpus.frame_cache import FrameCache
from timecycle.data.corpus.loader import Loader
from timecycle.device import Device, host_values, pick_device, pinned
from timecycle.errors import SettingsError
from timecycle.files import clear_unfinished, lock, make_folder
from timecycle.model.resnet import ResNet, random_resnet
from timecycle.model.weights import Card, save_weights
from timecycle.objectives import ObjectiveResult
from timecycle.training.corpus import (
    Corpus,
    Examples,
    VideoSource,
    check_videos,
    compare_videos,
    count_videos,
    index_videos,
    read_corpus,
)
from timecycle.training.distributed import (
    ProcessGroup,
    any_process,
    barrier,
    initialised_group,
    stop_signals,
    with_averaged_gradients,
)
from timecycle.training.health import alarms
from timecycle.training.heldout import HeldOutClips, HeldOutScores, draw_matches, read_held_out
from timecycle.training.record import (
    NO_LICENCE,
    Journal,
    check_record,
    clear_run,
    load_newest,
    read_licence,
    read_settings,
    read_start,
    read_start_card,
    refuse_used,
    save_checkpoint,
    write_record,
)
from timecycle.training.settings import TrainConfig, pick_precision
from timecycle.training.step import State

log = logging.getLogger("timecycle")

_MAX_SKIPPED = 20  # steps in a row without a finite gradient
_WEIGHTS = "weights.safetensors"
_WARMUP, _TIMED = 2, 6  # steps: the first ones allocate memory and fill queues


@dataclass(frozen=True)
class Progress:
    """The progress of a run, for display."""

    step: int
    steps: int
    losses: dict[str, float]
    data_share: float  # of the time so far that was spent waiting for clips


def _ignore(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions that are called during a run."""

    step: Callable[[Progress], None] = _ignore  # after every step
    probed: Callable[[int, int], None] = _ignore  # after every probed video: number, total
    info: Callable[[str], None] = log.info
    warning: Callable[[str], None] = log.warning


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run; without weights it was stopped before its end and can be resumed."""

    folder: Path
    weights: Path | None
    steps: int
    before: HeldOutScores | None
    after: HeldOutScores | None
    batch: int = 0  # clips per step
    interrupted: bool = False  # by Ctrl-C, after saving; after SIGTERM, as schedulers send it, `weights` is None too


def train(  # noqa: PLR0913  a user may set many things
    videos: VideoSource | Path,
    folder: Path,
    config: TrainConfig,
    *,
    start: ResNet | None = None,
    start_card: Card | None = None,
    resume: bool = False,
    overwrite: bool = False,
    licence: str = "",
    callbacks: Callbacks | None = None,
    processes: int = 0,
    device: Device = "auto",
) -> TrainingResult:
    """Train an encoder on the videos below a folder or on a pack, from random weights or from `start`.

    Up to `processes` processes probe the videos first; a script that asks for them must be importable. The card of the
    weights states `licence`, and the licence and training data of the initial weights from `start_card`. A run may be
    resumed on another `device`, with the precision that it began with.
    """
    callbacks = callbacks or Callbacks()
    videos = VideoSource(location=str(videos)) if isinstance(videos, Path) else videos
    if resume:
        start = start or read_start(folder)
        licence = licence or read_licence(folder)
    if start is not None:
        config = dataclasses.replace(config, encoder=start.config)  # this is the encoder that is trained
    with ExitStack() as stack:
        group = stack.enter_context(initialised_group(device))
        _check_device(config, group)
        if group.is_main:
            if not resume:
                check_videos(videos)
            stack.enter_context(lock(make_folder(folder)))
            if resume:
                config = _resumed_config(folder, config, start)
                compare_videos(videos, folder, callbacks.warning)
            else:
                config = dataclasses.replace(config, precision=pick_precision(config.precision, group.device))
                _prepare(videos, folder, config, overwrite=overwrite, callbacks=callbacks, processes=processes)
        barrier(group)  # until the index is written
        corpus = read_corpus(videos, folder, config)
        cache = FrameCache(config.frame_cache_gb * 1e9) if config.frame_cache_gb else None
        reader = ClipReader(corpus.training, config.clips, seed=config.seed, cache=cache)
        held_out = None
        if group.is_main:
            callbacks.info(corpus.summary)
            held_out = _read_held_out(corpus, config)
            if not resume:
                write_record(folder, config, start, licence=licence or NO_LICENCE, start_card=start_card)
        barrier(group)  # until the record is written, which sets the precision of all processes
        config = dataclasses.replace(config, precision=read_settings(folder)["precision"])
        encoder = random_resnet(config.encoder, seed=config.seed) if start is None else copy.deepcopy(start)
        run = _Run(
            folder=folder,
            config=config,
            licence=licence or NO_LICENCE,
            group=group,
            state=State.fresh(encoder, config, group.device),
            examples=Examples(reader, config),
            held_out=held_out,
            callbacks=callbacks,
        )
        return run.train(compare=start is not None)


def prepare(
    videos: VideoSource,
    folder: Path,
    config: TrainConfig,
    *,
    overwrite: bool,
    callbacks: Callbacks,
    processes: int = 0,
) -> None:
    """Index the videos for a new run; write nothing if there are no videos."""
    refuse_used(folder, overwrite=overwrite)
    check_videos(videos)
    with lock(make_folder(folder)):
        _prepare(videos, folder, config, overwrite=overwrite, callbacks=callbacks, processes=processes)


def _prepare(
    videos: VideoSource, folder: Path, config: TrainConfig, *, overwrite: bool, callbacks: Callbacks, processes: int
) -> None:
    refuse_used(folder, overwrite=overwrite)
    _clear_partial_files(folder)
    clear_run(folder)
    index_videos(videos, folder, config, processes=processes, progress=callbacks.probed, warn=callbacks.warning)


def _resumed_config(folder: Path, config: TrainConfig, start: ResNet | None) -> TrainConfig:
    """Check the settings of a resumed run, which keeps the precision that was chosen when it began."""
    _clear_partial_files(folder)
    if config.precision == "auto":
        config = dataclasses.replace(config, precision=read_settings(folder)["precision"])
    check_record(folder, config, start)
    return config


def _clear_partial_files(folder: Path) -> None:
    for written in (folder, folder / "pictures"):
        clear_unfinished(written)


@dataclass(kw_only=True, eq=False)
class _Run:
    """The part of a run in one process."""

    folder: Path
    config: TrainConfig
    licence: str
    group: ProcessGroup
    state: State
    examples: Examples
    held_out: HeldOutClips | None
    callbacks: Callbacks

    def train(self, *, compare: bool) -> TrainingResult:
        before = self.held_out.score(self.state.ema) if compare and self.held_out else None
        saved = load_newest(self.folder / "checkpoints")
        if saved is not None:
            self.state.restore(saved)
        model = with_averaged_gradients(self.state.learner, self.group, some_unused=self.config.localizer_steps > 0)
        journal = Journal(self.folder, resume_at=self.state.step) if self.group.is_main else None
        began = time.monotonic()
        micro_batches = self.examples.micro_batches(
            range(self.state.step, self.config.steps), self.group.rank, self.group.world_size
        )
        with (
            stop_signals(self.callbacks.info) as signals,
            Loader(
                self.examples,
                micro_batches,
                workers=self.config.workers,
                finish=partial(pinned, device=self.group.device),
            ) as loader,
        ):
            stopped = False
            while self.state.step < self.config.steps and not stopped:
                step_began = time.monotonic()
                outcome = self.state.advance(model, islice(loader, self.config.accumulate))
                self._check_gradients()
                if journal is not None:
                    now = time.monotonic()
                    self._report(journal, outcome, now - step_began, loader.seconds_waited / (now - began))
                if self._due(self.config.validate_every):
                    barrier(self.group)  # until the main process has validated, which may take longer than a step
                stopped = any_process(bool(signals), self.group)
                if stopped or self._due(self.config.checkpoint_every):
                    self._save()
        if journal is not None:
            journal.close()
        interrupted = stopped and signals[-1:] == [signal.SIGINT]
        return dataclasses.replace(self._finish(before), batch=self.config.batch, interrupted=interrupted)

    def _report(self, journal: Journal, outcome: ObjectiveResult, seconds: float, data_share: float) -> None:
        named = {"total": outcome.total, **outcome.losses, **outcome.diagnostics}
        line: dict[str, Any] = dict(zip(named, host_values(torch.stack(list(named.values())), "report"), strict=True))
        losses, figures = ({name: line[name] for name in part} for part in (outcome.losses, outcome.diagnostics))
        if self._due(self.config.validate_every) and self.held_out is not None:
            scores = self.held_out.score(self.state.ema).figures()
            line |= {f"held_out_{name}": value for name, value in scores.items()}
            line["alarms"] = list(alarms({**journal.recent_mean(figures), **scores}).values())
            for alarm in line["alarms"]:
                self.callbacks.warning(f"step {self.state.step}: {alarm}")
            draw_matches(self.held_out, self.state.ema, self.folder / "pictures" / f"{self.state.step:08d}.png")
        journal.write(self.state.step, line | {"seconds": round(seconds, 3), "data_share": round(data_share, 4)})
        self.callbacks.step(
            Progress(self.state.step, self.config.steps, {"total": line["total"], **losses}, data_share)
        )

    def _due(self, every: int) -> bool:
        return self.state.step % every == 0 or self.state.step == self.config.steps

    def _save(self) -> None:
        if self.group.is_main and not self.state.skipped:
            save_checkpoint(self.folder / "checkpoints", self.state.step, self.state.snapshot())

    def _check_gradients(self) -> None:
        if self.state.skipped >= _MAX_SKIPPED:
            raise SettingsError(
                f"the gradients of {_MAX_SKIPPED} steps in a row, up to {self.state.step}, were not finite",
                remedy="lower optimizer.learning_rate or raise the temperature; the last checkpoint can still be used",
            )

    def _finish(self, before: HeldOutScores | None) -> TrainingResult:
        steps = self.state.step
        if not self.group.is_main or self.held_out is None or steps < self.config.steps:
            return TrainingResult(self.folder, None, steps, before, None)
        after = self.held_out.score(self.state.ema)
        scores = {name: round(value, 4) for name, value in after.figures().items()}
        videos = count_videos(len(self.examples.reader)).replace(" ", " unlabelled ")
        start = read_start_card(self.folder)
        trained_on = f"{videos}, {steps} step{'' if steps == 1 else 's'} of {self.config.objective}"
        card = Card(
            encoder=self.state.ema.config,
            trained_on=trained_on if start is None else f"{trained_on}, from weights trained on {start.trained_on}",
            licence=self.licence if start is None else f"{self.licence}; the initial weights: {start.licence}",
            notes="the scores need no labels and are of held-out clips",
            scores=scores,
        )
        save_weights(self.folder / _WEIGHTS, self.state.ema, card)
        return TrainingResult(self.folder, self.folder / _WEIGHTS, steps, before, after)


def _read_held_out(corpus: Corpus, config: TrainConfig) -> HeldOutClips:
    side_px = config.view_px if config.objective == "walks" else config.clips.crop_px
    reader = ClipReader(corpus.held_out, dataclasses.replace(config.clips, flip=False), seed=0)
    return read_held_out(reader, config.held_out_clips, side_px=side_px, trained=config.trained)


def _check_device(config: TrainConfig, group: ProcessGroup) -> None:
    """Refuse settings that the device does not have, instead of computing something else."""
    if config.precision == "fp16" and group.device.type != "cuda":
        raise SettingsError(
            f"precision is fp16, which is trained with on CUDA devices only, and this is {group.device.type}",
            remedy="use precision=bf16 or fp32",
        )
    if config.batch_statistics == "all" and group.device.type != "cuda" and group.world_size > 1:
        raise SettingsError(
            f"batch_statistics=all is computed between CUDA devices only, and this is {group.device.type}",
            remedy="use batch_statistics=process or frozen",
        )


def steps_in(minutes: float, videos: VideoSource, folder: Path, config: TrainConfig, device: Device = "auto") -> int:
    """Return the number of steps that take about so many minutes on indexed videos, by timing a few of them."""
    seconds, _ = time_steps(videos, folder, config, device=device)
    return max(round(minutes * 60 / seconds), 1)


def time_steps(
    videos: VideoSource, folder: Path, config: TrainConfig, *, timed: int = _TIMED, device: Device = "auto"
) -> tuple[float, float]:
    """Time some steps on real clips and discard their result.

    Return the seconds of a step, and the share of them that is spent waiting for clips.
    """
    corpus = read_corpus(videos, folder, config)
    reader = ClipReader(corpus.training, config.clips, seed=config.seed)
    examples = Examples(reader, config)
    state = State.fresh(random_resnet(config.encoder, seed=config.seed), config, pick_device(device))
    with Loader(examples, examples.micro_batches(range(_WARMUP + timed)), workers=config.workers) as loader:
        began, waited = time.monotonic(), 0.0
        for step in range(_WARMUP + timed):
            if step == _WARMUP:
                began, waited = time.monotonic(), loader.seconds_waited
            state.advance(state.learner, islice(loader, config.accumulate))
        seconds = time.monotonic() - began
        return seconds / timed, (loader.seconds_waited - waited) / seconds
