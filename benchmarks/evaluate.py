"""Run every evaluation of docs/results.md that is missing, and copy the reports to benchmarks/results.

    python benchmarks/evaluate.py DATA --work DIR [--only PREFIX ...]

DATA holds davis2016/, badja/ and jhmdb_sample/. Predictions stay in DIR, where an interrupted run resumes.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from encoders import load_named
from engine import ALL, STEPS, SUBCELLS, without
from inference import AT_240
from record import RESULTS
from timecycle.config import propagate_config
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.evaluate import FOLDER, evaluate, read_record, settings_of
from timecycle.evaluation.methods.method import Method
from timecycle.evaluation.methods.optical_flow import OpticalFlow
from timecycle.evaluation.methods.registry import Identity, NearestNeighbours, load_method
from timecycle.evaluation.protocols.badja import find_badja
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.evaluation.protocols.jhmdb import find_jhmdb
from timecycle.evaluation.protocols.reconstruction import find_reconstruction
from timecycle.evaluation.reporting.plots import write_pictures
from timecycle.evaluation.reporting.report import REPORT
from timecycle.evaluation.reporting.scores import WITHOUT_COLOUR
from timecycle.files import write_text
from timecycle.model.inference import Precision
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.propagation.settings import PropagateConfig

EIGHT = ("blackswan", "bmx-trees", "camel", "dance-twirl", "goat", "horsejump-high", "libby", "parkour")
ABLATED = "efficientnet-lite0-s8"
FORMER = "timecycle-v1"  # the encoder before: benchmarks/weights
OURS = (DEFAULT_ENCODER, FORMER)
_COMPARED = (*OURS, "identity", "dis-flow", "rgb", "random-resnet18", ABLATED, "vgg16")
_WITH_ALL_STEPS = (*OURS, "rgb", ABLATED, "vgg16")
# Evaluations whose worst sequences docs/results.md and docs/model.md show.
SHOWN = {
    "davis2016_480p_vgg16": "davis2016_480p_worst.png",
    f"davis2016_480p_default_{DEFAULT_ENCODER.replace('-', '_')}": "model_worst.png",
}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One row of a table; `name` is the report's file."""

    name: str
    find: Callable[[Path], Benchmark]
    encoder: str
    preset: str = "plain"
    settings: tuple[str, ...] = ()
    precision: Precision = "fp32"
    is_subset: bool = False  # of another evaluation's clips, whose predictions can be reused
    without_colour: bool = False  # leave the mean colour out of the descriptor: what the network itself gives

    def method(self) -> Method:
        if self.encoder in (Identity.name, OpticalFlow.name):
            return load_method(self.encoder)
        if not self.without_colour:
            return NearestNeighbours(load_named(self.encoder, precision=self.precision))
        name, _, seed = self.encoder.partition("@")
        called = f"{name}{WITHOUT_COLOUR}{seed and '@'}{seed}"
        return NearestNeighbours(load_named(self.encoder, ["colour=0"], precision=self.precision, called=called))


