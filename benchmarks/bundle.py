"""Bundle weights with the package: half precision, named with their checksum, with a card.

    python benchmarks/bundle.py RUN/weights.safetensors --name timecycle-v2 --stages free_1 ... [--set colour=1 ...]

The card names the training footage, the licence, and the steps and hours of training, from the records of
benchmarks/learn.py. Scores are in docs/model.md.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from encoders import load_changed
from record import RESULTS
from timecycle.files import sha256
from timecycle.model.weights import Card, bundled_weights, read_card, save_weights

_FOLDER = Path(__file__).parents[1] / "src" / "timecycle" / "weights"
_FREE = "183 raw clips of free footage (CC0, CC BY, MIT, BSD, Apache-2.0), named in THIRD_PARTY_NOTICES"
_FREE_TERMS = "Apache-2.0: all of the footage may be used commercially; see docs/model.md"
# Footage and terms of weights, by the videos of their training runs in benchmarks/learn.py.
_ORIGINS = {
    ".": (
        "668 raw clips: UCF-101, DAVIS-2017 train, and small sets of surveillance, robot, face and everyday video",
        "CC-BY-NC-4.0: part of the footage is for research or non-commercial use only; see docs/model.md",
    ),
    "free": (_FREE, _FREE_TERMS),
    "synthetic": (f"{_FREE}, and 190 synthetic ones: dead leaves, and composites of these clips", _FREE_TERMS),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--stages", nargs="+", required=True, help="the runs that led to these weights, in order")
    parser.add_argument("--set", nargs="+", default=[], help="encoder settings for propagation that training lacks")
    chosen = parser.parse_args()
    model, trained = load_changed(chosen.weights, chosen.set), read_card(chosen.weights)
    records = [json.loads((RESULTS / f"training_{stage}.json").read_text(encoding="utf-8")) for stage in chosen.stages]
    steps = sum(record["settings"]["steps"] for record in records)
    hours = sum(record["seconds"] for record in records) / 3600
    runs = ", ".join(chosen.stages)
    (videos,) = {record["settings"]["videos"] for record in records}
    footage, terms = _ORIGINS[videos]
    card = Card(
        encoder=model.config,
        trained_on=f"{footage}; no labels, no other weights",
        licence=terms,
        notes=f"{steps:,} steps of walks, {hours:.1f} hours on two CPU cores, from scratch; runs: {runs}",
        scores=trained.scores if trained else {},
        source={"weights_sha256": records[-1]["measured"]["weights_sha256"], "commit": records[-1]["commit"]},
    )
    for name, old in bundled_weights().items():
        if name == chosen.name:
            old.unlink()
            old.with_suffix(".json").unlink(missing_ok=True)
    draft = _FOLDER / f".{chosen.name}.safetensors"
    save_weights(draft, model, card, half=True)
    named = f"{chosen.name}-{sha256([draft])[:8]}"
    for suffix in (".safetensors", ".json"):
        draft.with_suffix(suffix).rename(_FOLDER / f"{named}{suffix}")
    print(f"{_FOLDER / named}.safetensors: {dataclasses.asdict(card)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
