"""Golden scores: three sequences of 15 frames each, at 240p in fp32, to detect unintended changes.

`python tests/evaluation/golden.py DATA` writes golden_scores.json again, after an intended change.
"""

import json
import sys
import tempfile
from pathlib import Path

from timecycle.config import propagate_config
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import load_method
from timecycle.evaluation.protocols.davis import find_davis

FIXTURE = Path(__file__).with_name("golden_scores.json")
SEQUENCES = ("blackswan", "horsejump-high", "libby")  # slow; fast and turning; often occluded
FRAMES = 15
METHODS = ("identity", "dis-flow", "rgb", "random-resnet18", "efficientnet-lite0-s8")
KEPT = ("J", "F", "J_decay")


def short_davis(davis: Path, folder: Path) -> Path:
    """Link the first frames of the sequences, in DAVIS's own layout."""
    for part in ("JPEGImages", "Annotations"):
        for name in SEQUENCES:
            target = folder / part / "480p" / name
            target.mkdir(parents=True)
            for path in sorted((davis / part / "480p" / name).iterdir())[:FRAMES]:
                (target / path.name).symlink_to(path)
    (folder / "ImageSets").symlink_to(davis / "ImageSets")
    return folder


def scores(davis: Path, method: str, folder: Path) -> dict[str, dict[str, float]]:
    """Return J, F and decay of every sequence of a short DAVIS."""
    benchmark = find_davis(davis, names=SEQUENCES)
    report = evaluate(benchmark, load_method(method, device="cpu"), propagate_config("fast"), folder)
    return {name: {key: clip[key] for key in KEPT} for name, clip in report.per_sequence.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        short = short_davis(Path(sys.argv[1]).resolve() / "davis2016", Path(temporary) / "davis")
        golden = {method: scores(short, method, Path(temporary) / method) for method in METHODS}
    FIXTURE.write_text(json.dumps(golden, indent=1) + "\n")
