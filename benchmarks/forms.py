"""In which form labels are carried: what is done to the learned numbers, what stands beside them, and how cells vote.

    python benchmarks/forms.py WEIGHTS VIDEOS --work DIR [--only PREFIX ...]

Forms and settings are judged on the composites of held-out footage that recipes are judged on (benchmarks/recipes.py),
never on DAVIS val. Nothing is trained. Results: form_NAME.json.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from recipes import held_out_composites
from record import write_record
from ship import save_in_form
from timecycle.config import propagate_config
from timecycle.evaluation.composites import find_composites
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods import load_method
from timecycle.files import make_folder


@dataclass(frozen=True)
class Form:
    """What it changes in the encoder and in the preset `fast`. `words` is what tables call it."""

    words: str
    encoder: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


_PLAIN = ("centred=false", "fine=0", "colour=0")
_COLOUR = ("centred=false", "fine=0", "colour=1")
_CENTRED = ("centred=true", "fine=0", "colour=1")
_FINE = ("centred=true", "fine=0.5", "colour=1")
FORMS = {
    "plain": Form("what was learned", _PLAIN),
    "colour": Form("and the cell's own colour", _COLOUR),
    "centred": Form("the same, without the picture's mean", _CENTRED),
    "fine": Form("the same, and half as much of res2", _FINE),
    "finer": Form("the same, and as much of res2", ("centred=true", "fine=1", "colour=1")),
    "less_colour": Form("half as much of res2 and of colour", ("centred=true", "fine=0.5", "colour=0.5")),
    "k5": Form("half as much of res2; 5 neighbours", _FINE, ("neighbours=5",)),
    "t04": Form("half as much of res2; temperature 0.04", _FINE, ("temperature=0.04",)),
    "k5_t04": Form("half as much of res2; 5 neighbours, temperature 0.04", _FINE, ("neighbours=5", "temperature=0.04")),
    "past_20": Form("half as much of res2; 20 past frames", _FINE, ("past_frames=20",)),
    "past_20_k5": Form("half as much of res2; 20 past frames, 5 neighbours", _FINE, ("past_frames=20", "neighbours=5")),
    "far": Form(
        "half as much of res2; 20 past frames, 5 neighbours, drawings searched everywhere",
        _FINE,
        ("past_frames=20", "neighbours=5", "anchor_window_px=none"),
    ),
    "near": Form(
        "half as much of res2; 5 neighbours within 32 px",
        _FINE,
        ("neighbours=5", "window_px=32", "anchor_window_px=32"),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where footage and predictions are kept")
    parser.add_argument("--only", nargs="*", default=[], help="forms whose names begin so")
    chosen = parser.parse_args()
    benchmark = find_composites(held_out_composites(chosen.videos, chosen.work))
    for name, form in FORMS.items():
        if chosen.only and not name.startswith(tuple(chosen.only)):
            continue
        path = make_folder(chosen.work / "forms") / f"{name}.safetensors"
        save_in_form(chosen.weights, form.encoder, path)
        config = propagate_config("fast", form.settings)
        report = evaluate(benchmark, load_method(str(path)), config, chosen.work / "predictions" / f"form_{name}")
        write_record(
            f"form_{name}",
            settings={"words": form.words, "encoder": form.encoder, "changed": form.settings},
            measured={"scores": dict(report.scores), "weights_sha256": report.weights_sha256},
            seconds=report.seconds,
        )
        print(f"{name}: J {report.scores['J']:.4f} F {report.scores['F']:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
