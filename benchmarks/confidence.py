"""Evaluate confidence: it is fitted on composites, without human labels, and tested against DAVIS-2016 val.

    python benchmarks/confidence.py DATA --work DIR [--encoder NAME] [--preset NAME] [--fit VIDEOS]

Labels are propagated from the first frame of every sequence, and each frame's signals are stored with its true
overlap: confidence_PRESET.csv. Metrics and curves: confidence_PRESET.json. With --fit the weights of
presets/confidence.toml are fitted instead, on articulated composites of VIDEOS, footage that the encoder was not
trained on. The fit includes labels that are wrong although they match well: labels that stay in their first position,
and labels of the mirrored object.
"""

import argparse
import csv
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from external_labels import score_labels
from ranking import auroc, risk_coverage, spearman
from record import RESULTS, write_record
from timecycle.confidence.fusion import Confidence, ConfidenceConfig, WeightSet, fitted_weights, fuse
from timecycle.confidence.signals import SIGNALS
from timecycle.config import propagate_config
from timecycle.data.augment.articulated import ArticulatedConfig
from timecycle.evaluation.benchmark import Benchmark, Clip
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.evaluation.protocols.composites import find_composites, make_composites
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.files import make_folder
from timecycle.labels import Labels, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.video import Video, open_video

Failure = Literal["static", "mirrored"]
FAILURES: tuple[Failure, ...] = get_args(Failure)
# Signals from comparisons with other frames, and signals of the votes, their history and the object's shape.
SUPPORT_SIGNALS = tuple(name for name in SIGNALS if name.startswith(("past_", "annotation_")) or name == "appearance")
REGION_SIGNALS = ("margin", "certainty", "mean_margin", "min_margin", "recency", "size", "edges", "interior")
BAD = 0.5  # a frame with a lower overlap needs a correction
_POINTS = 50  # of a curve
# Of the second sum: signals that mostly agree share its weight, so that each failure shows, also those that composites
# lack. Labels that swap contradict the annotated frame only.
_SHARED = 0.03
_SEED = 8  # of the composites: not those on which settings are chosen


