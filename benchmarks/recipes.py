"""Compare training recipes for the bundled encoder: short runs of equal time, scored without human labels.

    python benchmarks/recipes.py VIDEOS --work DIR [--minutes M] [--only PREFIX ...] [--missing] [--also NAME=FILE ...]

A twentieth of the videos is held out, as in every training run. Masks are propagated through composites of these videos
(see evaluation/protocols/composites.py) at 240 pixels, with the learned features alone and with the cell's mean colour
beside them; the held-out figures of training are recorded too. Runs stay in DIR: a finished run is only scored, an
interrupted run resumes. Results: recipe_NAME.json.
"""

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoders import save_changed
from inference import plain_at_240
from learn import SHORT
from record import RESULTS, write_record
from timecycle.concurrency import usable_cores
from timecycle.config import build, train_config
from timecycle.data.corpus.index import make_index
from timecycle.data.corpus.split import split
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import load_method
from timecycle.evaluation.protocols.composites import find_composites, make_composites
from timecycle.files import make_folder
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.model.weights import read_card
from timecycle.training.corpus import VideoSource
from timecycle.training.settings import TrainConfig
from timecycle.training.trainer import steps_in, train

_COLUMNS = ("encoder.columns=true", "encoder.head_relu=false")
_RES3 = (*_COLUMNS, "encoder.last=res3", "encoder.head_channels=128")
_RES2 = (*_COLUMNS, "encoder.last=res2", "encoder.head_channels=128")
_RES4 = (*_COLUMNS, "encoder.head_channels=256")
_COPY_PASTE = ("copy_paste.most=3", "copy_paste.radius=0.2,0.6")
_SHARP = ("walks.temperature=0.04",)
_SHORT = ("clips.frames=2", "batch=16")
_ELASTIC = ("views.elastic=0.15", "copy_paste.most=6", "copy_paste.radius=0.08,0.6", "copy_paste.stretch=0.9")
_PASTED = ("walks.pasted=2", "walks.same_frame=0.3", "walks.walk=0.3")
_JITTER = ("views.brightness=0.4", "views.contrast=0.4", "views.saturation=0.4", "views.hue=0.1")
_CONTROLS = ("identity", "random-resnet18", "rgb", "efficientnet-lite0-s8", "vgg16", DEFAULT_ENCODER)


@dataclass(frozen=True)
class Recipe:
    """Changes of the preset `small`. `description` names it in tables."""

    description: str
    settings: tuple[str, ...] = ()


