"""Which recipe to train the shipped encoder with: short runs of equal time, judged without a label.

    python benchmarks/recipes.py VIDEOS --work DIR [--minutes M] [--only PREFIX ...] [--missing] [--also NAME=FILE ...]

A twentieth of the videos is kept aside, as in every training. Composites of these (see evaluation/composites.py) are
carried at 240 pixels, with what was learned alone and with the cell's own colour beside it; the figures that training
itself takes of held-out clips are kept too. Runs stay in DIR: what is trained there with these settings is only judged,
what was interrupted goes on. Results: recipe_NAME.json.
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

from learn import SHORT
from record import RESULTS, write_record
from ship import save_in_form
from timecycle.config import build, propagate_config, train_config
from timecycle.cores import usable_cores
from timecycle.data.index import make_index
from timecycle.data.split import split
from timecycle.evaluation.composites import find_composites, make_composites
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods import load_method
from timecycle.files import make_folder
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.model.weights import read_card
from timecycle.training.corpus import Videos
from timecycle.training.pace import steps_in
from timecycle.training.settings import TrainConfig
from timecycle.training.trainer import train

_COLUMNS = ("encoder.columns=true", "encoder.head_relu=false")
_RES3 = (*_COLUMNS, "encoder.last=res3", "encoder.head_channels=128")
_RES2 = (*_COLUMNS, "encoder.last=res2", "encoder.head_channels=128")
_RES4 = (*_COLUMNS, "encoder.head_channels=256")
_PASTES = ("pastes.most=3", "pastes.radius=0.2,0.6")
_SHARP = ("walks.temperature=0.04",)
_SHORT = ("clips.frames=2", "batch=16")
_BENT = ("views.bend=0.15", "pastes.most=6", "pastes.radius=0.08,0.6", "pastes.stretch=0.9")
_THINGS = ("walks.things=2", "walks.still=0.3", "walks.walk=0.3")
_JITTER = ("views.brightness=0.4", "views.contrast=0.4", "views.saturation=0.4", "views.hue=0.1")
_CONTROLS = ("identity", "random-resnet18", "rgb", "efficientnet-lite0-s8", "vgg16", DEFAULT_ENCODER)


@dataclass(frozen=True)
class Recipe:
    """What it changes in the preset `small`. `words` is what tables call it."""

    words: str
    settings: tuple[str, ...] = ()


RECIPES = {
    "small": Recipe("the preset small: res4, four frames"),
    "res4_columns": Recipe("the same, the head sees res2, res3 and res4", _RES4),
    "res3_columns": Recipe("res3, the head sees res2 and res3", _RES3),
    "res4_pastes": Recipe("res4, four frames, pasted things", (*_RES4, *_PASTES)),
    "res3_pastes": Recipe("res3, four frames, pasted things", (*_RES3, *_PASTES)),
    "res3_pastes_sharp": Recipe("res3, four frames, temperature 0.04", (*_RES3, *_PASTES, *_SHARP)),
    "res3_sharp_zoom": Recipe(
        "res3, four frames, things in several sizes", (*_RES3, *_PASTES, *_SHARP, "clips.zoom=1,2")
    ),
    "res3_sharp_short": Recipe("res3, two frames", (*_RES3, *_PASTES, *_SHARP, *_SHORT)),
    "res3_bent": Recipe("res3, two frames, views that bend, thin things", (*_RES3, *_PASTES, *_SHARP, *_SHORT, *_BENT)),
    "res3_things": Recipe(
        "res3, two frames, walks should end on their thing", (*_RES3, *_PASTES, *_SHARP, *_SHORT, *_BENT, *_THINGS)
    ),
    "res2_short": Recipe("res2, two frames", (*_RES2, *_PASTES, *_SHARP, *_SHORT)),
    "res4_short": Recipe("res4, two frames", (*_RES4, *_PASTES, *_SHARP, *_SHORT)),
    "res3_recoloured": Recipe(
        "res3, two frames, each view in other colours", (*_RES3, *_PASTES, *_SHARP, *_SHORT, *_JITTER)
    ),
    "res3_open": Recipe(
        "res3, two frames, no step closed at random", (*_RES3, *_PASTES, *_SHARP, *_SHORT, "walks.dropout=0")
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where runs, footage and predictions are kept")
    parser.add_argument("--minutes", type=float, default=8, help="of training, for every recipe")
    parser.add_argument("--only", nargs="*", default=[], help="recipes whose names begin so")
    parser.add_argument("--missing", action="store_true", help="recipes that have no result yet")
    parser.add_argument("--also", nargs="*", default=[], help="weights trained elsewhere, NAME=FILE; only these")
    chosen = parser.parse_args()
    footage = held_out_composites(chosen.videos, chosen.work)
    for name, _, weights in (also.partition("=") for also in chosen.also):
        scores = judge(name, weights, footage, chosen.work)
        print(f"{name}: J {scores['J']:.4f} F {scores['F']:.4f}", flush=True)
    for name in () if chosen.also else (*_CONTROLS, *RECIPES):
        if chosen.only and not name.startswith(tuple(chosen.only)):
            continue
        if chosen.missing and (RESULTS / f"recipe_{name}.json").exists():
            continue
        if name in RECIPES:
            scores = judge_recipe(name, footage, chosen.videos, chosen.work, chosen.minutes)
        else:
            scores = judge(name, name, footage, chosen.work)
        print(f"{name}: J {scores['J']:.4f} F {scores['F']:.4f}", flush=True)
    return 0


def held_out_composites(videos: Path, work: Path) -> Path:
    """Composites of the videos that training keeps aside."""
    return make_composites(held_out_videos(videos, work), work / "composites")


def held_out_videos(videos: Path, work: Path) -> Path:
    """A folder of links to the videos that training keeps aside."""
    index = make_index(videos, make_folder(work) / "index.jsonl", workers=usable_cores())
    _, held_out = split(index, TrainConfig().held_out)
    links = make_folder(work / "held_out")
    for entry in held_out.entries:
        link = links / entry.path
        if not link.exists():
            make_folder(link.parent)
            link.symlink_to((videos / entry.path).resolve())
    return links


def judge_recipe(name: str, footage: Path, videos: Path, work: Path, minutes: float) -> dict[str, float]:
    """Train the recipe, if it is not trained, and judge its weights."""
    weights = learn(name, videos, work, minutes)
    trained = json.loads((weights.parent / "train.json").read_text(encoding="utf-8"))
    settings = {
        "words": RECIPES[name].words,
        "changed": list(RECIPES[name].settings),
        "minutes": minutes,
        "steps": trained["config"]["steps"],
        "config": trained["config"],
    }
    return judge(name, str(weights), footage, work, settings)


def judge(
    name: str, encoder: str, footage: Path, work: Path, settings: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Carry the composites' masks with an encoder and keep the record."""
    benchmark, config = find_composites(footage), propagate_config("fast")
    report = evaluate(benchmark, load_method(encoder), config, work / "predictions" / name)
    scores = dict(report.scores)
    card = read_card(Path(encoder)) if encoder.endswith(".safetensors") else None
    beside = {}
    if card and not card.encoder.colour:
        path = make_folder(work / "coloured") / f"{name}.safetensors"
        save_in_form(Path(encoder), ["colour=1"], path)
        method = load_method(str(path))
        beside = dict(evaluate(benchmark, method, config, work / "predictions" / f"{name}_coloured").scores)
    write_record(
        f"recipe_{name}",
        settings=dict(settings or {}),
        measured={
            "scores": scores,
            "scores_with_colour": beside,
            "held_out": card.scores if card else {},
            "weights_sha256": report.weights_sha256,
            "data": dict(report.data),
        },
        seconds=report.seconds,
    )
    return beside or scores


def learn(name: str, videos: Path, work: Path, minutes: float) -> Path:
    """The weights of a recipe's run."""
    folder = work / "runs" / name
    weights, record = folder / "weights.safetensors", folder / "train.json"
    config = train_config("small", (*SHORT, *RECIPES[name].settings))
    if record.exists():
        begun = build(TrainConfig, json.loads(record.read_text(encoding="utf-8"))["config"])
        if dataclasses.replace(begun, steps=config.steps) != config:
            raise SystemExit(f"error: {folder} was trained with other settings\n  try: move it away")
        config = begun
    else:
        pace = make_folder(work / "pace")
        shutil.copyfile(work / "index.jsonl", pace / "index.jsonl")
        config = dataclasses.replace(config, steps=steps_in(minutes, Videos(place=str(videos)), pace, config))
    if not weights.exists():
        done = train(videos, folder, config, resume=record.exists())
        if done.weights is None:
            raise SystemExit(f"{name} was stopped after {done.steps} steps; the same command goes on")
    return weights


if __name__ == "__main__":
    sys.exit(main())