@dataclass(frozen=True, eq=False)
class SignalTable:
    """One row per propagated frame: its sequence, the frames since the annotation, its true overlap, its signals."""

    sequence: Sequence[str]
    frame: Float64[np.ndarray, " rows"]
    overlap: Float64[np.ndarray, " rows"]
    signals: Float64[np.ndarray, "rows signals"]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.frame, self.overlap, self.signals

    def __len__(self) -> int:
        return len(self.overlap)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of intermediate tables")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; writes no result")
    parser.add_argument("--fit", type=Path, metavar="VIDEOS", help="fit the weights on footage, and print them")
    chosen = parser.parse_args()
    encoder, config = load_encoder(chosen.encoder), propagate_config(chosen.preset)
    if chosen.fit:
        work = make_folder(chosen.work)
        composites = find_composites(make_composites(chosen.fit, work / "composites", ArticulatedConfig(seed=_SEED)))
        propagated = collect_propagated(composites, encoder, config, work / "composites.csv")
        wrong = {
            failure: collect_wrong(composites, encoder, config, work / f"{failure}.csv", failure=failure)
            for failure in FAILURES
        }
        print(toml_of("region", fit(propagated, only=REGION_SIGNALS)))
        print(toml_of("support", fit(concatenate([propagated, *wrong.values()]), only=SUPPORT_SIGNALS, ridge=_SHARED)))
        for failure, table in wrong.items():
            confidence = fuse(torch.from_numpy(table.signals).float(), "region")
            print(
                f"# {failure}: overlap {table.overlap.mean():.2f}, "
                f"confidence with the stored weights {float(confidence.mean()):.2f}"
            )
        return 0
    began = time.monotonic()
    name = f"confidence_{chosen.preset}" if not chosen.names else "confidence_some"
    benchmark = find_davis(chosen.data / "davis2016", names=chosen.names)
    table = collect_propagated(benchmark, encoder, config, make_folder(chosen.work) / f"{name}.csv")
    measured = measure(table)
    for estimate, scores in measured["scores"].items():
        print(f"{estimate:20} " + " ".join(f"{metric} {value:.3f}" for metric, value in scores.items()))
    if not chosen.names:
        (RESULTS / f"{name}.csv").write_bytes((chosen.work / f"{name}.csv").read_bytes())
        settings = {"encoder": encoder.name, "weights_sha256": encoder.sha256, "config": dataclasses.asdict(config)}
        write_record(name, settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


# Collecting signals


def collect_propagated(benchmark: Benchmark, encoder: Encoder, config: PropagateConfig, path: Path) -> SignalTable:
    """Collect the signals of labels that are propagated from the first frame."""

    def estimate(clip: Clip, ground_truth: Mapping[int, Masks], video: Video) -> Iterator[_Estimate]:
        annotation = {0: clip.read_annotation()}
        for frame in propagate(video, annotation, encoder=encoder, config=config, confidence=ConfidenceConfig()):
            if frame.confidence is not None and isinstance(frame.labels, Masks):
                yield _Estimate(frame.index, frame.labels, frame.confidence)

    return _collect(benchmark, path, estimate)


def collect_wrong(
    benchmark: Benchmark, encoder: Encoder, config: PropagateConfig, path: Path, *, failure: Failure
) -> SignalTable:
    """Collect the signals of wrong labels that were not propagated."""

    def estimate(clip: Clip, ground_truth: Mapping[int, Masks], video: Video) -> Iterator[_Estimate]:
        first = ground_truth[0]
        labels: dict[int, Labels] = {
            index: first if failure == "static" or index == 0 else Masks.of(masks.ids[:, ::-1])
            for index, masks in ground_truth.items()
        }
        for index, confidence in score_labels(video, labels, trusted=[0], encoder=encoder, config=config):
            yield _Estimate(index, cast(Masks, labels[index]), confidence)

    return _collect(benchmark, path, estimate)


@dataclass(frozen=True, eq=False)
class _Estimate:
    """The confidence of one frame's masks."""

    index: int
    masks: Masks
    confidence: Confidence


_Estimator = Callable[[Clip, Mapping[int, Masks], Video], Iterator[_Estimate]]


def _collect(benchmark: Benchmark, path: Path, estimate: _Estimator) -> SignalTable:
    """Add the missing sequences to a table on disk, one after the other, and read it."""
    columns = ["sequence", "frame", "overlap", *SIGNALS]
    kept = list(csv.reader(path.open())) if path.exists() else [columns]
    if kept[0] != columns:
        raise SystemExit(f"error: {path} has different columns\n  try: remove it")
    done = {row[0] for row in kept[1:]}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(kept)
        for clip in benchmark.clips:
            if clip.name in done:
                continue
            files = sorted(file for file in benchmark.ground_truth_files if file.parent.name == clip.name)
            ground_truth = {index: Masks.read(path) for index, path in enumerate(files)}
            rows = []
            with open_video(clip.frames) as video:
                for one in estimate(clip, ground_truth, video):
                    if one.index not in ground_truth or one.index == 0:
                        continue
                    overlap = jaccard(one.masks.ids > 0, ground_truth[one.index].ids > 0)
                    (single,) = one.confidence.objects.values()
                    signals = (f"{single.signals[name]:.4f}" for name in SIGNALS)
                    rows.append((clip.name, one.index, f"{overlap:.4f}", *signals))
            writer.writerows(rows)  # all frames of a clip or none
            file.flush()
            print(clip.name, flush=True)
    return read_table(path)


def read_table(path: Path) -> SignalTable:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return SignalTable(
        [row["sequence"] for row in rows],
        np.array([float(row["frame"]) for row in rows]),
        np.array([float(row["overlap"]) for row in rows]),
        np.array([[float(row[name]) for name in SIGNALS] for row in rows]),
    )


# Fitting


def concatenate(tables: Sequence[SignalTable]) -> SignalTable:
    """Concatenate tables; sequences of the same name in different tables stay distinct."""
    names = [f"{number} {name}" for number, table in enumerate(tables) for name in table.sequence]
    columns = zip(*(table.arrays for table in tables), strict=True)
    return SignalTable(names, *(np.concatenate(column) for column in columns))


def fit(
    table: SignalTable, *, only: Sequence[str] = SIGNALS, ridge: float = 1e-3, steps: int = 300
) -> dict[str, float]:
    """Fit weights of some signals to the overlap by logistic regression; every sequence weighs the same.

    Weights are not negative: every signal is defined so that higher is better, and a few sequences must not reverse it.
    """
    counts = {name: list(table.sequence).count(name) for name in set(table.sequence)}
    share = torch.tensor([1 / counts[name] for name in table.sequence], dtype=torch.float64)
    signals = torch.from_numpy(table.signals[:, [SIGNALS.index(name) for name in only]])
    overlap = torch.from_numpy(table.overlap)
    mean, spread = signals.mean(dim=0), signals.std(dim=0).clamp_min(1e-6)
    root = torch.full((signals.shape[1],), 0.5, dtype=torch.float64, requires_grad=True)  # square root of the weights
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([root, bias], max_iter=steps)

    def loss() -> Tensor:
        optimizer.zero_grad()
        logit = ((signals - mean) / spread) @ root.square() + bias
        cost = torch.nn.functional.binary_cross_entropy_with_logits(logit, overlap, weight=share)
        total = cost / share.mean() + ridge * root.square().square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    scaled = (root.square() / spread).detach()
    weights = {name: round(float(value), 3) for name, value in zip(only, scaled, strict=True)}
    return {"bias": round(float(bias.detach() - (mean * scaled).sum()), 3), **weights}


def toml_of(weight_set: str, weights: Mapping[str, float]) -> str:
    """Format the nonzero weights as in presets/confidence.toml."""
    return f"[{weight_set}]\n" + "\n".join(f"{name} = {value}" for name, value in weights.items() if value)


# Metrics


def measure(table: SignalTable, weight_set: WeightSet = "region") -> dict[str, Any]:
    """Compare the fused confidence with single signals and with weights fitted on ground truth."""
    estimates = {
        "fused": fuse(torch.from_numpy(table.signals).float(), weight_set).double().numpy(),
        "fused, fitted on the others": _leave_one_out(table, weight_set),
        "frames since the annotation alone": -table.frame,
        **{f"{name} alone": table.signals[:, i] for i, name in enumerate(SIGNALS)},
    }
    error, bad = 1 - table.overlap, table.overlap < BAD
    scores, curves = {}, {}
    for name, confidence in estimates.items():
        curve = risk_coverage(confidence, error)
        scores[name] = {
            "auroc_j50": round(auroc(confidence, bad), 4),
            "spearman_j": round(spearman(confidence, table.overlap), 4),
            "area_under_risk": round(curve.area, 4),
        }
        at = np.linspace(0, len(table) - 1, _POINTS).round().astype(int)
        curves[name] = [[round(float(curve.coverage[i]), 3), round(float(curve.risk[i]), 4)] for i in at]
    return {
        "frames": len(table),
        "bad_frames": int(bad.sum()),
        "mean_j": round(float(table.overlap.mean()), 4),
        "weights": dict(fitted_weights()[weight_set]),
        "scores": scores,
        "risk_coverage": curves,
    }


def _leave_one_out(table: SignalTable, weight_set: WeightSet) -> Float64[np.ndarray, " rows"]:
    """Return the confidence of every sequence with weights fitted to the true overlap of all the others."""
    confidence = np.zeros(len(table))
    names = np.array(table.sequence)
    only = REGION_SIGNALS if weight_set == "region" else SIGNALS
    for name in sorted(set(table.sequence)):
        inside = names == name
        others = SignalTable(names[~inside].tolist(), *(array[~inside] for array in table.arrays))
        signals = torch.from_numpy(table.signals[inside]).float()
        confidence[inside] = fuse(signals, weight_set, fit(others, only=only)).double().numpy()
    return confidence


if __name__ == "__main__":
    sys.exit(main())
