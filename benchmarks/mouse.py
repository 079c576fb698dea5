"""Train five minutes on a lab's own video, and see whether its keypoints are found better.

    python benchmarks/mouse.py DATA --work DIR

The mouse of DATA/mirror_mouse, seen from the side and, in a mirror, from below: one unlabelled video to train on, and
29 labelled images of other recordings. The points of each image are propagated to the next five, without a window, as
the images are not neighbours in time. A point is correct within 0.1 and 0.05 of the size of the animal (PCK as for
JHMDB). Results: mouse.json.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cached_encoder import CachedEncoder
from record import write_record
from timecycle.config import propagate_config
from timecycle.evaluation.metrics.keypoints import Pck, box_threshold, pck, pool_clips
from timecycle.formats.deeplabcut import read as read_deeplabcut
from timecycle.formats.video_labels import VideoFacts
from timecycle.labels import Keypoints
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.video import propagate
from timecycle.training.record import read_journal
from timecycle.video import open_video

_THRESHOLDS = (0.1, 0.05)  # of the animal's size
_NEXT = 5  # images that the points of an image are propagated to, each from the image itself
_SETTINGS = ("image_size_px=240", "window_px=none", "anchor_window_px=none")

Labelled = tuple[np.ndarray, Keypoints]  # an image and its points


def read_images(folder: Path) -> list[Labelled]:
    """Read the labelled images of a folder in DeepLabCut's layout."""
    labels = read_deeplabcut(folder / "CollectedData.csv", VideoFacts()).labels  # of more images than there are
    with open_video(folder / "labeled-data") as images:
        return [
            (frame.image, points)
            for index, frame in enumerate(images)
            if isinstance(points := labels.get(index), Keypoints)
        ]


def pairs_pck(images: Sequence[Labelled], encoder: Encoder) -> dict[str, float]:
    """Propagate the points of each image to the next ones; returns PCK by threshold, in per cent."""
    cached, config = CachedEncoder(encoder), propagate_config("plain", _SETTINGS)
    scores: dict[float, list[Pck]] = {threshold: [] for threshold in _THRESHOLDS}
    for start, (image, points) in enumerate(images):
        for ahead in range(1, _NEXT + 1):
            other, true = images[(start + ahead) % len(images)]
            frames = propagate(open_video([image, other]), {0: points}, encoder=cached, config=config)
            found = [frame.labels for frame in frames][1]
            names = [name for name in points.names if name in true.names]
            predicted, ground_truth = (_positions(labels, names) for labels in (found, true))
            counted = np.ones((1, len(names)), bool)
            for threshold, pooled in scores.items():
                limit = box_threshold(ground_truth, counted, threshold)
                hits = pck(predicted, ground_truth, counted=counted, threshold_px=limit, first_frame="in")
                pooled.append(Pck(hits.correct.sum(keepdims=True), hits.counted.sum(keepdims=True)))
    return {f"pck_{threshold}": round(100 * pool_clips(pooled).mean, 2) for threshold, pooled in scores.items()}


def _positions(labels: object, names: Sequence[str]) -> np.ndarray:
    if not isinstance(labels, Keypoints):
        raise TypeError(f"{type(labels).__name__} where points were propagated")
    places = dict(zip(labels.names, labels.xy, strict=True))
    return np.array([[places[name] for name in names]], np.float64)


def train(video: Path, run: Path, *, minutes: float, start: str) -> dict[str, float]:
    """Train on the video as a user does, from the weights of an encoder; returns steps and minutes of the processor.

    On a machine that does other work, fewer of the minutes are those of the processor.
    """
    words = ["train", str(video), "-o", str(run), "--from", start, "--minutes", str(minutes)]
    subprocess.run([sys.executable, "-m", "timecycle", *words], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    steps = max(int(line["step"]) for line in read_journal(run) if "step" in line)
    return {"steps": steps, "cpu_minutes": round((used.ru_utime + used.ru_stime) / 60, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--only", nargs="*", default=[], metavar="ENCODER", help="score these; train and write nothing")
    chosen = parser.parse_args()
    began, folder = time.monotonic(), chosen.data / "mirror_mouse"
    images = read_images(folder)
    for name in chosen.only:
        print(name, pairs_pck(images, load_encoder(name)), flush=True)
    if chosen.only:
        return
    measured: dict[str, dict[str, float | str]] = {}
    run = chosen.work / "mouse"
    training = train(folder / "videos", run, minutes=chosen.minutes, start=DEFAULT_ENCODER)
    trained = run / "weights.safetensors"
    for name in (DEFAULT_ENCODER, str(trained), "rgb", "efficientnet-lite0-s8"):
        encoder = load_encoder(name)
        label = "trained" if name == str(trained) else name
        measured[label] = {**pairs_pck(images, encoder), "sha256": encoder.sha256}
        print(label, measured[label], flush=True)
    settings = {
        "images": len(images),
        "pairs": len(images) * _NEXT,
        "minutes": chosen.minutes,
        **training,
        "propagate": list(_SETTINGS),
    }
    write_record("mouse", settings=settings, measured=measured, seconds=time.monotonic() - began)


if __name__ == "__main__":
    main()
