"""Evaluate the confidence of keypoints against their error: every joint of BADJA on every annotated frame.

    python benchmarks/confidence_points.py DATA [--encoder NAME]

Four sequences at 240 pixels. Nearness replaces the overlap of masks: 1 at the true position, 0.5 at the threshold
beyond which BADJA counts a joint as wrong, 0 at twice that distance. Results: confidence_points.json.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from confidence import SignalTable, measure
from record import write_record
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.confidence.signals import SIGNALS
from timecycle.config import propagate_config
from timecycle.evaluation.metrics.keypoints import silhouette_threshold
from timecycle.evaluation.protocols.badja import AnnotatedClip, find_badja, read_ground_truth
from timecycle.labels import Keypoints, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.video import open_video

_ALPHA = 0.2  # of the root of the animal's area


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    chosen = parser.parse_args()
    began = time.monotonic()
    encoder, config = load_encoder(chosen.encoder), propagate_config("fast")
    benchmark = find_badja(chosen.data / "badja", davis=chosen.data / "davis2016")
    rows = [row for sequence in benchmark.sequences for row in joint_rows(sequence, encoder, config)]
    names, frames, nearness, signals = zip(*rows, strict=True)
    measured = measure(SignalTable(names, np.array(frames), np.array(nearness), np.array(signals)), "point")
    for estimate, scores in measured["scores"].items():
        print(f"{estimate:30} " + " ".join(f"{metric} {value:.3f}" for metric, value in scores.items()))
    settings = {"encoder": encoder.name, "weights_sha256": encoder.sha256, "config": dataclasses.asdict(config)}
    write_record("confidence_points", settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


def joint_rows(
    sequence: AnnotatedClip, encoder: Encoder, config: PropagateConfig
) -> Iterator[tuple[str, float, float, list[float]]]:
    """Yield sequence, frames since the annotation, nearness and signals of every given and visible joint."""
    clip = sequence.clip
    ground_truth = read_ground_truth(sequence.annotation, clip.frames[0])
    area_px = np.array([np.count_nonzero(Masks.read(path).ids) for path in sequence.silhouettes], np.float64)
    threshold_px = silhouette_threshold(area_px, _ALPHA)
    rows = {index: row for row, index in enumerate(sequence.annotated_frames)}
    with open_video(clip.frames) as video:
        annotation = {clip.annotated_frame: clip.read_annotation()}
        for frame in propagate(video, annotation, encoder=encoder, config=config, confidence=ConfidenceConfig()):
            row = rows.get(frame.index, 0)
            points, confidence = frame.labels, frame.confidence
            if row == 0 or confidence is None or not isinstance(points, Keypoints):
                continue
            for joint, name in enumerate(points.names):
                if ground_truth.visible[0, joint] and ground_truth.visible[row, joint] and name in confidence.objects:
                    error = float(np.linalg.norm(points.xy[joint] - ground_truth.xy[row, joint]) / threshold_px[row])
                    signals = [confidence.objects[name].signals[signal] for signal in SIGNALS]
                    yield clip.name, float(frame.index - clip.annotated_frame), max(1 - error / 2, 0.0), signals


if __name__ == "__main__":
    sys.exit(main())
