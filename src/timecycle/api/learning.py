"""Learn from raw video: pack footage into shards, and train encoders."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

from timecycle.config import build, train_config
from timecycle.data.packing import pack as packing
from timecycle.data.packing.pack import Pack, PackConfig
from timecycle.device import Device
from timecycle.errors import SettingsError, StoreError
from timecycle.model.resnet import ResNet
from timecycle.model.weights import Card, find_bundled, load_weights, read_card
from timecycle.progress import Bar, ProgressLike, bars_for
from timecycle.store import open_store
from timecycle.training import trainer
from timecycle.training.corpus import DEFAULT_CACHE_GB, VideoSource
from timecycle.training.distributed import process_group
from timecycle.training.heldout import fewest_steps
from timecycle.training.record import finished_weights, read_settings
from timecycle.training.settings import TrainConfig
from timecycle.training.trainer import TrainingResult, steps_in

_MUCH_WAITING = 0.1  # share of the time; below it, reading clips keeps up with training


def train(
    videos: str | Path,
    folder: str | Path,
    *,
    config: TrainConfig | str | None = None,
    start: str | Path | ResNet | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    licence: str = "",
    cache: str | Path | None = None,
    cache_gb: float = DEFAULT_CACHE_GB,
    processes: int = 0,
    device: Device = "auto",
    resume: bool = False,
    overwrite: bool = False,
    progress: ProgressLike = None,
    say: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Train an encoder on raw video, without labels; its `weights` are a file that `encoder=` takes.

    videos: a folder of videos, searched recursively, one video, or a pack: a folder or s3://bucket/corpus.
    folder: the folder of the run.
    config: settings, or the name of a preset. None is "small", or the settings of the run that is resumed.
    start: weights to start from: a file, the name of bundled weights, or a model of `from_pretrained`. The result then
        tells whether training helped.
    steps: the number of steps, in place of the preset's.
    minutes: train for about so long: sets the number of steps by timing a few.
    licence: the licence of the weights, for their card.
    cache, cache_gb: the folder for cached shards of a pack, and its largest size.
    processes: processes that probe the videos, beside this one; a script that asks for some must be importable.
    device: auto, cpu, cuda or mps; several processes, started with torchrun, take a CUDA device each.
    resume: resume the run in the folder, with its own settings.
    overwrite: replace an earlier run in the folder.
    progress: True for a bar on standard error, or a function that is called with (done, total) steps.
    say: a function that is called with notes and warnings; by default they are logged.

    Ctrl-C saves the run and ends it; the result is then `interrupted`.
    """
    job = _Job(
        VideoSource(location=str(videos), cache=None if cache is None else Path(cache), cache_gb=cache_gb),
        Path(folder),
        overwrite,
        processes,
        device,
    )
    _check_amounts(steps, minutes)
    with bars_for(progress) as bar:
        if resume:
            settings = _resumed_config(job.folder, config, steps)
            weights = finished_weights(job.folder)
            if weights is not None:
                return TrainingResult(job.folder, weights, settings.steps, None, None)
        else:
            settings = _new_config(config, steps)
        callbacks = trainer.Callbacks() if say is None else trainer.Callbacks(info=say, warning=say)
        if not process_group().is_main:
            callbacks = dataclasses.replace(callbacks, info=lambda _: None)  # said by one process
        probed = trainer.Callbacks().probed if resume else bar("probing")  # a resumed run keeps its index
        callbacks = dataclasses.replace(callbacks, step=show_steps(bar("training")), probed=probed)
        model, card = _read_start(start)
        if model is not None:
            settings = dataclasses.replace(settings, encoder=model.config)
        if card is not None and licence not in ("", card.licence):
            callbacks.warning(f"the initial weights are under {card.licence}, whose terms still apply to them")
        if minutes is not None and not resume:
            settings = _config_for_minutes(minutes, settings, job, callbacks)
        return trainer.train(
            job.videos,
            job.folder,
            settings,
            start=model,
            start_card=card,
            resume=resume,
            overwrite=overwrite,
            licence=licence,
            callbacks=callbacks,
            processes=processes,
            device=device,
        )


