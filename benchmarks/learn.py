"""Train every run of docs/research/learning.md from raw video, and score it on DAVIS-2016.

    python benchmarks/learn.py DATA --work DIR [--only PREFIX ...] [--missing]
    torchrun --nproc_per_node 2 benchmarks/learn.py ...  # two processes of one thread are faster than one of two

DATA holds raw_video/ and open_video/ for training and davis2016/ for evaluation. Runs stay in DIR: a finished run is
only scored, an interrupted run resumes. For each run a report (learned_NAME.json) and a record of the training with its
curve (training_NAME.json) are written to benchmarks/results.
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from evaluate import EIGHT
from inference import plain_at_240
from record import RESULTS, write_record
from timecycle.config import build, train_config
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import load_method
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.evaluation.reporting.plots import write_pictures
from timecycle.evaluation.reporting.report import REPORT, Report
from timecycle.files import make_folder
from timecycle.model.weights import hash_state, load_weights
from timecycle.training.distributed import process_group
from timecycle.training.record import read_journal
from timecycle.training.settings import TrainConfig
from timecycle.training.trainer import Callbacks, Progress, train
from training_step import PRESETS

# Recipes are chosen on these sequences, so that the eight sequences of the results remain a test set.
CHOOSING = ("breakdance", "dog", "kite-surf", "motocross-jump", "scooter-black")
SHOWN = ("walks", "cycles")  # docs/research/learning.md shows their curves and worst sequences
_POINTS = 60  # of a curve
_PROGRESS_SECONDS = 60

Group = Literal["learned", "lever", "ablation", "stage", "free", "idea"]

FREE = "free"  # the clips of open_video, which anyone may use, without those of evaluations
SYNTHETIC = "synthetic"  # these, and clips that benchmarks/synthetic_footage.py made in DIR/synthetic
_EVALUATED = ("lightning_pose", "sleap", "imagej_wiki")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. `description` names it in tables."""

    name: str
    description: str
    preset: str
    steps: int
    settings: tuple[str, ...] = ()
    videos: str = "."  # below raw_video, or FREE or SYNTHETIC
    start: str | None = None  # the run whose weights it starts from
    sequences: tuple[str, ...] = EIGHT  # empty: trained, not scored
    group: Group = "learned"
    paper: str | None = None  # the paper's J and F of the same ablation

    def config(self) -> TrainConfig:
        return train_config(self.preset, (*self.settings, f"steps={self.steps}"))


# Steps on two cores: the half hours in bf16, as timed by benchmarks/training_step.py; the comparisons in fp32, which is
# the same on every machine.
_HALF_AN_HOUR = {"walks": 1300, "cycles": 2300}
_QUARTER = {4: 600, 3: 800, 2: 1250}  # steps of cycles in a quarter of an hour, by frames of a clip
_LEVER = {"walks": 80, "cycles": 100}
# The bundled encoder is trained in stages of about an hour. Each starts from the weights of the one before.
_STAGES, _STAGE_STEPS = 3, 1500
_EARLY = (60, 250)  # steps of separate runs for the beginning of the curve
_COMPARED = ("precision=fp32",)
# Runs of a few minutes need a short moving average and warm-up.
SHORT = (*_COMPARED, "ema_decay=0.98", "optimizer.warmup_steps=30", "validate_every=1000")