def evaluations() -> Iterator[Evaluation]:
    """Yield all evaluations, the cheapest groups first."""
    controls = (
        *OURS,
        "identity",
        "dis-flow",
        "rgb",
        "sift",
        "efficientnet-lite0-s8",
        "efficientnet-lite0-s16",
        "vgg16",
    )
    small = partial(Evaluation, settings=AT_240)
    for encoder in (*controls, "random-resnet18", "random-resnet18@1", "random-resnet18@2"):
        yield small(name=f"davis2016_240p_{_file(encoder)}", find=_davis(), encoder=encoder)
    yield from _untrained("davis2016_240p", OURS, find=_davis())
    for encoder in OURS:
        yield Evaluation(name=f"davis2016_240p_fast_{_file(encoder)}", find=_davis(), encoder=encoder, preset="fast")
    for encoder in _WITH_ALL_STEPS[len(OURS) :]:  # at 240p, ours are those of `fast`
        yield small(name=f"davis2016_240p_default_{_file(encoder)}", find=_davis(), encoder=encoder, preset="default")
    # All but the first reuse the predictions of the whole set.
    for encoder in (
        "random-resnet50",
        "random-resnet18",
        *OURS,
        "identity",
        "dis-flow",
        "rgb",
        "sift",
        "efficientnet-lite0-s8",
    ):
        yield small(name=f"davis2016_eight_240p_{_file(encoder)}", find=_davis(*EIGHT), encoder=encoder, is_subset=True)
    yield from _untrained("davis2016_eight_240p", OURS, find=_davis(*EIGHT), is_subset=True)
    for precision in get_args(Precision):
        yield small(
            name=f"davis2016_eight_240p_vgg16_{precision}",
            find=_davis(*EIGHT),
            encoder="vgg16",
            precision=precision,
            is_subset=True,
        )
    yield from _ablations()
    for encoder in _COMPARED:
        yield small(name=f"badja_240p_{_file(encoder)}", find=_badja, encoder=encoder)
        yield Evaluation(name=f"jhmdb_sample_{_file(encoder)}", find=_jhmdb, encoder=encoder)
    for encoder in (*OURS, "identity", "dis-flow", "rgb", "efficientnet-lite0-s8", "vgg16"):
        yield small(name=f"reconstruction_240p_{_file(encoder)}", find=_reconstruction, encoder=encoder)
    for name, find in {"badja": _badja, "reconstruction": _reconstruction}.items():
        yield small(
            name=f"{name}_240p_default_{_file(DEFAULT_ENCODER)}", find=find, encoder=DEFAULT_ENCODER, preset="default"
        )
    # In fp32 VGG-16 takes as long as all the others together, where the processor has units for bf16;
    # davis2016_eight_240p shows what bf16 changes.
    for encoder in _COMPARED:
        yield Evaluation(
            name=f"davis2016_480p_{_file(encoder)}",
            find=_davis(),
            encoder=encoder,
            precision="bf16" if encoder == "vgg16" else "fp32",
        )
    yield Evaluation(
        name=f"davis2016_480p_20_past_{_file(DEFAULT_ENCODER)}",
        find=_davis(),
        encoder=DEFAULT_ENCODER,
        settings=("past_frames=20", "neighbours=5"),
    )
    for encoder in _WITH_ALL_STEPS:
        yield Evaluation(
            name=f"davis2016_480p_default_{_file(encoder)}",
            find=_davis(),
            encoder=encoder,
            preset="default",
        )
    for encoder in OURS:
        yield Evaluation(name=f"davis2016_720p_best_{_file(encoder)}", find=_davis(), encoder=encoder, preset="best")
    # Of all steps of docs/decisions/engine.md, each removed, then subcells added.
    ablated = {_file(f"without {name}"): without(name) for name in STEPS}
    for suffix, settings in {**ablated, "and_subcells": (*ALL, *SUBCELLS)}.items():
        yield Evaluation(
            name=f"steps_480p_{suffix}_{_file(DEFAULT_ENCODER)}",
            find=_davis(),
            encoder=DEFAULT_ENCODER,
            preset="plain",
            settings=settings,
        )


def _untrained(prefix: str, forms: Sequence[str], **common: Any) -> Iterator[Evaluation]:
    """Yield the controls for what is learned: random weights in the encoders' own forms, and all without colour."""
    one = partial(Evaluation, settings=AT_240, **common)
    random = [f"random-{form}{seed}" for form in forms for seed in ("", "@1", "@2")]
    for encoder in random:
        yield one(name=f"{prefix}_{_file(encoder)}", encoder=encoder)
    for encoder in (*OURS, *random):
        yield one(name=f"{prefix}_{_file(encoder)}{_file(WITHOUT_COLOUR)}", encoder=encoder, without_colour=True)


