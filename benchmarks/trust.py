"""What confidence is worth: fitted on composites without a label, tried on DAVIS-2016 val against its truth.

    python benchmarks/trust.py DATA --work DIR --composites DIR [--encoder NAME] [--preset NAME] [--fit]

Labels are carried from the first frame of every sequence, and each frame's signals are kept beside its true overlap:
trust_PRESET.csv. Figures and curves: trust_PRESET.json. With --fit the weights of presets/confidence.toml are made
instead, from composites that benchmarks/recipes.py made of held-out training footage. What becomes of labels that are
wrong and look sure stands beside the figures: such as stay where they were drawn, and such as follow something else.
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

from record import RESULTS, write_record
from timecycle.config import propagate_config
from timecycle.evaluation.benchmark import Benchmark, Clip
from timecycle.evaluation.composites import find_composites
from timecycle.evaluation.davis import find_davis
from timecycle.evaluation.metrics.ranking import auroc, risk_coverage, spearman
from timecycle.evaluation.metrics.regions import jaccard
from timecycle.files import make_folder
from timecycle.labels import Labels, Masks
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.confidence import Confidence, Form, TrustConfig, fitted, fuse
from timecycle.propagation.evidence import SIGNALS
from timecycle.propagation.propagate import propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.testimony import examine
from timecycle.video import Video, open_video

Wrong = Literal["stuck", "astray"]
WRONG: tuple[Wrong, ...] = get_args(Wrong)
# What other frames say of an object, and what is told from its votes, its way and its shape.
WITNESSED = tuple(name for name in SIGNALS if name.startswith(("past_", "drawing_")) or name == "appearance")
OUTLINE = ("margin", "certainty", "way", "lowest", "fresh", "size", "bulk")
BAD = 0.5  # overlap below which a frame has to be corrected
_POINTS = 50  # of a curve

Table = Float64[np.ndarray, "rows columns"]


@dataclass(frozen=True, eq=False)
class Rows:
    """One row for every carried frame: where it is from, its true overlap, and its signals."""

    sequence: Sequence[str]
    frame: Float64[np.ndarray, " rows"]
    overlap: Float64[np.ndarray, " rows"]
    signals: Table

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """Everything but the names."""
        return self.frame, self.overlap, self.signals

    def __len__(self) -> int:
        return len(self.overlap)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where rows are kept until they are complete")
    parser.add_argument("--composites", type=Path, help="needed with --fit")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--names", nargs="*", default=[], help="only these sequences; nothing is kept")
    parser.add_argument("--fit", action="store_true", help="fit the weights first")
    chosen = parser.parse_args()
    encoder, config = load_encoder(chosen.encoder), propagate_config(chosen.preset)
    if chosen.fit:
        composites, work = find_composites(chosen.composites), make_folder(chosen.work)
        carried = collect(composites, encoder, config, work / "composites.csv")
        wrong = {way: collect_wrong(composites, encoder, config, work / f"{way}.csv", way=way) for way in WRONG}
        print(toml_of("outline", fit(carried, only=OUTLINE)))
        print(toml_of("support", fit(joined([carried, *wrong.values()]), only=WITNESSED)))
        for way, rows in wrong.items():
            trust = fuse(torch.from_numpy(rows.signals).float(), "outline")
            print(f"# {way}: overlap {rows.overlap.mean():.2f}, confidence as fitted before {float(trust.mean()):.2f}")
        return 0
    began = time.monotonic()
    name = f"trust_{chosen.preset}" if not chosen.names else "trust_some"
    benchmark = find_davis(chosen.data / "davis2016", names=chosen.names)
    rows = collect(benchmark, encoder, config, make_folder(chosen.work) / f"{name}.csv")
    measured = measure(rows)
    for way, figures in measured["scores"].items():
        print(f"{way:20} " + " ".join(f"{figure} {value:.3f}" for figure, value in figures.items()))
    if not chosen.names:
        (RESULTS / f"{name}.csv").write_bytes((chosen.work / f"{name}.csv").read_bytes())
        settings = {"encoder": encoder.name, "weights_sha256": encoder.sha256, "config": dataclasses.asdict(config)}
        write_record(name, settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


# Rows


def collect(benchmark: Benchmark, encoder: Encoder, config: PropagateConfig, path: Path) -> Rows:
    """Rows of labels that are carried from the first frame."""

    def carried(clip: Clip, truth: Mapping[int, Masks], video: Video) -> Iterator[_Judged]:
        stream = propagate(video, {0: clip.given()}, encoder=encoder, config=config, trust=TrustConfig())
        for frame in stream:
            if frame.confidence is not None and isinstance(frame.labels, Masks):
                yield _Judged(frame.index, frame.labels, frame.confidence)

    return _collect(benchmark, path, carried)


def collect_wrong(benchmark: Benchmark, encoder: Encoder, config: PropagateConfig, path: Path, *, way: Wrong) -> Rows:
    """Rows of labels that are wrong and look sure."""

    def wrong(clip: Clip, truth: Mapping[int, Masks], video: Video) -> Iterator[_Judged]:
        first = truth[0]
        labels: dict[int, Labels] = {
            index: first if way == "stuck" or index == 0 else Masks.of(masks.ids[:, ::-1])
            for index, masks in truth.items()
        }
        for said in examine(video, labels, trusted=[0], encoder=encoder, config=config):
            yield _Judged(said.index, cast(Masks, labels[said.index]), said.confidence)

    return _collect(benchmark, path, wrong)


@dataclass(frozen=True, eq=False)
class _Judged:
    index: int
    masks: Masks
    confidence: Confidence


_Judge = Callable[[Clip, Mapping[int, Masks], Video], Iterator[_Judged]]


def _collect(benchmark: Benchmark, path: Path, judged: _Judge) -> Rows:
    """The rows of a file, where sequences that are missing are added one after the other."""
    columns = ["sequence", "frame", "overlap", *SIGNALS]
    kept = list(csv.reader(path.open())) if path.exists() else [columns]
    if kept[0] != columns:
        raise SystemExit(f"error: {path} has other columns\n  try: move it away")
    done = {row[0] for row in kept[1:]}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(kept)
        for clip in benchmark.clips:
            if clip.name in done:
                continue
            files = sorted(file for file in benchmark.truth_files if file.parent.name == clip.name)
            truth = {index: Masks.read(path) for index, path in enumerate(files)}
            rows = []
            with open_video(clip.frames) as video:
                for one in judged(clip, truth, video):
                    if one.index not in truth or one.index == 0:
                        continue
                    overlap = jaccard(one.masks.ids > 0, truth[one.index].ids > 0)
                    (of,) = one.confidence.objects.values()
                    signals = (f"{of.signals[name]:.4f}" for name in SIGNALS)
                    rows.append((clip.name, one.index, f"{overlap:.4f}", *signals))
            writer.writerows(rows)  # a clip is there as a whole or not at all
            file.flush()
            print(clip.name, flush=True)
    return read_rows(path)


def read_rows(path: Path) -> Rows:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return Rows(
        [row["sequence"] for row in rows],
        np.array([float(row["frame"]) for row in rows]),
        np.array([float(row["overlap"]) for row in rows]),
        np.array([[float(row[name]) for name in SIGNALS] for row in rows]),
    )


# Fitting


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of several collections; sequences of the same name stay apart."""
    names = [f"{place} {name}" for place, rows in enumerate(parts) for name in rows.sequence]
    return Rows(names, *(np.concatenate(part) for part in zip(*(rows.parts for rows in parts), strict=True)))