_COLOURS = tuple(
    f"views.{name}={value}"
    for name, value in {
        "brightness": 0.4,
        "contrast": 0.4,
        "saturation": 0.4,
        "hue": 0.1,
        "grayscale": 0.2,
        "channel_drop": 0.1,
        "blur": 0.2,
    }.items()
)
# The recipe of timecycle-v1, as changes of `bundled`: larger and fewer steps, in fp32, all cells alike.
_FORMER = (
    "batch=16",
    "precision=fp32",
    "optimizer.learning_rate=5e-4",
    "optimizer.warmup_steps=100",
    "ema_decay=0.998",
    "checkpoint_every=100",
    "validate_every=250",
    "encoder.fine=0.5",
    "walks.contrast=0",
)
# The same in smaller and more steps, and in bf16 where the processor multiplies it, which is several times as fast.
_FREE = (
    "optimizer.warmup_steps=200",
    "ema_decay=0.999",
    "validate_every=2000",
    "frame_cache_gb=4",
    "encoder.fine=0.5",
    "walks.contrast=0",
)
_FREE_LONG_STEPS = 8000  # half an hour in two processes, with a core each that multiplies bf16
_FREE_STEPS = 2000  # of timecycle-v2
_FREE_SHORT = (
    *_FREE,
    "ema_decay=0.995",
    "optimizer.warmup_steps=150",
    "validate_every=100000",
    "walks.contrast=0.8",
)
_ZOOM = ("clips.short_side_px=200", "clips.zoom=1,2.2")
_LARGE = ("view_px=176", "clips.short_side_px=240", "clips.crop_px=224")  # the receptive field of res4 needs such views
_RES4 = ("encoder.last=res4",)
_RARELY = ("checkpoint_every=250",)  # as these runs were made; it changes no weights
# Its recipe, and other lengths, footage and sizes: (words, steps, settings, videos).
_FREE_RECIPE: dict[str, tuple[str, int, tuple[str, ...], str]] = {
    "contrast": ("cells weighted by how much they differ from their neighbours", _FREE_STEPS, (), FREE),
    "contrast_double": ("the same, twice the steps", 2 * _FREE_STEPS, (), FREE),
    "contrast_668": ("the same, on the 668 clips of timecycle-v1", _FREE_STEPS, (), "."),
    "contrast_synthetic": ("the same, and synthetic clips besides", _FREE_STEPS, (), SYNTHETIC),
    "contrast_zoom": ("the same, clips at 1.1 to 2.5 times the size", _FREE_STEPS, _ZOOM, FREE),
    "res4": (
        "res4, views of 176 pixels at full size, synthetic clips besides",
        3000,
        (*_RES4, *_RARELY, *_LARGE),
        SYNTHETIC,
    ),
}
# Changes of that recipe: (words, steps, settings, videos). A step of more pixels or layers takes longer, and there are
# fewer.
_IDEA_STEPS = 1000
_IDEAS: dict[str, tuple[str, int, tuple[str, ...], str]] = {
    "recipe": ("the recipe of timecycle-v2, half its steps", _IDEA_STEPS, (), FREE),
    "exact": ("exact correspondence counts four times as much as walks", _IDEA_STEPS, ("walks.same_frame=4",), FREE),
    "exact_alone": ("exact correspondence alone, no walks through time", _IDEA_STEPS, ("walks.walk=0",), FREE),
    "synthetic": ("40 clips of dead leaves and 150 articulated composites besides", _IDEA_STEPS, (), SYNTHETIC),
    "negatives": ("negatives from two other clips", _IDEA_STEPS, ("walks.negatives=2",), FREE),
    "segments": ("walks should also stay on their segment", _IDEA_STEPS, ("walks.segments=0.5",), FREE),
    "pasted": ("walks should also stay on their pasted object", _IDEA_STEPS, ("walks.pasted=0.5",), FREE),
    "colours": ("views change their colours", _IDEA_STEPS, _COLOURS, FREE),
    "zoom": ("clips at 1.1 to 2.5 times the size", _IDEA_STEPS, _ZOOM, FREE),
    "zoom_negatives": (
        "clips at 1.1 to 2.5 times the size, negatives from two other clips",
        _IDEA_STEPS,
        (*_ZOOM, "walks.negatives=2"),
        FREE,
    ),
    "small": (
        "views of 96 pixels",
        1750,
        ("clips.short_side_px=136", "clips.crop_px=128", "view_px=96"),
        FREE,
    ),
    "frames": ("clips of four frames", 500, ("clips.frames=4",), FREE),
    "synthetic_descriptor": (
        "the same synthetic clips; trains the descriptor of propagation, without its colour",
        _IDEA_STEPS,
        (*_RARELY, "trained=descriptor", "encoder.fine=2.5"),
        SYNTHETIC,
    ),
    "synthetic_large": ("the same synthetic clips; views of 176 pixels", 600, (*_RARELY, *_LARGE), SYNTHETIC),
    "synthetic_res4": ("the same synthetic clips; res4", _IDEA_STEPS, (*_RARELY, *_RES4), SYNTHETIC),
    "synthetic_res4_gaps": (
        "the same synthetic clips; res4, 0.3 to 2 s between frames",
        _IDEA_STEPS,
        (*_RARELY, *_RES4, "clips.gap_seconds=0.3,2"),
        SYNTHETIC,
    ),
    "synthetic_res4_large": (
        "the same synthetic clips; res4, views of 176 pixels",
        600,
        (*_RARELY, *_RES4, *_LARGE),
        SYNTHETIC,
    ),
    "temperature": ("temperature 0.07", _IDEA_STEPS, ("walks.temperature=0.07",), FREE),
}
_LEVERS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "walks": {
        "preset": ("as in the preset", ()),
        "colours": ("colour augmentation of views", _COLOURS),
        "motion": ("cells weighted by motion", ("walks.motion=0.7",)),
        "temperature": ("temperature 0.04", ("walks.temperature=0.04",)),
        "near": ("weaker view augmentation", ("views.rotation_degrees=8", "views.scale=0.9,1.1")),
        "far": ("stronger view augmentation", ("views.rotation_degrees=60", "views.scale=0.5,1.5")),
        "gaps": ("longer gaps, 0.3 to 1.3 s", ("clips.gap_seconds=0.3,1.3",)),
        "negatives": ("negatives from two other clips", ("walks.negatives=2",)),
        "zeros": ("zero padding", ("encoder.padding=zeros",)),
    },
    "cycles": {
        "preset": ("as in the preset", ()),
        "paper_losses": ("the paper's losses only, no same-frame cycle", ("cycles.same_frame=0",)),
        "learned_localizer": (
            "learned localizer, trained alone for 50 steps, no same-frame cycle",
            ("cycles.same_frame=0", "cycles.localizer.kind=paper", "localizer_steps=50"),
        ),
        "anywhere": ("patches from any position", ("patches.keep=49",)),
        "temperature": ("temperature 0.07", ("cycles.temperature=0.07",)),
    },
}


