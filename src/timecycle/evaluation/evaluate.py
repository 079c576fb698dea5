"""Predict, store, score, report: the four steps of every evaluation, each of which can be done by itself."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timecycle.evaluation.benchmark import Benchmark, Progress, describe
from timecycle.evaluation.methods import Method
from timecycle.evaluation.predictions import FOLDER, predict
from timecycle.evaluation.report import Report, make_report, write_report
from timecycle.files import make_folder
from timecycle.propagation.settings import PropagateConfig
from timecycle.provenance import commit, machine
from timecycle.version import __version__

REPORT = "report.json"


def evaluate(
    benchmark: Benchmark,
    method: Method,
    config: PropagateConfig,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], Progress] | None = None,
) -> Report:
    """Predict what is not predicted yet, score everything, write DIR/report.json."""
    show = progress or (lambda title: lambda done, total: None)
    record = predict(benchmark, method, config, folder, overwrite=overwrite, progress=show("predicting"))
    scores = benchmark.score(folder / FOLDER, progress=show("scoring"))
    report = make_report(record, scores)
    write_report(folder / REPORT, report)
    return report


def evaluate_masks(
    benchmark: Benchmark, masks: Path, folder: Path, *, progress: Callable[[str], Progress] | None = None
) -> Report:
    """Score predictions that someone else made: MASKS/CLIP/00000.png, as the benchmark names its annotations."""
    show = progress or (lambda title: lambda done, total: None)
    started = time.monotonic()
    scores = benchmark.score(masks, progress=show("scoring"))
    record: dict[str, Any] = {
        "settings": {
            "benchmark": describe(benchmark),
            "encoder": f"masks in {masks.name}",
            "weights_sha256": "",
            "form": "predicted elsewhere",
            "config": {},
        },
        "timecycle": __version__,
        "machine": machine(),
        "clips": {"": {"seconds": time.monotonic() - started, "commit": commit()}},
    }
    make_folder(folder)
    report = make_report(json.loads(json.dumps(record)), scores)
    write_report(folder / REPORT, report)
    return report
