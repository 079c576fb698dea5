"""Score encoders on benchmarks, and compare scores."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from timecycle.data.augment.composites import CompositesConfig
from timecycle.errors import SettingsError
from timecycle.evaluation.evaluate import evaluate as predict_and_score
from timecycle.evaluation.evaluate import evaluate_masks
from timecycle.evaluation.methods.registry import NearestNeighbours, load_method
from timecycle.evaluation.protocols.composites import make_composites
from timecycle.evaluation.protocols.registry import find_benchmark
from timecycle.evaluation.reporting.compare import Comparison
from timecycle.evaluation.reporting.compare import compare as compare_reports
from timecycle.evaluation.reporting.plots import write_pictures
from timecycle.evaluation.reporting.report import Report, read_report
from timecycle.inputs import ConfigLike, EncoderLike, as_config, as_encoder
from timecycle.progress import ProgressLike, bars_for


def evaluate(
    benchmark: str,
    root: str | Path,
    folder: str | Path | None = None,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    masks: str | Path | None = None,
    sequences: Sequence[str] = (),
    overwrite: bool = False,
    progress: ProgressLike = None,
    **options: Any,
) -> Report:
    """Score an encoder, or the masks of another program, on a benchmark.

    benchmark: davis, jhmdb, vip, badja, reconstruction, or composites, which are made of your own videos.
    root: the dataset's folder, in its own layout; for composites a folder of videos.
    folder: where to keep predictions, report.json and pictures; an interrupted evaluation resumes there. Without it
        nothing is kept.
    encoder: what `load_encoder` takes, or "identity" or "dis-flow". None is the bundled encoder.
    config: settings, or the name of a preset; by default "default", for vip "vip".
    masks: score masks/SEQUENCE/00000.png of another program instead of predicting (davis, composites).
    sequences: only these sequences.
    overwrite: replace an evaluation in the folder.
    progress: True for a bar on standard error, or a function that is called with (done, total) of each stage.
    options: of the benchmark: year ("2016", "2017") of davis, task ("semantic", "parts") of vip, davis (a folder) of
        badja, gaps and stride of reconstruction, seed and footage (a folder) of composites.

    The result has `scores` of the whole and `per_sequence`.
    """
    if masks is not None and (encoder is not None or config is not None):
        raise SettingsError(
            "an encoder or settings cannot be combined with masks, which are scored without predicting",
            remedy="leave them out, or leave out masks to predict",
        )
    settings = as_config(config or ("vip" if benchmark == "vip" else "default"))
    with ExitStack() as stack:
        bar = stack.enter_context(bars_for(progress))
        if folder is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timecycle-"))) / "evaluation"
        else:
            out = Path(folder)
        found_in = Path(root)
        if benchmark == "composites":
            footage = Path(options.pop("footage", None) or out.with_name(f"{out.name}-footage"))
            seed = CompositesConfig(seed=options.pop("seed", 0))
            found_in = make_composites(found_in, footage, seed, progress=bar("composing"))
        found = find_benchmark(benchmark, found_in, sequences=sequences, **options)
        if masks is not None:
            report = evaluate_masks(found, Path(masks), out, overwrite=overwrite, progress=bar)
        else:
            method = load_method(encoder) if isinstance(encoder, str) else NearestNeighbours(as_encoder(encoder))
            report = predict_and_score(found, method, settings, out, overwrite=overwrite, progress=bar)
        if folder is not None:
            write_pictures(report, out, clips=found.clips, predictions=None if masks is None else Path(masks))
        return report


def compare(a: Report | str | Path, b: Report | str | Path) -> Comparison:
    """Compare two reports of the same data, with confidence intervals over sequences.

    a, b: what `evaluate` returned, a report.json, or the folder it is in.

    The result has `differences`, each with the `verdict` whether b is better, and prints as sentences.
    """
    return compare_reports(*(one if isinstance(one, Report) else read_report(Path(one)) for one in (a, b)))