def _runs() -> Iterator[Run]:
    for objective, steps in _HALF_AN_HOUR.items():
        yield Run(name=objective, description=f"{objective}, 30 minutes", preset=PRESETS[objective], steps=steps)
    cycles = partial(Run, preset="small-cycles", group="ablation")
    yield cycles(
        name="ablation_base",
        description="cycles, 15 minutes",
        steps=_QUARTER[4],
        settings=_COMPARED,
        paper="41.9, 39.4",
    )
    yield cycles(
        name="ablation_no_skip",
        description="without skip cycles",
        steps=_QUARTER[4],
        settings=(*_COMPARED, "cycles.skip=0"),
        paper="39.5, 37.9",
    )
    for frames in (2, 3):
        yield cycles(
            name=f"ablation_lengths_{frames - 1}",
            description="cycles of length 1 only" if frames == 2 else f"cycles of lengths 1 to {frames - 1}",
            steps=_QUARTER[frames],
            settings=(*_COMPARED, f"clips.frames={frames}"),
        )
    for folder, words in (("ucf101", "only UCF-101"), ("davis2017_train", "only DAVIS-2017 train")):
        yield cycles(name=f"ablation_{folder}", description=words, steps=_QUARTER[4], settings=_COMPARED, videos=folder)
    yield cycles(
        name="ablation_finetuned",
        description="cycles, 15 minutes, then 15 on DAVIS-2017 train",
        steps=_QUARTER[4],
        settings=_COMPARED,
        videos="davis2017_train",
        start="ablation_base",
        paper="42.0, 39.1",
    )
    yield Run(
        name="paper",
        description="20 steps of the paper's preset, ResNet-50",
        preset="paper",
        steps=20,
        settings=(*_COMPARED, "accumulate=16"),  # a batch of 32 clips needs more memory than a laptop has
        sequences=(),
    )
    for steps in _EARLY:
        yield Run(
            name=f"early_{steps}",
            description=f"{steps} steps",
            preset="bundled",
            steps=steps,
            settings=(*_FORMER, "seed=1", *SHORT),
            group="stage",
        )
    for stage in range(1, _STAGES + 1):
        yield Run(
            name=f"stage_{stage}",
            description=f"stage {stage}",
            preset="bundled",
            steps=_STAGE_STEPS,
            settings=(*_FORMER, f"seed={stage}"),  # different clips and views
            start=f"stage_{stage - 1}" if stage > 1 else None,
            group="stage",
        )
    # Runs on free footage are compared by benchmarks/strong_masks.py; DAVIS is for the chosen one.
    free = partial(Run, preset="bundled", sequences=())
    yield free(
        name="free_1",
        description="the recipe, on free footage, for longer",
        steps=_FREE_LONG_STEPS,
        settings=_FREE,
        videos=FREE,
        group="free",
    )
    groups: dict[str, tuple[Group, Mapping[str, tuple[str, int, tuple[str, ...], str]]]] = {
        "short": ("free", _FREE_RECIPE),
        "idea": ("idea", _IDEAS),
    }
    for prefix, (group, runs) in groups.items():
        for name, (words, steps, settings, videos) in runs.items():
            yield free(
                name=f"{prefix}_{name}",
                description=words,
                steps=steps,
                settings=(*_FREE_SHORT, *settings),
                videos=videos,
                group=group,
            )
    for objective, levers in _LEVERS.items():
        for name, (words, settings) in levers.items():
            yield Run(
                name=f"lever_{objective}_{name}",
                description=f"{objective}: {words}",
                preset=PRESETS[objective],
                steps=_LEVER[objective],
                settings=(*SHORT, *settings),
                sequences=CHOOSING,
                group="lever",
            )


