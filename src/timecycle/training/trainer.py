"""The loop: clips in, weights out. A run can be killed at any moment and goes on to the same weights.

RUN/index.jsonl      the videos, examined once            RUN/journal.jsonl   every step's losses and figures
RUN/checkpoints/     everything needed to go on           RUN/pictures/       correspondences on held-out clips
RUN/train.json       settings, commit, machine            RUN/weights.*       the averaged weights, for carrying labels
"""

import dataclasses
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from timecycle.data.clips import ClipReader
from timecycle.data.loader import Loader
from timecycle.errors import OutputError, SettingsError
from timecycle.files import clear_parts, lock, make_folder, write_text
from timecycle.model.objective import Outcome
from timecycle.model.resnet import ResNet, random_resnet
from timecycle.model.weights import Card, hash_state, save_weights
from timecycle.provenance import commit, machine
from timecycle.training.checkpoint import load_newest, save_checkpoint
from timecycle.training.corpus import Corpus, Videos, examine_videos, read_corpus
from timecycle.training.distributed import Crew, any_of, joined, shared, wait_for_all
from timecycle.training.examples import Examples
from timecycle.training.health import alarms
from timecycle.training.heldout import HeldOut, Verdict, draw_matches, read_held_out
from timecycle.training.journal import Journal
from timecycle.training.settings import TrainConfig
from timecycle.training.state import State
from timecycle.version import __version__

log = logging.getLogger("timecycle")

_MOST_SKIPPED = 20  # steps in a row without a finite gradient
_RECORD = "train.json"
_GAIN = 0.01  # of an accuracy: less is noise
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
    """Whoever follows a run is told of every step, of every video examined, and of what to worry about."""

    step: Callable[[Progress], None] = _ignore
    video: Callable[[int, int], None] = _ignore
    worry: Callable[[str], None] = log.warning


@dataclass(frozen=True)
class Trained:
    """What a run left behind; without weights it was stopped before its end and can be resumed."""

    folder: Path
    weights: Path | None
    steps: int
    before: Verdict | None
    after: Verdict | None


def train(
    videos: Videos | Path,
    folder: Path,
    config: TrainConfig,
    *,
    start: ResNet | None = None,
    resume: bool = False,
    overwrite: bool = False,
    watch: Watch | None = None,
    processes: int = 0,
) -> Trained:
    """Learn an encoder from the videos below a folder or from a pack, from random weights or from `start`.

    So many `processes` examine the videos first; a script that asks for them must be importable.
    """
    watch = watch or Watch()
    videos = Videos(place=str(videos)) if isinstance(videos, Path) else videos
    with ExitStack() as stack:
        crew = stack.enter_context(joined())
        make_folder(folder)
        if crew.leads:
            stack.enter_context(lock(folder))
            for place in (folder, folder / "pictures"):
                clear_parts(place)
            _open_record(folder, config, start, resume=resume, overwrite=overwrite)
            examine_videos(videos, folder, processes=processes, show=watch.video, warn=watch.worry)
        wait_for_all(crew)
        corpus = read_corpus(videos, folder, config)
        reader = ClipReader(corpus.footage, corpus.training.entries, config.clips, seed=config.seed)
        run = _Run(
            folder=folder,
            config=config,
            crew=crew,
            state=State.fresh(start or random_resnet(config.encoder, seed=config.seed), config),
            examples=Examples(reader, config),
            held_out=_read_held_out(corpus, config) if crew.leads else None,
            watch=watch,
        )
        return run.train(compare=start is not None)


@dataclass(kw_only=True, eq=False)
class _Run:
    """One process's part of a run."""

    folder: Path
    config: TrainConfig
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
        with _asked_to_stop() as asked, Loader(self.examples, parts, workers=self.config.workers) as loader:
            stopped = False
            while self.state.step < self.config.steps and not stopped:
                step_began = time.monotonic()
                outcome = self.state.advance(model, islice(loader, self.config.accumulate))
                self._refuse_nonsense()
                if journal is not None:
                    now = time.monotonic()
                    self._tell(journal, outcome, now - step_began, loader.seconds_waited / (now - began))
                stopped = any_of(asked.is_set(), self.crew)
                if stopped or self._due(self.config.checkpoint_every):
                    self._save()
        if journal is not None:
            journal.close()
        return self._finish(before)

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
        card = Card(
            encoder=self.config.encoder,
            trained_on=f"{len(self.examples.reader)} unlabelled videos, {steps} steps of {self.config.objective}",
            notes="the scores need no labels and are of clips that were not trained on",
            scores=scores,
        )
        save_weights(self.folder / _WEIGHTS, self.state.average.model, card)
        return Trained(self.folder, self.folder / _WEIGHTS, steps, before, after)


def _read_held_out(corpus: Corpus, config: TrainConfig) -> HeldOut:
    side_px = config.view_px if config.objective == "walks" else config.clips.crop_px
    reader = ClipReader(corpus.footage, corpus.held_out.entries, dataclasses.replace(config.clips, flip=False), seed=0)
    return read_held_out(reader, config.held_out_clips, side_px=side_px)


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings a run was started with."""
    path = folder / _RECORD
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError) as error:
        raise OutputError(f"{folder} holds no run to go on with", remedy="leave --resume out to start one") from error
    return settings


def refuse_used(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with a run, unless it may be replaced."""
    if (folder / _RECORD).exists() and not overwrite:
        raise OutputError(
            f"{folder} holds a run already", remedy="pass --resume to go on with it, or --overwrite to begin anew"
        )


def verdict(before: Verdict, after: Verdict) -> str:
    """Whether training on helped, in a sentence; it may well not have."""
    gains = {name: after.figures()[name] - before.figures()[name] for name in ("warp_accuracy", "cycle_accuracy")}
    told = ", ".join(f"{name.replace('_', ' ')} {gain:+.3f}" for name, gain in gains.items())
    if min(gains.values()) >= 0 and max(gains.values()) > _GAIN:
        return f"better on held-out clips ({told}): use the new weights"
    return f"no gain on held-out clips ({told}): keep the old weights"


def _open_record(folder: Path, config: TrainConfig, start: ResNet | None, *, resume: bool, overwrite: bool) -> None:
    """Write what the run is, or make sure that it is the run that is resumed."""
    identity = {
        "config": json.loads(json.dumps(asdict(config))),
        "from_sha256": hash_state(start.state_dict()) if start is not None else None,
    }
    if resume:
        read_settings(folder)
        old = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        for name, value in identity.items():
            if old.get(name) != value:
                raise OutputError(
                    f"the run in {folder} was started with another {name}",
                    remedy="resume it as it was started, or choose another folder with -o",
                )
        return
    refuse_used(folder, overwrite=overwrite)
    for file in [*folder.glob("checkpoints/*.ckpt"), folder / "journal.jsonl", *folder.glob("weights.*")]:
        file.unlink(missing_ok=True)
    about = {"timecycle": __version__, "commit": commit(), "machine": machine()}
    write_text(folder / _RECORD, json.dumps(identity | about, indent=2) + "\n")


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Set when the system asks the process to end; the loop then saves and leaves at the end of its step."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def note(_: int, __: FrameType | None) -> None:
        asked.set()

    usual = {number: signal.signal(number, note) for number in (signal.SIGTERM,)}
    try:
        yield asked
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
