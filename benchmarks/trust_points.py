"""What the confidence of points is worth: joints of BADJA, each on each annotated frame, against how far off it is.

    python benchmarks/trust_points.py DATA [--encoder NAME]

Four sequences at 240 pixels. How near a joint is takes the place that overlap has for masks: 1 on the spot, 0.5 at the
distance from which BADJA calls it wrong, 0 at twice that. Results: trust_points.json.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from record import write_record
from timecycle.config import propagate_config
from timecycle.evaluation.badja import AnnotatedClip, find_badja, read_truth
from timecycle.evaluation.metrics.keypoints import silhouette_reach
from timecycle.labels import Keypoints, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.evidence import SIGNALS
from timecycle.propagation.propagate import propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import open_video
from trust import Rows, measure

_ALPHA = 0.2  # of the root of the animal's area


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    chosen = parser.parse_args()
    began = time.monotonic()
    encoder, config = load_encoder(chosen.encoder), propagate_config("fast")
    benchmark = find_badja(chosen.data / "badja", davis=chosen.data / "davis2016")
    found = [row for sequence in benchmark.sequences for row in joints(sequence, encoder, config)]
    names, frames, nearness, signals = zip(*found, strict=True)
    measured = measure(Rows(names, np.array(frames), np.array(nearness), np.array(signals)), "place")
    for way, figures in measured["scores"].items():
        print(f"{way:30} " + " ".join(f"{figure} {value:.3f}" for figure, value in figures.items()))
    settings = {"encoder": encoder.name, "weights_sha256": encoder.sha256, "config": dataclasses.asdict(config)}
    write_record("trust_points", settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


def joints(
    sequence: AnnotatedClip, encoder: Encoder, config: PropagateConfig
) -> Iterator[tuple[str, float, float, list[float]]]:
    """Sequence, frames since the drawing, nearness and signals of every joint that was given and can be seen."""
    clip = sequence.clip
    truth = read_truth(sequence.annotation, clip.frames[0])
    area_px = np.array([np.count_nonzero(Masks.read(path).ids) for path in sequence.silhouettes], np.float64)
    reach_px = silhouette_reach(area_px, _ALPHA)
    rows = {index: row for row, index in enumerate(sequence.annotated)}
    with open_video(clip.frames) as video:
        given = {clip.first: clip.given()}
        for frame in propagate(video, given, encoder=encoder, config=config, trust=TrustConfig()):
            row = rows.get(frame.index, 0)
            points, confidence = frame.labels, frame.confidence
            if row == 0 or confidence is None or not isinstance(points, Keypoints):
                continue
            for place, name in enumerate(points.names):
                if truth.visible[0, place] and truth.visible[row, place] and name in confidence.objects:
                    off = float(np.linalg.norm(points.xy[place] - truth.xy[row, place]) / reach_px[row])
                    signals = [confidence.objects[name].signals[signal] for signal in SIGNALS]
                    yield clip.name, float(frame.index - clip.first), max(1 - off / 2, 0.0), signals


if __name__ == "__main__":
    sys.exit(main())