def fit(rows: Rows, *, only: Sequence[str] = SIGNALS, ridge: float = 1e-3, steps: int = 300) -> dict[str, float]:
    """Weights of some signals whose sigmoid is nearest to the overlap, by cross-entropy; every sequence counts alike.

    None is below 0: every signal is made to be the higher the better, and few sequences would teach it otherwise.
    """
    counts = {name: list(rows.sequence).count(name) for name in set(rows.sequence)}
    share = torch.tensor([1 / counts[name] for name in rows.sequence], dtype=torch.float64)
    signals = torch.from_numpy(rows.signals[:, [SIGNALS.index(name) for name in only]])
    overlap = torch.from_numpy(rows.overlap)
    mean, spread = signals.mean(dim=0), signals.std(dim=0).clamp_min(1e-6)
    root = torch.full((signals.shape[1],), 0.5, dtype=torch.float64, requires_grad=True)  # of the weights
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
    found = {name: round(float(value), 3) for name, value in zip(only, scaled, strict=True)}
    return {"bias": round(float(bias.detach() - (mean * scaled).sum()), 3), **found}


def toml_of(form: str, weights: Mapping[str, float]) -> str:
    """What weighs anything, as presets/confidence.toml has it."""
    return f"[{form}]\n" + "\n".join(f"{name} = {value}" for name, value in weights.items() if value)


# Figures


def measure(rows: Rows, form: Form = "outline") -> dict[str, Any]:
    """Every way of trusting under the same test."""
    ways = {
        "fused": fuse(torch.from_numpy(rows.signals).float(), form).double().numpy(),
        "fused, fitted on the others": _left_out(rows, form),
        "frames since the drawing alone": -rows.frame,
        **{f"{name} alone": rows.signals[:, i] for i, name in enumerate(SIGNALS)},
    }
    error, bad = 1 - rows.overlap, rows.overlap < BAD
    scores, curves = {}, {}
    for name, trust in ways.items():
        curve = risk_coverage(trust, error)
        scores[name] = {
            "auroc_j50": round(auroc(trust, bad), 4),
            "spearman_j": round(spearman(trust, rows.overlap), 4),
            "area_under_risk": round(curve.area, 4),
        }
        at = np.linspace(0, len(rows) - 1, _POINTS).round().astype(int)
        curves[name] = [[round(float(curve.coverage[i]), 3), round(float(curve.risk[i]), 4)] for i in at]
    return {
        "frames": len(rows),
        "bad_frames": int(bad.sum()),
        "mean_j": round(float(rows.overlap.mean()), 4),
        "weights": dict(fitted()[form]),
        "scores": scores,
        "risk_coverage": curves,
    }


def _left_out(rows: Rows, form: Form) -> Float64[np.ndarray, " rows"]:
    """The confidence of every sequence by weights fitted to the true overlap of all the others."""
    trust = np.zeros(len(rows))
    names = np.array(rows.sequence)
    only = OUTLINE if form == "outline" else SIGNALS
    for name in sorted(set(rows.sequence)):
        here = names == name
        others = Rows(names[~here].tolist(), *(part[~here] for part in rows.parts))
        trust[here] = fuse(torch.from_numpy(rows.signals[here]).float(), form, fit(others, only=only)).double().numpy()
    return trust


if __name__ == "__main__":
    sys.exit(main())
