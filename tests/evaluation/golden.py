"""Scores of three sequences, 15 frames each, at 240p in fp32: what no change may move unseen.

`python tests/evaluation/golden.py DATA` writes golden_scores.json anew, after a change that is meant to move them.
"""

import json
import sys
import tempfile
from pathlib import Path

from timecycle.config import propagate_config
from timecycle.evaluation.davis import find_davis
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods import load_method

FIXTURE = Path(__file__).with_name("golden_scores.json")
SEQUENCES = ("blackswan", "horsejump-high", "libby")  # slow, fast and turning; much of the object hidden at times
FRAMES = 15
METHODS = ("identity", "dis-flow", "rgb", "random-resnet18", "efficientnet-lite0-s8")
KEPT = ("J", "F", "J_decay")


def short_davis(davis: Path, folder: Path) -> Path:
    """The first frames of the sequences, as links in DAVIS's own layout."""
    for part in ("JPEGImages", "Annotations"):
        for name in SEQUENCES:
            target = folder / part / "480p" / name
            target.mkdir(parents=True)
            for path in sorted((davis / part / "480p" / name).iterdir())[:FRAMES]:
                (target / path.name).symlink_to(path)
    (folder / "ImageSets").symlink_to(davis / "ImageSets")
    return folder


def scores(davis: Path, method: str, folder: Path) -> dict[str, dict[str, float]]:
    """J, F and decay of every sequence; `davis` is a short tree."""
    benchmark = find_davis(davis, names=SEQUENCES)
    report = evaluate(benchmark, load_method(method, device="cpu"), propagate_config("fast"), folder)
    return {name: {key: clip[key] for key in KEPT} for name, clip in report.per_sequence.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        short = short_davis(Path(sys.argv[1]).resolve() / "davis2016", Path(temporary) / "davis")
        found = {method: scores(short, method, Path(temporary) / method) for method in METHODS}
    FIXTURE.write_text(json.dumps(found, indent=1) + "\n")
