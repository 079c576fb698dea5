"""Compare descriptors for propagation: centring, res2 features and colour beside the learned features; and settings.

    python benchmarks/descriptors.py WEIGHTS VIDEOS --work DIR [--only PREFIX ...]

Descriptors and settings are scored on the composites of held-out footage of benchmarks/recipes.py, never on DAVIS val.
Nothing is trained. Results: descriptor_NAME.json.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from encoders import save_changed
from inference import plain_at_240
from recipes import held_out_composites
from record import write_record
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import load_method
from timecycle.evaluation.protocols.composites import find_composites
from timecycle.files import make_folder


@dataclass(frozen=True)
class Descriptor:
    """Changes of the encoder and of the preset `fast`. `description` names it in tables."""

    description: str
    encoder: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


_PLAIN = ("centred=false", "fine=0", "colour=0")
_COLOUR = ("centred=false", "fine=0", "colour=1")
_CENTRED = ("centred=true", "fine=0", "colour=1")
_FINE = ("centred=true", "fine=0.5", "colour=1")
DESCRIPTORS = {
    "plain": Descriptor("learned features", _PLAIN),
    "colour": Descriptor("learned features and the cell's mean colour", _COLOUR),
    "centred": Descriptor("the same, mean-centred per image", _CENTRED),
    "fine": Descriptor("the same, with res2 features at weight 0.5", _FINE),
    "finer": Descriptor("the same, with res2 features at weight 1", ("centred=true", "fine=1", "colour=1")),
    "less_colour": Descriptor("res2 features and colour at weight 0.5", ("centred=true", "fine=0.5", "colour=0.5")),
    "k5": Descriptor("res2 at 0.5; 5 neighbours", _FINE, ("neighbours=5",)),
    "t04": Descriptor("res2 at 0.5; temperature 0.04", _FINE, ("temperature=0.04",)),
    "k5_t04": Descriptor("res2 at 0.5; 5 neighbours, temperature 0.04", _FINE, ("neighbours=5", "temperature=0.04")),
    "past_20": Descriptor("res2 at 0.5; 20 past frames", _FINE, ("past_frames=20",)),
    "past_20_k5": Descriptor("res2 at 0.5; 20 past frames, 5 neighbours", _FINE, ("past_frames=20", "neighbours=5")),
    "far": Descriptor(
        "res2 at 0.5; 20 past frames, 5 neighbours, no window for annotated frames",
        _FINE,
        ("past_frames=20", "neighbours=5", "anchor_window_px=none"),
    ),
    "near": Descriptor(
        "res2 at 0.5; 5 neighbours within 32 px",
        _FINE,
        ("neighbours=5", "window_px=32", "anchor_window_px=32"),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of composites and predictions")
    parser.add_argument("--only", nargs="*", default=[], metavar="PREFIX", help="only descriptors with these prefixes")
    chosen = parser.parse_args()
    benchmark = find_composites(held_out_composites(chosen.videos, chosen.work))
    for name, descriptor in DESCRIPTORS.items():
        if chosen.only and not name.startswith(tuple(chosen.only)):
            continue
        path = make_folder(chosen.work / "descriptors") / f"{name}.safetensors"
        save_changed(chosen.weights, descriptor.encoder, path)
        config = plain_at_240(descriptor.settings)
        folder = chosen.work / "predictions" / f"descriptor_{name}"
        report = evaluate(benchmark, load_method(str(path)), config, folder)
        write_record(
            f"descriptor_{name}",
            settings={
                "description": descriptor.description,
                "encoder": descriptor.encoder,
                "overrides": descriptor.settings,
            },
            measured={"scores": dict(report.scores), "weights_sha256": report.weights_sha256},
            seconds=report.seconds,
        )
        print(f"{name}: J {report.scores['J']:.4f} F {report.scores['F']:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
