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
from timecycle.propagation.settings import PropagateConfig

FIXTURE = Path(__file__).with_name("golden_scores.json")
SEQUENCES = ("blackswan", "horsejump-high", "libby")  # slow; fast and turning; often occluded
FRAMES = 15
METHODS = ("identity", "dis-flow", "rgb", "random-resnet18", "efficientnet-lite0-s8")
PLAIN_240P = ("image_size_px=240", "window_px=48", "anchor_window_px=48")
KEPT = ("J", "F", "J_decay")


def cases() -> dict[str, tuple[str, PropagateConfig]]:
    """Return what is scored: every method with plain inference at 240p, and the presets with all steps."""
    plain = propagate_config("plain", PLAIN_240P)
    small = {"fast": (), "best": ("image_size_px=360", "window_px=72", "anchor_window_px=72")}
    with_steps = {f"rgb {preset}": ("rgb", propagate_config(preset, settings)) for preset, settings in small.items()}
    return {method: (method, plain) for method in METHODS} | with_steps


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


def scores(davis: Path, method: str, config: PropagateConfig, folder: Path) -> dict[str, dict[str, float]]:
    """Return J, F and decay of every sequence of a short DAVIS."""
    benchmark = find_davis(davis, names=SEQUENCES)
    report = evaluate(benchmark, load_method(method, device="cpu"), config, folder)
    return {name: {key: clip[key] for key in KEPT} for name, clip in report.per_sequence.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        short = short_davis(Path(sys.argv[1]).resolve() / "davis2016", Path(temporary) / "davis")
        golden = {
            name: scores(short, method, config, Path(temporary) / name) for name, (method, config) in cases().items()
        }
    FIXTURE.write_text(json.dumps(golden, indent=1) + "\n")