RECIPES = {
    "small": Recipe("the preset small: res4, four frames"),
    "res4_columns": Recipe("the same, the head reads res2, res3 and res4", _RES4),
    "res3_columns": Recipe("res3, the head reads res2 and res3", _RES3),
    "res4_copy_paste": Recipe("res4, four frames, copy-paste", (*_RES4, *_COPY_PASTE)),
    "res3_copy_paste": Recipe("res3, four frames, copy-paste", (*_RES3, *_COPY_PASTE)),
    "res3_copy_paste_sharp": Recipe("res3, four frames, temperature 0.04", (*_RES3, *_COPY_PASTE, *_SHARP)),
    "res3_sharp_zoom": Recipe("res3, four frames, random zoom", (*_RES3, *_COPY_PASTE, *_SHARP, "clips.zoom=1,2")),
    "res3_sharp_short": Recipe("res3, two frames", (*_RES3, *_COPY_PASTE, *_SHARP, *_SHORT)),
    "res3_elastic": Recipe(
        "res3, two frames, elastic warp, thin pasted objects", (*_RES3, *_COPY_PASTE, *_SHARP, *_SHORT, *_ELASTIC)
    ),
    "res3_pasted": Recipe(
        "res3, two frames, loss for walks that leave their pasted object",
        (*_RES3, *_COPY_PASTE, *_SHARP, *_SHORT, *_ELASTIC, *_PASTED),
    ),
    "res2_short": Recipe("res2, two frames", (*_RES2, *_COPY_PASTE, *_SHARP, *_SHORT)),
    "res4_short": Recipe("res4, two frames", (*_RES4, *_COPY_PASTE, *_SHARP, *_SHORT)),
    "res3_recoloured": Recipe(
        "res3, two frames, colour jitter per view", (*_RES3, *_COPY_PASTE, *_SHARP, *_SHORT, *_JITTER)
    ),
    "res3_open": Recipe(
        "res3, two frames, no edge dropout", (*_RES3, *_COPY_PASTE, *_SHARP, *_SHORT, "walks.dropout=0")
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of runs, composites and predictions")
    parser.add_argument("--minutes", type=float, default=8, help="training time of every recipe")
    parser.add_argument("--only", nargs="*", default=[], metavar="PREFIX", help="only recipes with these prefixes")
    parser.add_argument("--missing", action="store_true", help="only recipes without a result")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=FILE", help="score only these weights")
    chosen = parser.parse_args()
    footage = held_out_composites(chosen.videos, chosen.work)
    for name, _, weights in (also.partition("=") for also in chosen.also):
        scores = score(name, weights, footage, chosen.work)
        print(f"{name}: J {scores['J']:.4f} F {scores['F']:.4f}", flush=True)
    for name in () if chosen.also else (*_CONTROLS, *RECIPES):
        if chosen.only and not name.startswith(tuple(chosen.only)):
            continue
        if chosen.missing and (RESULTS / f"recipe_{name}.json").exists():
            continue
        if name in RECIPES:
            scores = score_recipe(name, footage, chosen.videos, chosen.work, chosen.minutes)
        else:
            scores = score(name, name, footage, chosen.work)
        print(f"{name}: J {scores['J']:.4f} F {scores['F']:.4f}", flush=True)
    return 0


def held_out_composites(videos: Path, work: Path) -> Path:
    """Make composites of the held-out videos."""
    return make_composites(held_out_videos(videos, work), work / "composites")


def held_out_videos(videos: Path, work: Path) -> Path:
    """Make a folder of links to the videos that training holds out."""
    index = make_index(videos, make_folder(work) / "index.jsonl", workers=usable_cores())
    _, held_out = split(index, TrainConfig().held_out)
    links = make_folder(work / "held_out")
    for entry in held_out.entries:
        link = links / entry.path
        if not link.exists():
            make_folder(link.parent)
            link.symlink_to((videos / entry.path).resolve())
    return links


def score_recipe(name: str, footage: Path, videos: Path, work: Path, minutes: float) -> dict[str, float]:
    """Train a recipe unless it is trained, and score its weights."""
    weights = train_recipe(name, videos, work, minutes)
    trained = json.loads((weights.parent / "train.json").read_text(encoding="utf-8"))
    settings = {
        "description": RECIPES[name].description,
        "overrides": list(RECIPES[name].settings),
        "minutes": minutes,
        "steps": trained["config"]["steps"],
        "config": trained["config"],
    }
    return score(name, str(weights), footage, work, settings)


def score(
    name: str, encoder: str, footage: Path, work: Path, settings: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Evaluate an encoder on the composites and write the record."""
    benchmark, config = find_composites(footage), plain_at_240()
    report = evaluate(benchmark, load_method(encoder), config, work / "predictions" / name)
    scores = dict(report.scores)
    card = read_card(Path(encoder)) if encoder.endswith(".safetensors") else None
    scores_with_colour = {}
    if card and not card.encoder.colour:
        path = make_folder(work / "coloured") / f"{name}.safetensors"
        save_changed(Path(encoder), ["colour=1"], path)
        method = load_method(str(path))
        scores_with_colour = dict(evaluate(benchmark, method, config, work / "predictions" / f"{name}_coloured").scores)
    write_record(
        f"recipe_{name}",
        settings=dict(settings or {}),
        measured={
            "scores": scores,
            "scores_with_colour": scores_with_colour,
            "held_out": card.scores if card else {},
            "weights_sha256": report.weights_sha256,
            "data": dict(report.data),
        },
        seconds=report.seconds,
    )
    return scores_with_colour or scores


def train_recipe(name: str, videos: Path, work: Path, minutes: float) -> Path:
    """Train a recipe unless it is trained, and return its weights."""
    folder = work / "runs" / name
    weights, record = folder / "weights.safetensors", folder / "train.json"
    config = train_config("small", (*SHORT, *RECIPES[name].settings))
    if record.exists():
        begun = build(TrainConfig, json.loads(record.read_text(encoding="utf-8"))["config"])
        if dataclasses.replace(begun, steps=config.steps) != config:
            raise SystemExit(f"error: {folder} was trained with different settings\n  try: remove it")
        config = begun
    else:
        pace = make_folder(work / "pace")
        shutil.copyfile(work / "index.jsonl", pace / "index.jsonl")
        config = dataclasses.replace(config, steps=steps_in(minutes, VideoSource(location=str(videos)), pace, config))
    if not weights.exists():
        done = train(videos, folder, config, resume=record.exists())
        if done.weights is None:
            raise SystemExit(f"{name} was interrupted after {done.steps} steps; the same command resumes it")
    return weights


if __name__ == "__main__":
    sys.exit(main())