def pack(
    videos: str | Path,
    folder: str | Path,
    *,
    config: PackConfig | None = None,
    work: str | Path | None = None,
    workers: int = 0,
    check: bool = False,
    progress: ProgressLike = None,
) -> Pack:
    """Pack videos into shards, for training from a disk or an object store; what is packed is not packed again.

    videos: a folder of videos, searched recursively, or one video.
    folder: the pack: a folder, or a URL such as s3://bucket/corpus.
    config: the format of the clips and the size of the shards.
    work: a local folder for unfinished work; by default in `folder`, or in the user's cache.
    workers: processes that cut videos, beside this one; a script that asks for some must be importable.
    check: read every shard back at the end and compare its checksum.
    progress: True for a bar on standard error, or a function that is called with (done, total) videos, then shards.
    """
    store = open_store(folder)
    work_folder = packing.work_folder(str(folder)) if work is None else Path(work)
    with bars_for(progress) as bar:
        done = packing.pack(
            Path(videos), store, work_folder, config or PackConfig(), workers=workers, progress=bar("packing")
        )
        problems = packing.check_pack(store, bar("checking")) if check else []
    if problems:
        raise StoreError(
            f"{len(problems)} shards differ from what was packed, the first: {problems[0]}",
            remedy="delete them and pack again",
        )
    return done


@dataclasses.dataclass(frozen=True)
class _Job:
    """What is trained on, and where."""

    videos: VideoSource
    folder: Path
    overwrite: bool
    processes: int
    device: Device


def _check_amounts(steps: int | None, minutes: float | None) -> None:
    if minutes is not None and not 0 < minutes < math.inf:
        raise SettingsError(
            f"minutes is {minutes:g}", remedy="give more than 0, or leave it out to use the preset's steps"
        )
    if steps is not None and minutes is not None:
        raise SettingsError("steps and minutes were both given", remedy="leave one of them out")


def _new_config(config: TrainConfig | str | None, steps: int | None) -> TrainConfig:
    settings = config if isinstance(config, TrainConfig) else train_config(config or "small")
    return settings if steps is None else dataclasses.replace(settings, steps=steps)


def _resumed_config(folder: Path, config: TrainConfig | str | None, steps: int | None) -> TrainConfig:
    """Return the settings of the resumed run; settings that are given must equal them."""
    recorded = build(TrainConfig, read_settings(folder))
    if steps is None and config is None:
        return recorded
    given = recorded if config is None else _new_config(config, None)
    _refuse_other_settings(folder, recorded, given, steps)
    return recorded


def _refuse_other_settings(folder: Path, recorded: TrainConfig, given: TrainConfig, steps: int | None) -> None:
    """Refuse settings for a resumed run that differ from those it was started with; `steps` are None if not given."""
    # Set when the run began: the steps that fit into some minutes, the precision, and the encoder of the start.
    given = dataclasses.replace(
        given,
        steps=recorded.steps if steps is None else steps,
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
            f"the run in {folder} was started with another setting of {', '.join(changed)}",
            remedy="a resumed run keeps its settings: leave preset, settings and steps out",
        )


def _read_start(start: str | Path | ResNet | None) -> tuple[ResNet | None, Card | None]:
    if start is None or isinstance(start, ResNet):
        return start, None
    path = find_bundled(str(start)) or Path(start)
    return load_weights(path), read_card(path)


def _config_for_minutes(minutes: float, config: TrainConfig, job: _Job, callbacks: trainer.Callbacks) -> TrainConfig:
    """Set the number of steps that take about so many minutes."""
    if process_group().world_size > 1:  # each would time its own steps, and they would stop at different ones
        raise SettingsError("minutes were given to several processes", remedy="give the number of steps")
    callbacks.info("timing a few steps first, to compute how many fit")
    # Unusable videos are reported when the run itself begins.
    quiet = dataclasses.replace(callbacks, warning=lambda _: None)
    trainer.prepare(job.videos, job.folder, config, overwrite=job.overwrite, callbacks=quiet, processes=job.processes)
    fitting = steps_in(minutes, job.videos, job.folder, config, job.device)
    callbacks.info(f"{fitting} steps take about {minutes:g} minutes here")
    fewest = fewest_steps(config.batch)
    if fitting < fewest:
        callbacks.info(f"note: that is too few to learn anything; train for {fewest} steps or more")
    return dataclasses.replace(config, steps=fitting)


def show_steps(bar: Bar) -> Callable[[trainer.Progress], None]:
    """Return a callback that shows the loss beside the bar, and a long wait for clips."""

    def show(now: trainer.Progress) -> None:
        waiting = f" · {now.data_share:.0%} waiting" if now.data_share > _MUCH_WAITING else ""
        bar(now.step, now.steps, f"loss {now.losses['total']:.3f}{waiting}")

    return show
