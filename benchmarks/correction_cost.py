"""Measure the CPU time of corrections relative to propagating the whole clip.

    python benchmarks/correction_cost.py DATA [--before REPOSITORY] [--name bmx-trees] [--repeats 2] [--dry]

A clip of DAVIS-2016 val at default settings with the bundled encoder, one thread. The first mask is annotated; then the
middle frame is corrected, then the frame half-way between it and the first, and on a copy of the first run two frames
together. Each action runs in its own process, whose start is not counted. With --before the same is measured with the
code of another copy of the repository, alternating with this one; the fastest repeat counts. Results:
correction_cost.json.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).resolve()


def main() -> None:
    from record import write_record  # noqa: PLC0415  the measured process may run an older package without it

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with davis2016/")
    parser.add_argument("--before", type=Path, help="another copy of this repository, to compare with")
    parser.add_argument("--name", default="bmx-trees")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="write no record")
    chosen = parser.parse_args()
    began = time.monotonic()
    packages = {"before": chosen.before.resolve() / "src"} if chosen.before else {}
    packages["after"] = _HERE.parents[1] / "src"
    with tempfile.TemporaryDirectory() as work:
        seconds = [_measure(packages, chosen.data, chosen.name, Path(work, str(n))) for n in range(chosen.repeats)]
    count = _frames(chosen.data, chosen.name)
    measured = {name: _summary([one[name] for one in seconds], count) for name in packages}
    print(json.dumps(measured, indent=2))
    if not chosen.dry:
        settings = {"data": "davis2016 val", "sequence": chosen.name, "threads": 1, "repeats": chosen.repeats}
        print(write_record("correction_cost", settings=settings, measured=measured, seconds=time.monotonic() - began))


# In the measuring process


def _measure(packages: Mapping[str, Path], data: Path, name: str, work: Path) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of every action with each package; packages alternate."""
    count = _frames(data, name)
    two = [count // 3, 2 * count // 3]
    actions = {
        "propagate": ("propagate", "one", [0]),
        "correct_two_together": ("correct", "copy", two),
        "correct_one": ("correct", "one", [count // 2]),
        "correct_between": ("correct", "one", [count // 4]),
        "propagate_middle_too": ("propagate", "both", [0, count // 2]),
        "propagate_all_at_once": ("propagate", "three", [0, *two]),
    }
    seconds: dict[str, dict[str, float]] = {version: {} for version in packages}
    for title, (verb, folder, frames) in actions.items():
        for version, package in packages.items():
            here = work / version
            if folder == "copy":
                shutil.copytree(here / "one", here / "copy")
            command = [sys.executable, str(_HERE), "run", verb, str(data), name, str(here / folder), json.dumps(frames)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package)}
            process = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            seconds[version][title] = float(process.stdout.split()[-1])
            print(title, version, seconds[version][title], flush=True)
    return seconds


def _frames(data: Path, name: str) -> int:
    return len(list((data / "davis2016" / "JPEGImages" / "480p" / name).glob("*.jpg")))


def _summary(repeats: list[dict[str, float]], count: int) -> dict[str, object]:
    """Return the fastest repeat, and the ratio of each correction to its interval's share of propagating."""
    fastest = {action: round(min(one[action] for one in repeats), 2) for action in repeats[0]}
    rest, half = (count - 1) / count, (count // 2 - 1) / count  # share of the frames that are propagated again
    share = {
        "correct_one": (rest, "propagate"),
        "correct_between": (half, "propagate_middle_too"),
        "correct_two_together": (rest, "propagate"),
    }
    return {
        "cpu_seconds": fastest,
        "interval_share": {action: round(part, 4) for action, (part, _) in share.items()},
        "ratio_to_share_of_propagating": {
            action: round(fastest[action] / (part * fastest[whole]), 3) for action, (part, whole) in share.items()
        },
        "ratio_to_share_of_propagating_from_one_frame": {
            action: round(fastest[action] / (part * fastest["propagate"]), 3) for action, (part, _) in share.items()
        },
    }


# In the measured process


def run_action(verb: str, data: Path, name: str, folder: Path, frames: list[int]) -> float:
    """Propagate or correct with the imported package; returns CPU seconds of all threads."""
    import torch  # noqa: PLC0415

    from timecycle.labels import Masks  # noqa: PLC0415
    from timecycle.model.registry import load_encoder  # noqa: PLC0415
    from timecycle.propagation.settings import PropagateConfig  # noqa: PLC0415
    from timecycle.review.corrections import correct  # noqa: PLC0415
    from timecycle.runs.run import RunSpec, run  # noqa: PLC0415
    from timecycle.video import open_video  # noqa: PLC0415

    torch.set_num_threads(1)
    davis = data / "davis2016"
    video, encoder = open_video(davis / "JPEGImages" / "480p" / name), load_encoder()
    masks = {index: Masks.read(davis / "Annotations" / "480p" / name / f"{index:05d}.png") for index in frames}
    began = time.process_time()
    if verb == "propagate":
        run(RunSpec(video=video, labels=masks, encoder=encoder, config=PropagateConfig()), folder)
    else:
        correct(folder, masks, video=video, encoder=encoder)
    return time.process_time() - began


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        verb, data, name, folder, frames = sys.argv[2:]
        print(run_action(verb, Path(data), name, Path(folder), json.loads(frames)))
    else:
        main()
