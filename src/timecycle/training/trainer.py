"""The loop: clips in, weights out. A run can be killed at any moment and goes on to the same weights.

RUN/index.jsonl      the videos when the run began        RUN/journal.jsonl   every step's losses and figures
RUN/checkpoints/     everything needed to go on           RUN/pictures/       correspondences on held-out clips
RUN/train.json       settings, commit, machine            RUN/weights.*       the averaged weights, for carrying labels
"""

import copy
import dataclasses
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from timecycle.data.clips import ClipReader
from timecycle.data.loader import Loader
from timecycle.errors import SettingsError
from timecycle.files import clear_parts, lock, make_folder
from timecycle.model.objective import Outcome
from timecycle.model.resnet import ResNet, random_resnet
from timecycle.model.weights import Card, save_weights
from timecycle.training.checkpoint import load_newest, save_checkpoint
from timecycle.training.corpus import (
    Corpus,
    Videos,
    check_videos,
    compare_videos,
    count_videos,
    examine_videos,
    read_corpus,
)
from timecycle.training.distributed import Crew, any_of, joined, shared, wait_for_all
from timecycle.training.examples import Examples
from timecycle.training.health import alarms
from timecycle.training.heldout import HeldOut, Verdict, draw_matches, read_held_out
from timecycle.training.journal import Journal
from timecycle.training.record import (
    NO_LICENCE,
    check_record,
    clear_run,
    read_licence,
    read_settings,
    read_start,
    read_start_card,
    refuse_used,
    write_record,
)
from timecycle.training.settings import TrainConfig, pick_precision
from timecycle.training.state import State

log = logging.getLogger("timecycle")

_MOST_SKIPPED = 20  # steps in a row without a finite gradient
_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Progress:
    """Where a run is, for whoever shows it."""

    step: int
    steps: int
    losses: dict[str, float]
    data_share: float  # of the time so far, spent waiting for clips