def _ablations() -> Iterator[Evaluation]:
    """Yield ablations, each of one setting of plain inference at 240p."""
    changes: dict[str, dict[str, tuple[str, ...]]] = {
        "neighbours": {str(k): (f"neighbours={k}",) for k in (1, 5, 10, 20)},
        "references": {str(k): (f"past_frames={k}",) for k in (1, 3, 7, 20)},
        "window": {
            **{str(px): (f"window_px={px}", f"anchor_window_px={px}") for px in (24, 48, 96)},
            "none": ("window_px=none", "anchor_window_px=none"),
        },
        "resolution": {
            str(px): (f"image_size_px={px}", f"window_px={px // 5}", f"anchor_window_px={px // 5}")
            for px in (160, 240, 320, 480)
        },
    }
    for setting, values in changes.items():
        for value, settings in values.items():
            yield Evaluation(
                name=f"ablation_{setting}_{value}",
                find=_davis(*EIGHT),
                encoder=ABLATED,
                settings=(*AT_240, *settings),
                is_subset=True,
            )


def _davis(*names: str) -> Callable[[Path], Benchmark]:
    return lambda data: find_davis(data / "davis2016", names=names)


def _badja(data: Path) -> Benchmark:
    return find_badja(data / "badja", davis=data / "davis2016")


def _jhmdb(data: Path) -> Benchmark:
    # The sample clip is a training clip of the split, so it has to be named.
    clip = next((data / "jhmdb_sample" / "Rename_Images").glob("*/*"))
    return find_jhmdb(data / "jhmdb_sample", names=[clip.name])


def _reconstruction(data: Path) -> Benchmark:
    return find_reconstruction(data / "davis2016", gaps=(5, 10), stride=10)


def _file(encoder: str) -> str:
    return encoder.replace("-", "_").replace("@", "_").replace(" ", "_")


def reuse_predictions(
    folder: Path, whole: Benchmark, subset: Benchmark, method: Method, config: PropagateConfig
) -> None:
    """Copy the clips of a subset from an evaluation of the whole benchmark with the same method and settings."""
    subset_settings, whole_settings = (settings_of(benchmark, method, config) for benchmark in (subset, whole))
    for path in () if folder.exists() else sorted(folder.parent.glob(f"*/{FOLDER}.json")):
        record = read_record(path.parent)
        names = [clip.name for clip in subset.clips]
        if record["settings"] == whole_settings and set(names) <= set(record["clips"]):
            temporary = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(temporary, ignore_errors=True)
            for name in names:
                shutil.copytree(path.parent / FOLDER / name, temporary / FOLDER / name)
            record |= {"settings": subset_settings, "clips": {name: record["clips"][name] for name in names}}
            write_text(temporary / f"{FOLDER}.json", json.dumps(record, indent=2))
            temporary.rename(folder)
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of predictions")
    parser.add_argument("--only", nargs="*", default=[], metavar="PREFIX", help="only evaluations with these prefixes")
    chosen = parser.parse_args()
    for one in evaluations():
        if chosen.only and not one.name.startswith(tuple(chosen.only)):
            continue
        folder = chosen.work / one.name
        method = one.method()
        config = propagate_config(one.preset, one.settings)
        benchmark = one.find(chosen.data)
        if one.is_subset:
            reuse_predictions(folder, _davis()(chosen.data), benchmark, method, config)
        report = evaluate(benchmark, method, config, folder)
        shutil.copyfile(folder / REPORT, RESULTS / f"{one.name}.json")
        if one.name in SHOWN:
            write_pictures(report, folder, clips=benchmark.clips)
            shutil.copyfile(folder / "worst.png", RESULTS.parents[1] / "docs" / "images" / SHOWN[one.name])
        main_score = next(iter(report.scores.items()))
        print(f"{one.name}: {main_score[0]} {main_score[1]:.4f}, {report.seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