RUNS = tuple(_runs())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of runs and predictions")
    parser.add_argument("--only", nargs="*", default=[], metavar="PREFIX", help="only runs with these prefixes")
    parser.add_argument("--missing", action="store_true", help="only runs without a report")
    chosen = parser.parse_args()
    for run in RUNS:
        if chosen.only and not run.name.startswith(tuple(chosen.only)):
            continue
        if chosen.missing and (RESULTS / f"{'learned' if run.sequences else 'training'}_{run.name}.json").exists():
            continue
        weights = train_run(run, chosen.data, chosen.work)
        if not run.sequences or not process_group().is_main:
            continue
        report = score(run, weights, chosen.data, chosen.work)
        print(f"{run.name}: J {report.scores['J']:.4f} F {report.scores['F']:.4f}", flush=True)
    return 0


def train_run(run: Run, data: Path, work: Path) -> Path:
    """Train a run unless it is finished, and return its weights, NAME.safetensors, which reports name."""
    folder, config = work / run.name, run.config()
    start = load_weights(work / run.start / "weights.safetensors") if run.start else None
    if start is not None:
        config = dataclasses.replace(config, encoder=start.config)
    begun = (folder / "train.json").exists()
    if not (folder / "weights.safetensors").exists():
        done = train(
            footage(run.videos, data, work),
            folder,
            config,
            start=start,
            resume=begun,
            callbacks=Callbacks(step=_progress_printer(run.name)),
        )
        if done.weights is None and process_group().is_main:
            raise SystemExit(f"{run.name} was interrupted after {done.steps} steps; the same command resumes it")
    if not process_group().is_main:
        return folder / "weights.safetensors"
    trained = json.loads((folder / "train.json").read_text(encoding="utf-8"))
    used = build(TrainConfig, trained["config"])  # newer settings have their defaults
    if used != dataclasses.replace(
        config, precision=used.precision if config.precision == "auto" else config.precision
    ):
        raise SystemExit(f"error: {folder} was trained with different settings\n  try: remove it")
    weights = make_folder(work / "weights") / f"{run.name}.safetensors"
    for suffix in (".safetensors", ".json"):
        shutil.copyfile(folder / f"weights{suffix}", weights.with_suffix(suffix))
    journal = read_journal(folder)
    write_record(
        f"training_{run.name}",
        settings={
            "description": run.description,
            "preset": run.preset,
            "overrides": list(run.settings),
            "steps": run.steps,
            "videos": run.videos,
            "from": run.start,
            "sequences": len(run.sequences),
            "config": trained["config"],
        },
        measured={
            "trained_commit": trained["commit"],
            "trained_on": trained["machine"],
            "weights_sha256": hash_state(load_weights(weights).state_dict()),
            "alarms": sorted({alarm.partition(":")[0] for line in journal for alarm in line.get("alarms", ())}),
            "curve": curve(journal),
        },
        seconds=_seconds(folder, journal),
    )
    return weights