def _ignore(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Whoever follows a run is told of every step, of every video examined, what to know and what to worry about."""

    step: Callable[[Progress], None] = _ignore
    video: Callable[[int, int], None] = _ignore
    note: Callable[[str], None] = log.info
    worry: Callable[[str], None] = log.warning


@dataclass(frozen=True)
class Trained:
    """What a run left behind; without weights it was stopped before its end and can be resumed."""

    folder: Path
    weights: Path | None
    steps: int
    before: Verdict | None
    after: Verdict | None
    batch: int = 0  # clips a step
    interrupted: bool = False  # by Ctrl-C: every step was saved


def train(  # noqa: PLR0913  what a user may say is many things
    videos: Videos | Path,
    folder: Path,
    config: TrainConfig,
    *,
    start: ResNet | None = None,
    start_card: Card | None = None,
    resume: bool = False,
    overwrite: bool = False,
    licence: str = "",
    watch: Watch | None = None,
    processes: int = 0,
) -> Trained:
    """Learn an encoder from the videos below a folder or from a pack, from random weights or from `start`.

    So many `processes` examine the videos first; a script that asks for them must be importable. `licence` is written
    on the card of the weights, with what `start_card` says of the weights that the run starts from.
    """
    watch = watch or Watch()
    videos = Videos(place=str(videos)) if isinstance(videos, Path) else videos
    if resume:
        start = start or read_start(folder)
        licence = licence or read_licence(folder)
    if start is not None:
        config = dataclasses.replace(config, encoder=start.config)  # it is this encoder that learns
    with ExitStack() as stack:
        crew = stack.enter_context(joined())
        if crew.leads:
            if not resume:
                check_videos(videos)
            stack.enter_context(lock(make_folder(folder)))
            if resume:
                config = _resumed(folder, config, start)
                compare_videos(videos, folder, watch.worry)
            else:
                config = dataclasses.replace(config, precision=pick_precision(config.precision))
                _prepare(videos, folder, overwrite=overwrite, watch=watch, processes=processes)
        wait_for_all(crew)  # until the index is there
        corpus = read_corpus(videos, folder, config)
        reader = ClipReader(corpus.footage, corpus.training.entries, config.clips, seed=config.seed)
        held_out = None
        if crew.leads:
            watch.note(corpus.summary)
            held_out = _read_held_out(corpus, config)
            if not resume:
                write_record(folder, config, start, licence=licence or NO_LICENCE, start_card=start_card)
        wait_for_all(crew)  # until the record is there, which says what precision all processes compute in
        config = dataclasses.replace(config, precision=read_settings(folder)["precision"])
        encoder = random_resnet(config.encoder, seed=config.seed) if start is None else copy.deepcopy(start)
        run = _Run(
            folder=folder,
            config=config,
            licence=licence or NO_LICENCE,
            crew=crew,
            state=State.fresh(encoder, config),
            examples=Examples(reader, config),
            held_out=held_out,
            watch=watch,
        )
        return run.train(compare=start is not None)


def prepare(videos: Videos, folder: Path, *, overwrite: bool, watch: Watch, processes: int = 0) -> None:
    """Examine the videos for a new run; a folder without videos leaves no trace."""
    refuse_used(folder, overwrite=overwrite)
    check_videos(videos)
    with lock(make_folder(folder)):
        _prepare(videos, folder, overwrite=overwrite, watch=watch, processes=processes)


def _prepare(videos: Videos, folder: Path, *, overwrite: bool, watch: Watch, processes: int) -> None:
    refuse_used(folder, overwrite=overwrite)
    for place in (folder, folder / "pictures"):
        clear_parts(place)
    clear_run(folder)
    examine_videos(videos, folder, processes=processes, show=watch.video, warn=watch.worry)


def _resumed(folder: Path, config: TrainConfig, start: ResNet | None) -> TrainConfig:
    """The settings of the run that is resumed; the precision that was picked when it began stays."""
    for place in (folder, folder / "pictures"):
        clear_parts(place)
    if config.precision == "auto":
        config = dataclasses.replace(config, precision=read_settings(folder)["precision"])
    check_record(folder, config, start)
    return config


@dataclass(kw_only=True, eq=False)
class _Run:
    """One process's part of a run."""

    folder: Path
    config: TrainConfig
    licence: str
    crew: Crew
    state: State
    examples: Examples
    held_out: HeldOut | None
    watch: Watch

    def train(self, *, compare: bool) -> Trained:
        before = self.held_out.judge(self.state.average.model) if compare and self.held_out else None
        saved = load_newest(self.folder / "checkpoints")
        if saved is not None:
            self.state.restore(saved)
        model = shared(self.state.learner, self.crew, some_rest=self.config.localizer_steps > 0)
        journal = Journal(self.folder, resume_at=self.state.step) if self.crew.leads else None
        began = time.monotonic()
        parts = self.examples.parts(range(self.state.step, self.config.steps), self.crew.rank, self.crew.world)
        with _asked_to_stop(self.watch) as asked, Loader(self.examples, parts, workers=self.config.workers) as loader:
            stopped = False
            while self.state.step < self.config.steps and not stopped:
                step_began = time.monotonic()
                outcome = self.state.advance(model, islice(loader, self.config.accumulate))
                self._refuse_nonsense()
                if journal is not None:
                    now = time.monotonic()
                    self._tell(journal, outcome, now - step_began, loader.seconds_waited / (now - began))
                stopped = any_of(asked.signal is not None, self.crew)
                if stopped or self._due(self.config.checkpoint_every):
                    self._save()
        if journal is not None:
            journal.close()
        interrupted = stopped and asked.signal == signal.SIGINT
        return dataclasses.replace(self._finish(before), batch=self.config.batch, interrupted=interrupted)

    def _tell(self, journal: Journal, outcome: Outcome, seconds: float, data_share: float) -> None:
        losses = {name: float(value) for name, value in outcome.losses.items()}
        figures = {name: float(value) for name, value in outcome.diagnostics.items()}
        line: dict[str, Any] = {"total": float(outcome.total), **losses, **figures}
        if self._due(self.config.validate_every) and self.held_out is not None:
            verdict = self.held_out.judge(self.state.average.model).figures()
            line |= {f"held_out_{name}": value for name, value in verdict.items()}
            worries = alarms({**journal.lately(figures), **verdict})
            line["alarms"] = [str(alarm) for alarm in worries]
            for alarm in worries:
                self.watch.worry(f"step {self.state.step}: {alarm}")
            draw_matches(
                self.held_out, self.state.average.model, self.folder / "pictures" / f"{self.state.step:08d}.png"
            )
        journal.write(self.state.step, line | {"seconds": round(seconds, 3), "data_share": round(data_share, 4)})
        self.watch.step(Progress(self.state.step, self.config.steps, {"total": line["total"], **losses}, data_share))

    def _due(self, every: int) -> bool:
        return self.state.step % every == 0 or self.state.step == self.config.steps

    def _save(self) -> None:
        if self.crew.leads and not self.state.skipped:
            save_checkpoint(self.folder / "checkpoints", self.state.step, self.state.snapshot())

    def _refuse_nonsense(self) -> None:
        if self.state.skipped >= _MOST_SKIPPED:
            raise SettingsError(
                f"the gradients of {_MOST_SKIPPED} steps in a row, up to {self.state.step}, were not finite",
                remedy="lower optimizer.rate or raise the temperature; the last checkpoint is still sound",
            )

    def _finish(self, before: Verdict | None) -> Trained:
        steps = self.state.step
        if not self.crew.leads or self.held_out is None or steps < self.config.steps:
            return Trained(self.folder, None, steps, before, None)
        after = self.held_out.judge(self.state.average.model)
        scores = {name: round(value, 4) for name, value in after.figures().items()}
        videos = count_videos(len(self.examples.reader)).replace(" ", " unlabelled ")
        began = read_start_card(self.folder)
        trained_on = f"{videos}, {steps} step{'' if steps == 1 else 's'} of {self.config.objective}"
        card = Card(
            encoder=self.state.average.model.config,
            trained_on=trained_on if began is None else f"{trained_on}, from weights trained on {began.trained_on}",
            licence=self.licence if began is None else f"{self.licence}; the weights it began with: {began.licence}",
            notes="the scores need no labels and are of clips that were not trained on",
            scores=scores,
        )
        save_weights(self.folder / _WEIGHTS, self.state.average.model, card)
        return Trained(self.folder, self.folder / _WEIGHTS, steps, before, after)


def _read_held_out(corpus: Corpus, config: TrainConfig) -> HeldOut:
    side_px = config.view_px if config.objective == "walks" else config.clips.crop_px
    reader = ClipReader(corpus.footage, corpus.held_out.entries, dataclasses.replace(config.clips, flip=False), seed=0)
    return read_held_out(reader, config.held_out_clips, side_px=side_px)


@dataclass
class _Asked:
    """Whether the run was asked to stop, and by which signal."""

    signal: int | None = None


@contextmanager
def _asked_to_stop(watch: Watch) -> Iterator[_Asked]:
    """Notice Ctrl-C and the system's wish to end the process: the loop then saves and leaves at the end of its step."""
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def note(number: int, _: FrameType | None) -> None:
        asked.signal = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, usual[signal.SIGINT])  # a second one ends the run at once
            watch.note("stopping after this step, which is saved; Ctrl-C again stops at once and loses it")

    # Whoever started the process may have made it deaf to Ctrl-C, as a shell does with what runs in the background.
    heard = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
    usual = {number: signal.getsignal(number) for number in heard}
    for number in heard:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
