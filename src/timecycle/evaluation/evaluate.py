"""Run an evaluation: predict, store, score, report. Each step can also be run on its own."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError
from timecycle.evaluation.benchmark import Benchmark, Progress, checksum, describe
from timecycle.evaluation.methods.method import Method
from timecycle.evaluation.predictions import FOLDER, check, predict
from timecycle.evaluation.reporting.report import REPORT, Report, make_report, write_report
from timecycle.files import lock, make_folder
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs.provenance import commit, machine
from timecycle.version import __version__


def evaluate(
    benchmark: Benchmark,
    method: Method,
    config: PropagateConfig,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], Progress] | None = None,
) -> Report:
    """Predict the clips that are missing, score all clips, and write FOLDER/report.json."""
    show = progress or (lambda title: lambda done, total: None)
    make_folder(folder)
    with lock(folder):  # until the report is written, so that no other process changes predictions being scored
        record = predict(benchmark, method, config, folder, overwrite=overwrite, progress=show("predicting"))
        check(folder, record)
        report = make_report(record, benchmark.score(folder / FOLDER, progress=show("scoring")))
        write_report(folder / REPORT, report)
    return report


def evaluate_masks(
    benchmark: Benchmark,
    masks: Path,
    folder: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], Progress] | None = None,
) -> Report:
    """Score the masks of another program: MASKS/CLIP/00000.png, named like the benchmark's annotations."""
    show = progress or (lambda title: lambda done, total: None)
    make_folder(folder)
    with lock(folder):
        if not overwrite and ((folder / REPORT).exists() or (folder / f"{FOLDER}.json").exists()):
            raise OutputError(
                f"{folder} holds another evaluation", remedy="choose another folder with -o, or pass --overwrite"
            )
        started = time.monotonic()
        scores = benchmark.score(masks, progress=show("scoring"))
        report = make_report(_record_of_masks(benchmark, masks, time.monotonic() - started), scores)
        write_report(folder / REPORT, report)
    return report


def _record_of_masks(benchmark: Benchmark, masks: Path, seconds: float) -> dict[str, Any]:
    """Record what is known of predictions that another program made."""
    files = [path for clip in benchmark.clips for path in sorted((masks / clip.name).glob("*.png"))]
    return {
        "settings": {
            "benchmark": describe(benchmark),
            "encoder": f"masks in {masks.name}",
            "weights_sha256": checksum(files),
            "description": "predicted elsewhere; the checksum is of the masks",
            "config": {},
        },
        "timecycle": __version__,
        "machine": machine(),
        "clips": {"": {"frames": len(files), "seconds": seconds, "commit": commit()}},
    }