def footage(videos: str, data: Path, work: Path) -> Path:
    """Return the folder of a run's videos; those of FREE and SYNTHETIC are links."""
    if videos not in (FREE, SYNTHETIC):
        return data / "raw_video" / videos
    folder = work / f"{videos}_video"
    clips = [clip for clip in (data / "open_video").glob("*/*.mp4") if clip.parent.name not in _EVALUATED]
    if videos == SYNTHETIC:
        made = list((work / "synthetic").glob("*/*.mp4"))
        if not made:
            out, free = work / "synthetic", footage(FREE, data, work)
            raise SystemExit(
                f"error: {out} holds no clips\n  try: python benchmarks/synthetic_footage.py --out {out} "
                f"--leaves 40 --composites 150 --videos {free}"
            )
        clips += made
    for clip in sorted(clips):
        link = folder / clip.parent.name / clip.name
        if not link.exists():
            make_folder(link.parent)
            with suppress(FileExistsError):  # another process of the run links it too
                link.symlink_to(clip.resolve())
    return folder


def _seconds(folder: Path, journal: Sequence[Mapping[str, Any]]) -> float:
    """Return the time of all steps; for older journals the time from start to end, including pauses."""
    if all("seconds" in line for line in journal):
        return float(sum(line["seconds"] for line in journal))
    return (folder / "weights.safetensors").stat().st_mtime - (folder / "train.json").stat().st_mtime


def score(run: Run, weights: Path, data: Path, work: Path) -> Report:
    """Evaluate the run's weights on its sequences at 240 pixels."""
    benchmark = find_davis(data / "davis2016", names=run.sequences)
    folder = work / "predictions" / run.name
    report = evaluate(benchmark, load_method(str(weights)), plain_at_240(), folder)
    shutil.copyfile(folder / REPORT, RESULTS / f"learned_{run.name}.json")
    if run.name in SHOWN:
        write_pictures(report, folder, clips=benchmark.clips)
        images = RESULTS.parents[1] / "docs" / "images"
        shutil.copyfile(folder / "worst.png", images / f"learned_{run.name}_worst.png")
    return report


def curve(journal: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Average the journal into a few dozen points, each over the steps since the point before."""
    width = -(-len(journal) // _POINTS)
    points = []
    for begin in range(0, len(journal), width):
        lines = journal[begin : begin + width]
        numbers = {name for line in lines for name, value in line.items() if isinstance(value, float)}
        means = {
            name: round(statistics.fmean(line[name] for line in lines if name in line), 4) for name in sorted(numbers)
        }
        points.append({"step": lines[-1]["step"], **means})
    return points


def _progress_printer(name: str) -> Callable[[Progress], None]:
    """Make a callback that prints a line per minute."""
    last = [time.monotonic()]

    def show(now: Progress) -> None:
        if time.monotonic() - last[0] > _PROGRESS_SECONDS:
            last[0] = time.monotonic()
            losses = " ".join(f"{loss} {value:.3f}" for loss, value in now.losses.items())
            print(f"{name}: step {now.step} of {now.steps}, {losses}", flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
