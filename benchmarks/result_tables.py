"""Generate the tables of README.md and docs/ from the result files: python benchmarks/result_tables.py [--check]

A table stands between `<!-- generated: NAME -->` and `<!-- end generated -->`; NAME is a key of TABLES below. The plots
of docs/images are generated too. With --check nothing is written: stale blocks and plots are listed, and the exit code
is 1. A block without result files is empty.
"""

import argparse
import dataclasses
import hashlib
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from PIL import Image

from capacity import NEEDED, Assumptions, Line, capacity
from descriptors import DESCRIPTORS
from evaluate import FORMER, OURS
from figures import (
    Stage,
    draw_corpus,
    draw_corrections,
    draw_growth,
    draw_hours,
    draw_learning_curves,
    draw_risk_coverage,
    exponent,
)
from learn import RUNS, SHOWN, Group, Run
from published import Group as PublishedGroup
from published import protocols, published_rows
from recipes import RECIPES
from record import RESULTS
from round_trips import paired
from score_tables import (
    IMAGE_SIZE,
    INFERENCE,
    METHOD,
    SECONDS_PER_FRAME,
    WINDOW,
    Column,
    davis_table,
    inference_name,
    markdown,
    provenance,
    published_table,
    score_column,
    score_table,
    setting_column,
)
from timecycle.errors import SettingsError, TimecycleError
from timecycle.evaluation.reporting.compare import Difference, compare, paired_bootstrap
from timecycle.evaluation.reporting.figure import save_small
from timecycle.evaluation.reporting.plots import draw_bars, draw_over_time
from timecycle.evaluation.reporting.report import Report, read_report
from timecycle.evaluation.reporting.scores import (
    COUNTED,
    WITHOUT_COLOUR,
    Row,
    in_print,
    lower_is_better,
    main_scores,
    method_name,
    score_name,
)
from timecycle.model.registry import DEFAULT_ENCODER

ROOT = Path(__file__).parents[1]
IMAGES = "docs/images"

_BLOCK = re.compile(r"<!-- generated: (\S+) -->\n(.*?)<!-- end generated -->", re.DOTALL)
_BEGIN = "<!-- generated:"
_NOTE = "timecycle results"  # PNG text: the checksum of the result files of a plot


class NoResultsError(SettingsError):
    """A table has no result files."""


@dataclass(frozen=True)
class Result:
    """A report and the name of its file."""

    name: str
    report: Report


@dataclass(frozen=True)
class Results:
    """All result files: reports of evaluations, and other records by name."""

    reports: Sequence[Result]
    records: Mapping[str, Mapping[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something is stale")
    check = parser.parse_args().check
    try:
        stale = find_stale(ROOT) if check else rewrite(ROOT)
    except TimecycleError as error:
        print(f"error: {error.problem}\n  try: {error.remedy}", file=sys.stderr)
        return 2
    for part in stale:
        print(f"{'stale' if check else 'written'}: {part}")
    for part in find_empty(ROOT):
        print(f"empty, without results: {part}")
    if check and stale:
        print("  try: python benchmarks/result_tables.py")
    return 1 if check and stale else 0


def find_stale(root: Path) -> list[str]:
    """List the blocks and plots that differ from the result files."""
    results = read_results(root / "benchmarks" / RESULTS.name)
    blocks = [f"{page.relative_to(root)}: {name}" for page in _pages(root) for name in _stale_blocks(page, results)]
    return blocks + [name for name, (_, digest) in _plots(results).items() if _stored_digest(root / name) != digest]


def find_empty(root: Path) -> list[str]:
    """List the blocks without result files."""
    results = read_results(root / "benchmarks" / RESULTS.name)
    blocks = [(page, name) for page in _pages(root) for name, _ in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [f"{page.relative_to(root)}: {name}" for page, name in blocks if not make_table(name, results)]


def rewrite(root: Path) -> list[str]:
    """Update blocks and plots; returns those that were stale."""
    stale = find_stale(root)
    results = read_results(root / "benchmarks" / RESULTS.name)
    for page in _pages(root):
        text = page.read_text(encoding="utf-8")
        updated = update(text, results, page=page.name)
        if updated != text:
            page.write_text(updated, encoding="utf-8")
    for name, (draw, digest) in _plots(results).items():
        if name in stale:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            save_small(root / name, draw(), note={_NOTE: digest})
    return stale


def update(text: str, results: Results, *, page: str = "the page") -> str:
    """Replace every generated block of a page."""
    if text.count(_BEGIN) != len(_BLOCK.findall(text)):
        raise SettingsError(
            f"a generated block of {page} has no end, or its first line is malformed",
            remedy="write '<!-- generated: NAME -->' and '<!-- end generated -->' on lines of their own",
        )
    return _BLOCK.sub(
        lambda block: f"<!-- generated: {block[1]} -->\n{make_table(block[1], results)}<!-- end generated -->", text
    )


def make_table(name: str, results: Results) -> str:
    """Make the text of a block; empty without results."""
    if name not in TABLES:
        raise SettingsError(f"there is no generated block {name!r}", remedy=f"the blocks are {', '.join(TABLES)}")
    try:
        return TABLES[name](results)
    except NoResultsError:
        return ""


def read_results(folder: Path) -> Results:
    """Read the files of a folder; a file with scores per sequence is a report."""
    contents = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    reports = [Result(path.stem, read_report(path)) for path, content in contents.items() if "per_sequence" in content]
    records = {path.stem: content for path, content in contents.items() if "per_sequence" not in content}
    return Results(reports, records)


def _named(results: Results, prefix: str, **expected: Any) -> list[Report]:
    """Return the reports whose file names have a prefix; their content must agree with the name."""
    chosen = [result for result in results.reports if result.name.startswith(prefix)]
    if not chosen:
        raise NoResultsError(
            f"no result file begins with {prefix}", remedy=f"copy the reports to benchmarks/results/{prefix}*.json"
        )
    for result in chosen:
        facts = _facts(result.report)
        wrong = [name for name, value in expected.items() if facts[name] != value]
        if wrong:
            raise SettingsError(
                f"{result.name}.json has {wrong[0]} = {facts[wrong[0]]}, but its name says {expected[wrong[0]]}",
                remedy="rename the file, or evaluate again",
            )
    return [result.report for result in chosen]


def _facts(report: Report) -> dict[str, Any]:
    return {
        "benchmark": report.benchmark,
        "image_size_px": report.config.get("image_size_px"),
        "sequences": len(report.per_sequence),
    }


def _davis(results: Results, *, size_px: int, eight: bool = False) -> str:
    reports = _davis_reports(results, size_px, eight=eight)
    return _with_provenance(davis_table(reports), reports)


def _davis_reports(results: Results, size_px: int, *, eight: bool = False) -> list[Report]:
    """Return the reports on DAVIS-2016 val, or on the eight sequences of slow encoders and ablations."""
    prefix, sequences = ("davis2016_eight", 8) if eight else ("davis2016", 20)
    expected = {"benchmark": "davis2016", "image_size_px": size_px, "sequences": sequences}
    return _named(results, f"{prefix}_{size_px}p_", **expected)


def _davis_large(results: Results) -> str:
    """Make the table of DAVIS-2016 val at 480p; `best` enlarges its images."""
    reports = _davis_reports(results, 480)
    if any(result.name.startswith("davis2016_720p_") for result in results.reports):
        reports += _davis_reports(results, 720)
    return _with_provenance(davis_table(reports), reports)


def _in_common_settings(results: Results) -> dict[str, Report]:
    """Return the reports on all of DAVIS-2016 val at 480p with plain inference, by encoder."""
    return {r.encoder: r for r in _davis_reports(results, 480) if inference_name(r.config) == "plain"}


def _headline(results: Results) -> str:
    """Compare the bundled encoder with every control on all benchmarks; differences are paired over sequences."""
    reports = _in_common_settings(results)
    ours = reports.get(DEFAULT_ENCODER)
    if ours is None:
        raise NoResultsError(
            f"no result of {DEFAULT_ENCODER} at 480p", remedy="python benchmarks/evaluate.py DATA --work DIR"
        )
    others = {  # heading: benchmark, score, factor
        "BADJA PCK@0.2": ("badja", "PCK@0.2", 100),
        "L1, 5 frames": ("reconstruction-5-10-every-10", "L1_5", 1),
        "L1, 10 frames": ("reconstruction-5-10-every-10", "L1_10", 1),
    }
    by_benchmark = {
        (r.report.benchmark, r.report.encoder): r.report
        for r in results.reports
        if inference_name(r.report.config) == "plain"
    }
    rows = []
    for name, report in sorted(reports.items(), key=lambda item: -item[1].scores["JF"]):
        by = compare(report, ours).differences[0]
        rows.append(
            [
                method_name(name),
                f"{100 * report.scores['JF']:.1f}",
                *(["-"] * 3 if report is ours else _difference_cells(by)),
                *(
                    f"{factor * by_benchmark[benchmark, name].scores[score]:.1f}"
                    if (benchmark, name) in by_benchmark
                    else "-"
                    for benchmark, score, factor in others.values()
                ),
            ]
        )
    heads = ["encoder", "DAVIS J&F", "ours minus it", "95 % interval", "ours better on", *others]
    return _with_provenance(markdown(heads, rows, right=tuple(range(1, len(heads)))), [ours])


def _why(results: Results) -> str:
    """Make the README's reasons, each with a figure."""
    ours, colour = (
        _named(results, f"davis2016_480p_default_{name}")[0] for name in (DEFAULT_ENCODER.replace("-", "_"), "rgb")
    )
    auroc = _record(results, "confidence_default")["measured"]["scores"]["fused"]["auroc_j50"]
    corrections = _record(results, "corrections")
    corrected = corrections["measured"]["scores"]["JF_by_corrections"]["ours, together"]
    at = f"at 240p with {FORMER}" if corrections["settings"]["encoder"] == FORMER else "at 240p"
    course = _record(results, "scale_course")["measured"]
    objects = dict(_record(results, "speed_growth")["measured"]["curves"]["objects"])
    kills = [_record(results, name)["measured"] for name in ("command_kills", "kills")]
    fuzz = _record(results, "fuzz")["measured"]
    damage = sum(kind["crash"] + kind["hang"] for kind in fuzz["by_kind"].values())
    reasons = {
        "One annotated frame is enough to begin": f"""J&F {100 * ours.scores["JF"]:.1f} on DAVIS-2016 val from the first
            mask alone, learned without a single label; colour alone has {100 * colour.scores["JF"]:.1f}
            ([results](docs/results.md)).""",
        "It says where it is wrong": f"""of a frame with J above 0.5 and one below, the confidence of the bad one is
            lower in {100 * auroc:.0f} of 100 cases ([how this was measured](docs/research/confidence.md)).""",
        "Few corrections go far": f"""one corrected frame takes J&F from {100 * corrected[0]:.1f} to
            {100 * corrected[1]:.1f}, three to {100 * corrected[3]:.1f} ([{at}](docs/research/corrections.md)).""",
        "A laptop is enough": f"""labels of a 480p frame take {ours.seconds / ours.frames_predicted:.2f} s on one core,
            and 100 objects {objects[100] / objects[1]:.1f} times as long as one ([speed](docs/speed.md)); memory hardly
            grows with the video, from {course["rss_mib_at_frame_1000"]:.0f} MiB at frame 1,000 to
            {course["highest_rss_mib_later"]:.0f} MiB at frame {course["frames"]:,}.""",
        "Nothing is lost": f"""{sum(one["kills"] for one in kills)} kills, {sum(one["differences"] for one in kills)}
            differing files; {fuzz["inputs"]:,} damaged inputs, {damage} crashes or hangs
            ([robustness](docs/robustness.md)).""",
    }
    lines = [f"- **{reason}**: {' '.join(text.split())}" for reason, text in reasons.items()]
    return "\n".join(textwrap.fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines) + "\n"


def _versions(results: Results) -> str:
    """Compare the bundled encoder with the one before; differences are paired over sequences."""
    names = (FORMER, DEFAULT_ENCODER)
    by_name = {result.name: result.report for result in results.reports}
    rows, used = [], []
    for words, (prefix, ending) in _COMPARED_ON.items():
        pair = [by_name.get(f"{prefix}_{name.replace('-', '_')}{ending}") for name in names]
        if pair[0] is None or pair[1] is None:
            continue
        by = compare(pair[0], pair[1]).differences[0]
        heading = f"{words}, {score_name(by.score)}{' (lower is better)' if lower_is_better(by.score) else ''}"
        both = [f"{in_print(by.score, value):.1f}" for value in (by.a, by.b)]
        rows.append([heading, *both, *_difference_cells(by)])
        used += [pair[0], pair[1]]
    if not rows:
        raise NoResultsError(f"no result of {DEFAULT_ENCODER}", remedy="python benchmarks/evaluate.py DATA --work DIR")
    heads = ["", *names, "difference", "95 % interval", f"{DEFAULT_ENCODER} better on"]
    return _with_provenance(markdown(heads, rows, right=tuple(range(1, len(heads)))), used)


def _difference_cells(by: Difference) -> list[str]:
    """Return the cells of a difference, its interval, and the sequences on which the second report is better."""
    difference, low, high = (in_print(by.score, value) for value in (by.difference, by.low, by.high))
    return [f"{difference:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{by.better} of {by.sequences}"]


def _what_is_learned(results: Results) -> str:
    """Compare our encoders with random weights in their form, all with and without colour."""
    rows, used = [], []
    for name in (*OURS, *(f"random-{form}" for form in OURS), "rgb"):
        cells = []
        for prefix in ("davis2016_eight_240p", "davis2016_240p"):
            for ending in ("", WITHOUT_COLOUR):
                reports = [
                    result.report
                    for result in results.reports
                    if result.name.startswith(f"{prefix}_")
                    and inference_name(result.report.config) == "plain"
                    and result.report.encoder.partition("@")[0] == f"{name}{ending}"
                ]
                scores = [100 * report.scores["JF"] for report in reports]
                spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
                cells.append(f"{fmean(scores):.1f}{spread}" if scores else "-")
                used += reports
        rows.append([method_name(name), *cells])
    if not any(f"random-{DEFAULT_ENCODER}" in report.encoder for report in used):
        raise NoResultsError(
            f"no result of random-{DEFAULT_ENCODER}",
            remedy="python benchmarks/evaluate.py DATA --work DIR --only davis2016_240p_random davis2016_eight",
        )
    heads = ["weights", "eight", "eight, without colour", "all 20", "all 20, without colour"]
    return _with_provenance(markdown(heads, rows, right=(1, 2, 3, 4)), used)


def _steps(results: Results) -> str:
    """Compare `default` with parts of it, with subcells, with `best`, with other encoders, and with plain inference."""
    prefix = "steps_480p_"
    measured = {result.report.encoder for result in results.reports if result.name.startswith(prefix)}
    ours = next((name for name in OURS if name in measured), DEFAULT_ENCODER)
    suffix = f"_{ours.replace('-', '_')}"
    whole = _named(results, f"davis2016_480p_default{suffix}")[0]
    compared = {
        f"`default` {name.removeprefix(prefix).removesuffix(suffix).replace('_', ' ')}": report
        for name, report in ((result.name, result.report) for result in results.reports)
        if name.startswith(prefix) and name.endswith(suffix)
    }
    plain = _in_common_settings(results)
    compared |= {f"`plain`, {method_name(name)}": plain[name] for name in (ours, *_CONTROL_ENCODERS) if name in plain}
    compared |= {
        f"`default`, {method_name(r.encoder)}": r
        for r in _davis_reports(results, 480)
        if inference_name(r.config) == "default" and r.encoder in _CONTROL_ENCODERS
    }
    if any(result.name == f"davis2016_720p_best{suffix}" for result in results.reports):
        compared["`best`"] = _named(results, f"davis2016_720p_best{suffix}")[0]
    rows = [[f"`default`, {method_name(ours)}", f"{100 * whole.scores['JF']:.1f}", "-", "-", "-"]]
    for name, report in sorted(compared.items(), key=lambda item: -item[1].scores["JF"]):
        by = compare(report, whole).differences[0]
        rows.append([name, f"{100 * report.scores['JF']:.1f}", *_difference_cells(by)])
    heads = ["inference, encoder", "DAVIS J&F", "`default` minus it", "95 % interval", "`default` better on"]
    return _with_provenance(markdown(heads, rows, right=tuple(range(1, len(heads)))), [whole, *compared.values()])


def _scores(results: Results, *, prefix: str, benchmark: str, beside: Sequence[str] = ()) -> str:
    """Make a table of a benchmark's main scores, ordered by the first, and of the scores in `beside`; with settings."""
    reports = _named(results, prefix, benchmark=benchmark)
    scores = main_scores(reports)
    shown = [score_column(score) for score in (*scores, *beside)]
    columns = [METHOD, *shown, SECONDS_PER_FRAME, INFERENCE, IMAGE_SIZE, WINDOW]
    table = score_table(reports, columns, order_by=scores[0])
    return _with_provenance(table, reports)


def _ablation(results: Results, *, what: str) -> str:
    """Make a table of one changed setting; the baseline is the report in which only that setting differs."""
    changed, heading = _ABLATIONS[what]
    ablated = [result for result in results.reports if re.match(rf"ablation_\w*?_?{what}_", result.name)]
    if not ablated:
        raise NoResultsError(
            f"no result file begins with ablation_ and names {what}",
            remedy=f"copy the reports to benchmarks/results/ablation_{what}_VALUE.json",
        )
    unchanged = {_unchanged(result.report, changed) for result in ablated}
    if len(unchanged) != len({result.report.encoder for result in ablated}):
        raise SettingsError(
            f"the {len(ablated)} results of the ablation of {what} differ in more than {', '.join(changed)}",
            remedy="evaluate them with the same other settings",
        )
    davis = [result for result in results.reports if result.name.startswith("davis2016_")]
    baselines = [result for result in davis if _unchanged(result.report, changed) in unchanged]
    # The baseline may also have been run under the ablation's name.
    unique = {
        (result.report.encoder, *(str(result.report.config.get(name)) for name in changed)): result
        for result in baselines + ablated
    }
    reports = sorted((result.report for result in unique.values()), key=lambda report: _rank(report, changed[0]))
    columns = [setting_column(changed[0], heading)] if changed[0] != "window_px" else []
    columns += [WINDOW] if "window_px" in changed else []
    scores = [score_column(score) for score in ("JF", "J", "F")]
    return _with_provenance(score_table(reports, [METHOD, *columns, *scores, SECONDS_PER_FRAME]), reports)


def _learned(results: Results, *, group: Group, controls: Sequence[str] = ()) -> str:
    """Make a table of one group of runs; with controls on the same sequences it is ordered by J&F."""
    runs = {f"learned_{run.name}": run for run in RUNS if run.group == group}
    by_name = {result.name: result.report for result in results.reports}
    learned = {
        run.description: (run, dataclasses.replace(by_name[name], encoder=run.description))
        for name, run in runs.items()
        if name in by_name
    }
    if not learned:
        raise NoResultsError(f"no result file of the runs {', '.join(runs)}", remedy="python benchmarks/learn.py")
    reports = [report for _, report in learned.values()]
    reports += [by_name[f"davis2016_eight_240p_{name}"] for name in controls]

    def of_run(cell: Callable[[Run], str]) -> Callable[[Row], str]:
        return lambda row: cell(learned[row.first.encoder][0]) if row.first.encoder in learned else "-"

    columns = [METHOD, Column("steps", of_run(lambda run: f"{run.steps:,}"))]
    columns += [score_column(score) for score in ("JF", "J", "F")]
    if any(run.paper for run, _ in learned.values()):
        columns.append(Column("J, F in the paper", of_run(lambda run: run.paper or "-")))
    return _with_provenance(score_table(reports, columns, order_by="JF" if controls else None), reports)


def _unchanged(report: Report, changed: Sequence[str]) -> tuple[str, ...]:
    settings = (f"{name}={value}" for name, value in sorted(report.config.items()) if name not in changed)
    return report.encoder, report.benchmark, str(report.data.get("sha256")), *settings


def _rank(report: Report, setting: str) -> tuple[str, float, str]:
    """Return the sort key: the encoder, then the setting; no window is the widest."""
    value = report.config.get(setting)
    number = float("inf") if value is None else float(value) if isinstance(value, int | float) else 0.0
    return report.encoder, number, str(value)


def _published(results: Results, *, protocol: str, group: PublishedGroup | None = None) -> str:
    rows = [row for row in published_rows(protocol) if (row.group == "ablation") == (group == "ablation")]
    if group == "ablation":  # with the row of the baseline
        base = rows[0].method.partition(":")[0]
        rows += [row for row in published_rows(protocol, group="paper") if row.method == base]
    first = next(iter(rows[0].scores))
    order = "JF" if first == "J" else first
    best = "Lowest" if lower_is_better(order) else "Highest"
    mean = " J&F is the mean of J and F where the source lacks it." if order == "JF" else ""
    return f"{published_table(rows, order_by=order)}\n{protocols()[protocol]}. {best} first.{mean}\n"


def _step_cost(results: Results) -> str:
    """Make a table of training steps relative to the bare encoder."""
    record = _record(results, "training_step")
    rows = [
        [name.replace("_", " "), *(f"{row[part]:.3g}" for part in ("ratio", "step", "bare"))]
        for name, row in record["measured"]["seconds"].items()
    ]
    table = markdown(
        ["objective, encoder, image, batch", "step / bare encoder", "step s", "bare s"], rows, right=(1, 2, 3)
    )
    pace = ", ".join(
        f"{row['steps_in_half_an_hour']:,} steps of {objective} ({row['waiting_for_clips']:.1%} waiting for clips)"
        for objective, row in record["measured"]["pace"].items()
    )
    return f"{table}\nHalf an hour on real clips is {pace}. {_origin(record)}\n"


# Of benchmarks/speed.py: the part, the ratio, and its description.
_SPEED = (
    ("whole", "whole_over_bare_fp32", "preset `default`: frames to labels"),
    ("whole", "plain_over_bare_fp32", "preset `plain`"),
    ("whole", "best_over_bare_fp32", "preset `best`"),
    ("whole", "stepwise_over_bare_fp32", "`default`, frame by frame without prefetching (a camera)"),
    ("whole", "global_over_bare_fp32", "`default`, no window"),
    ("whole", "without_kernel_over_bare_fp32", "`default`, without the kernel"),
    ("whole", "whole_bf16_over_bare_bf16", "`default`, propagation and bare encoder in bf16"),
    ("command", "command_over_bare_fp32", "`timecycle propagate`: mp4 to labels, tables, overlay video, contact sheet"),
    ("fast", "fast_over_bare_fp32", "preset `fast`, relative to the bare encoder at 240p"),
)


def _speed(results: Results) -> str:
    """Make a table of times relative to the bare encoder, with memory, threads and agreement in the text."""
    parts = {part: _record(results, f"speed_{part}") for part, _, _ in _SPEED}
    measured = {part: record["measured"] for part, record in parts.items()}
    rows = [
        [words, f"{measured[part]['ratios'][name]:.2f}", "{:.2f} to {:.2f}".format(*measured[part]["spread"][name])]
        for part, name, words in _SPEED
        if name in measured[part]["spread"]
    ]
    table = markdown(["run", "time / bare encoder", "range"], rows, right=(1, 2))
    same, threads = (_record(results, f"speed_{part}")["measured"] for part in ("agreement", "threads"))
    settings, fast = parts["whole"]["settings"], measured["fast"]
    text = f"""Median and range over the rounds; {settings["sequence"]} at {settings["size"]}, {settings["encoder"]}
({settings["weights_sha256"][:12]}), kernel {settings["kernel"]}. The peak memory of the command is
{measured["command"]["peak_rss_mib"]:,.0f} MiB. Preset `fast` labels {fast["frames_per_second"]:.1f} frames per second,
the bare encoder encodes {1 / fast["seconds_bare"]:.1f}. {threads["threads"]} threads are
{threads["ratios"]["one_thread_over_all"]:.2f} times as fast as one. Labels equal those of float64 matching in
{same["same_pixels"]:.5%} of the pixels of {same["frames"]} frames
({same["same_pixels_worst_frame"]:.5%} in the worst frame).
{" ".join(dict.fromkeys(map(_origin, parts.values())))}"""
    return f"{table}\n{' '.join(text.split())}\n"


def _speed_growth(results: Results) -> str:
    record = _record(results, "speed_growth")
    names = {"pixels": "pixels / 854x480", "references": "references", "objects": "objects"}
    spread = record["measured"]["spread"]
    rows = [
        [
            names[name],
            ", ".join(f"{amount:g}" for amount, _ in points),
            ", ".join(f"{ratio:.2f}" for _, ratio in points),
            ", ".join("{:.2f} to {:.2f}".format(*span) for kind, span in spread.items() if kind.startswith(name)),
            f"{exponent(points):.2f}",
        ]
        for name, points in record["measured"]["curves"].items()
    ]
    table = markdown(["amount of", "values", "time / bare encoder at 480p", "range", "power"], rows, right=(4,))
    return f"{table}\nTime grows with this power of the amount: 1 is linear. {_origin(record)}\n"


def _memory_course(results: Results) -> str:
    """Tabulate the memory and the open files of one long run."""
    record = _record(results, "scale_course")
    measured = record["measured"]
    base = "rss_mib_at_frame_1000"
    files = sorted({*measured["open_files_around"], *measured["open_files_later"]})
    rows = [
        ["resident memory at frame 1,000", f"{measured[base]:.0f} MiB"],
        ["highest later", f"{measured['highest_rss_mib_later']:.0f} MiB ({100 * measured['growth']:+.1f} %)"],
        ["open files", " to ".join(str(count) for count in dict.fromkeys((files[0], files[-1])))],
    ]
    heads = [f"a run of {measured['frames']:,} frames of {measured['width_px']}x{measured['height_px']}", "measured"]
    return f"{markdown(heads, rows, right=(1,))}\n{_origin(record)}\n"


def _speed_peers(results: Results) -> str:
    """Make a table of other programs' matching times relative to ours on the same features."""
    record = _record(results, "speed_peers")
    rows = [
        [row["program"], row["settings"], f"{row['ratio']:.1f}", row["agreement"]]
        for row in record["measured"]["peers"]
    ]
    table = markdown(["program", "settings", "its time / ours", "agreement"], rows, right=(2,))
    return f"{table}\n{record['measured']['method']} {_origin(record)}\n"


def _recipes(results: Results) -> str:
    """Make a table of recipes and controls on composites of held-out footage, best first."""
    records = {
        name.removeprefix("recipe_"): record for name, record in results.records.items() if "recipe_" in name[:7]
    }
    if not records:
        raise NoResultsError("no result file begins with recipe_", remedy="python benchmarks/recipes.py")

    def row(name: str, record: Mapping[str, Any]) -> list[str]:
        settings, scores = record["settings"], record["measured"]["scores"]
        coloured = record["measured"].get("scores_with_colour")
        return [
            RECIPES[name].description if name in RECIPES else name,
            f"{settings['steps']:,}" if settings else "-",
            *(f"{100 * scores[score]:.1f}" for score in ("J", "F")),
            *(f"{100 * coloured[score]:.1f}" if coloured else "-" for score in ("J", "F")),
        ]

    def best(record: Mapping[str, Any]) -> float:
        measured = record["measured"]
        return max(float(measured[kind]["JF"]) for kind in ("scores", "scores_with_colour") if measured.get(kind))

    ordered = sorted(records.items(), key=lambda item: -best(item[1]))
    heads = ["recipe", "steps", "J", "F", "J with colour", "F with colour"]
    table = markdown(heads, [row(name, record) for name, record in ordered], right=(1, 2, 3, 4, 5))
    minutes = {record["settings"]["minutes"] for record in records.values() if record["settings"]}
    each = f"{next(iter(minutes)):g} minutes each" if len(minutes) == 1 else "times differ"
    return f"{table}\nTraining: {each}. {_origin(ordered[0][1])}\n"


def _by_clip(
    results: Results,
    *,
    file: str,
    measure: tuple[str, str],
    groups: Sequence[Group],
    base: str,
    controls: Sequence[str] = (),
) -> str:
    """Compare controls and runs by a score of every clip; differences to the base are paired over clips.

    `file` is the name of their records, `measure` the scores in a record and their name in the table.
    """
    runs = {run.name: run for run in RUNS if run.group in groups and file.format(run.name) in results.records}
    words = {name: method_name(name) for name in controls if file.format(name) in results.records}
    words |= {name: run.description for name, run in runs.items()}
    if base not in words:
        raise NoResultsError(f"there is no {file.format(base)}.json", remedy="run its benchmark with --record")
    records = {name: _record(results, file.format(name)) for name in words}
    scores = {name: record["measured"][measure[0]] for name, record in records.items()}
    rows = []
    for name, clips in scores.items():
        by, error = paired(clips, scores[base])
        difference = "-" if name == base else f"{by:+.1f} ± {error:.1f}"
        trained = results.records.get(f"training_{name}")
        rows.append(
            [
                words[name],
                f"{runs[name].steps:,}" if name in runs else "-",
                f"{trained['seconds'] / 60:.0f}" if trained else "-",
                f"{fmean(clips.values()):.1f}",
                difference,
            ]
        )
    table = markdown(["", "steps", "minutes", measure[1], "difference"], rows, right=(1, 2, 3, 4))
    return f"{table}\n{len(scores[base])} clips. {_origin(records[base], of_one_encoder=False)}\n"


def _free_descriptor(results: Results) -> str:
    """Tabulate agreement with strong masks by the weights in the descriptor, of learned and of random weights."""
    names = {"short_contrast": "timecycle-v2, by these weights"}
    names |= {name: method_name(name) for name in ("timecycle-v1", "random-timecycle-v1@0")}
    records = {
        (name, weights): results.records[file]
        for name in names
        for weights, suffix in _DESCRIPTOR_WEIGHTS.items()
        if (file := f"strong_masks_{name}{suffix}") in results.records
    }
    if not records:
        raise NoResultsError("no result file begins with strong_masks_", remedy="python benchmarks/strong_masks.py")
    measured = {one: f"{fmean(record['measured']['scores'].values()):.1f}" for one, record in records.items()}
    columns = [weights for weights in _DESCRIPTOR_WEIGHTS if any(weights == other for _, other in records)]
    rows = [[words, *(measured.get((name, weights), "-") for weights in columns)] for name, words in names.items()]
    table = markdown(["weights of res2 and colour", *columns], rows, right=range(1, len(columns) + 1))
    record = next(iter(records.values()))
    return f"{table}\n{len(record['measured']['scores'])} clips. {_origin(record)}\n"


def _descriptors(results: Results) -> str:
    """Make a table of descriptors on the composites of recipes, in the order of the study."""
    records = {
        name: results.records[f"descriptor_{name}"] for name in DESCRIPTORS if f"descriptor_{name}" in results.records
    }
    if not records:
        raise NoResultsError("no result file begins with descriptor_", remedy="python benchmarks/descriptors.py")
    scores = {name: record["measured"]["scores"] for name, record in records.items()}
    rows = [
        [DESCRIPTORS[name].description, *(f"{100 * values[score]:.1f}" for score in ("JF", "J", "F"))]
        for name, values in scores.items()
    ]
    return f"{markdown(['descriptor', 'J&F', 'J', 'F'], rows, right=(1, 2, 3))}\n{_origin(records['plain'])}\n"


def read_stages(results: Results) -> list[Stage]:
    """Return the trained and scored stages of the bundled encoder, with the hours up to the end of each."""
    scored = {result.name: result.report.scores for result in results.reports}
    stages: dict[str, Stage] = {}
    for run in (run for run in RUNS if run.group == "stage"):
        record, scores = results.records.get(f"training_{run.name}"), scored.get(f"learned_{run.name}")
        if record is not None and scores is not None:
            hours = record["seconds"] / 3600 + (stages[run.start].hours if run.start else 0)
            stages[run.name] = Stage(run.description, run.steps, hours, scores)
    if not stages:
        raise NoResultsError("no stage is trained", remedy="python benchmarks/learn.py DATA --work DIR --only stage")
    return list(stages.values())


def _stages(results: Results) -> str:
    stages = read_stages(results)
    rows = [
        [stage.description, f"{stage.hours:.2f}", f"{stage.steps:,}"]
        + [f"{100 * stage.scores[score]:.1f}" for score in ("JF", "J", "F")]
        for stage in stages
    ]
    table = markdown(["after", "hours", "steps", "J&F", "J", "F"], rows, right=(1, 2, 3, 4, 5))
    return f"{table}\nEight sequences of DAVIS-2016 val at 240p. {_origin(results.records['training_stage_1'])}\n"


def _probes(results: Results) -> str:
    record = _record(results, "probes")
    heads = {
        "effective_rank": "effective rank",
        "mean_cosine": "mean cosine",
        "position_r2": "position R2",
        "shift_8px": "shift by one cell",
        "shift_4px": "shift by half a cell",
    }
    rows = [
        [name, *(f"{figures[figure]:.3g}" for figure in heads)]
        for name, figures in record["measured"]["encoders"].items()
    ]
    table = markdown(["encoder", *heads.values()], rows, right=tuple(range(1, len(heads) + 1)))
    return f"{table}\n{record['settings']['frames']} frames of held-out videos. {_origin(record)}\n"


def _cost(results: Results) -> str:
    record = _record(results, "cost")
    rows = [
        [
            f"`{preset}`",
            f"{cost['steps']:,}",
            f"{cost['views_per_step']:,}",
            f"{cost['tera_operations_per_step']:.2f}",
            f"{cost['peta_operations']:,.1f}",
            *(f"{cost['peta_operations'] * 1000 / rate / 3600:,.1f}" for rate in _TERA_PER_SECOND),
        ]
        for preset, cost in record["measured"].items()
    ]
    heads = ["preset", "steps", "views per step", "TFLOP per step", "PFLOP in total"]
    heads += [f"hours at {rate:g} TFLOP/s" for rate in _TERA_PER_SECOND]
    return f"{markdown(heads, rows, right=tuple(range(1, len(heads))))}\n{_origin(record)}\n"


_TERA_PER_SECOND = (0.08, 20, 100)  # sustained: two cores as measured, and two guesses for a GPU

# Of confidence_PRESET.json: the estimates shown, and their descriptions.
_CONFIDENCE = (
    ("fused", "confidence, fitted on composites"),
    ("fused, fitted on the others", "the same signals, fitted on ground truth of the other sequences"),
    ("frames since the annotation alone", "frames since the annotation"),
    ("certainty alone", "entropy of the votes"),
    ("annotation_similarity alone", "descriptor similarity to the annotated frame"),
)

_CONFIDENCE_POINTS = (
    ("fused", "confidence, weights set by hand"),
    ("fused, fitted on the others", "the same signals, fitted on ground truth of the other sequences"),
    ("frames since the annotation alone", "frames since the annotation"),
    ("margin alone", "margin of the votes"),
    ("past_cycle alone", "cycle consistency with the oldest memory frame"),
    ("annotation_cycle alone", "cycle consistency with the annotated frame"),
    ("annotation_similarity alone", "descriptor similarity to the annotated frame"),
)


def _confidence(results: Results) -> str:
    record = _record(results, "confidence_default")
    scores = record["measured"]["scores"]
    rows = [
        [words, *(f"{scores[name][metric]:.3f}" for metric in ("auroc_j50", "spearman_j", "area_under_risk"))]
        for name, words in _CONFIDENCE
        if name in scores
    ]
    heads = ["estimate", "AUROC, J below 0.5", "Spearman with J", "area under risk-coverage"]
    table = markdown(heads, rows, right=(1, 2, 3))
    measured = record["measured"]
    return (
        f"{table}\n{measured['frames']:,} propagated frames, {measured['bad_frames']} of them with J below 0.5; "
        f"mean J {100 * measured['mean_j']:.1f}. {_origin(record)}\n"
    )


def _confidence_cost(results: Results) -> str:
    record = _record(results, "speed_confidence")
    rows = [
        [f"`{preset}`", f"{timed['ratios'][name]:.2f}", "{:.2f} to {:.2f}".format(*timed["spread"][name])]
        for preset, timed in record["measured"].items()
        for name in timed["ratios"]
    ]
    table = markdown(["preset", "time with confidence / without", "range"], rows, right=(1, 2))
    return f"{table}\n{_origin(record)}\n"


def _confidence_points(results: Results) -> str:
    record = _record(results, "confidence_points")
    scores = record["measured"]["scores"]
    rows = [
        [words, *(f"{scores[name][metric]:.3f}" for metric in ("auroc_j50", "spearman_j"))]
        for name, words in _CONFIDENCE_POINTS
    ]
    table = markdown(["estimate", "AUROC, joint is wrong", "Spearman with nearness"], rows, right=(1, 2))
    measured = record["measured"]
    return (
        f"{table}\n{measured['frames']:,} joints, {measured['bad_frames']} of them wrong, on annotated frames of four "
        f"sequences. {_origin(record)}\n"
    )


def _audit(results: Results) -> str:
    record = _record(results, "audit")
    scores = record["measured"]["scores"]
    rows = [
        [
            name,
            f"{counts['detected']} of {counts['total']}"
            if "detected" in counts
            else f"{counts['false_alarms']} of {counts['total']} (false alarms)",
        ]
        for name, counts in scores.items()
    ]
    shift, table = scores["shift of 1 frame"], markdown(["fault", "detected"], rows, right=(1,))
    return (
        f"{table}\nShifts of one frame that change the mean overlap by 0.03 or more: "
        f"{shift['detected_of_changed']} of {shift['changed']} detected. {_origin(record)}\n"
    )


def _corrections(results: Results) -> str:
    record = _record(results, "corrections")
    means = record["measured"]["scores"]["JF_by_corrections"]
    rows = [[name, *(f"{100 * value:.1f}" for value in values)] for name, values in means.items()]
    heads = ["frames chosen by", *(str(count) for count in range(len(rows[0]) - 1))]
    table = markdown(heads, rows, right=tuple(range(1, len(heads))))
    return (
        f"{table}\nJ&F by number of corrected frames. Gain of `ours, together` over `uniform`: "
        f"{_gains_by_count(record)} (95 % intervals of a paired bootstrap over sequences). {_origin(record)}\n"
    )


def _gains_by_count(record: Mapping[str, Any]) -> str:
    """List the gain of our queue over even spacing with one correction, with two, and so on."""
    curves = record["measured"]["per_sequence"].values()
    ours, uniform = (np.array([curve[name] for curve in curves]).T for name in ("ours, together", "uniform"))
    gains = [paired_bootstrap(100 * a, 100 * b) for a, b in zip(ours[1:], uniform[1:], strict=True)]
    return ", ".join(f"{gain.difference:+.1f} [{gain.low:.1f}, {gain.high:.1f}]" for gain in gains)


def _correction_cost(results: Results) -> str:
    record = _record(results, "correction_cost")
    actions = {
        "propagate": "propagate from the first frame",
        "propagate_all_at_once": "propagate from three frames",
        "correct_one": "correct the middle frame",
        "correct_between": "then correct the frame half-way to the first",
        "correct_two_together": "correct two frames together",
    }
    rows = []
    for action, words in actions.items():
        versions = [record["measured"][version] for version in ("before", "after")]
        ratios = [version["ratio_to_share_of_propagating"].get(action) for version in versions]
        seconds = (f"{version['cpu_seconds'][action]:.1f}" for version in versions)
        rows.append([words, *seconds, *(f"{ratio:.2f}" if ratio else "" for ratio in ratios)])
    heads = ["", "before", "after", "ratio before", "ratio after"]
    table = markdown(heads, rows, right=(1, 2, 3, 4))
    return (
        f"{table}\nCPU seconds without the start of the process, before and after the change described here. Ratio: "
        "to the time of propagating the clip, scaled by the share of frames that are propagated again. "
        f"{_origin(record)}\n"
    )


def _tuning(results: Results) -> str:
    record = _record(results, "tuning")
    scores, jf = record["measured"]["scores"], record["measured"]["JF"]
    clips = jf["as in the preset"]
    preset = fmean(max(values[clip] for values in jf.values()) - clips[clip] for clip in clips)
    text = f"""Over {scores["settings"]} settings and {len(clips)} sequences the rank correlation of cycle error with
true J&F is {scores["spearman_of_means"]:.2f} for the mean over sequences, {scores["spearman_per_sequence"]:.2f} within
a sequence. Relative to the best setting of each sequence, choosing by cycle error loses {100 * scores["regret"]:.1f}
J&F, the preset {100 * preset:.1f}, a random setting {100 * scores["regret_of_a_setting_at_random"]:.1f}.
{_origin(record)}"""
    return f"{' '.join(text.split())}\n"


def _corpus(results: Results) -> str:
    records = {name: _record(results, f"corpus_{name}") for name in ("pack", "load", "train", "bulk")}
    packed, load, trained, bulk = (record["measured"] for record in records.values())
    counts, yes = packed["counts"], {True: "yes", False: "no"}
    left_out = sum(counts[name] for name in ("static", "duplicate", "short"))
    equal = bulk["outputs_equal_to_propagate"] and bulk["outputs_equal_to_one_process"]
    rows = [
        ["videos packed; clips kept; clips discarded", f"{counts['videos']}; {counts['clips']}; {left_out}"],
        ["pack to S3 with two kills: identical shards", yes[packed["same_shards_after_kills"]]],
        ["shards that differ when read back", str(len(packed["differing_after_reading_back"]))],
        ["packed size of an hour of video", f"{packed['bytes_per_hour'] / 1e6:,.0f} MB"],
        ["core-hours to pack an hour of video", f"{packed['core_hours_per_hour']:.2f}"],
        ["loading clips from S3 / plain decoding and resizing from disk", f"{load['throughput_over_bare']:.2f}"],
        [
            f"training with {len(trained['kills_at_steps'])} kills; with 2, 1, 2 processes; with the server down for "
            f"{trained['server_down_seconds']} s: same clips in the same order",
            yes[all(trained["same_sequence"].values())],
        ],
        ["byte-identical weights after kills and after the outage", yes[all(trained["same_weights"].values())]],
        [
            "bulk: videos, workers killed, drivers killed, corrupt videos failed",
            f"{bulk['videos']}, {bulk['workers_killed']}, 1, {bulk['dead_letters']}",
        ],
        [
            "bulk: videos finished; repeated after the driver was killed",
            f"{bulk['done']}; {bulk['repeated_after_driver_kill']}",
        ],
        ["bulk: outputs equal those of one process and of `timecycle propagate`", yes[equal]],
        ["efficiency of two workers with one thread each", f"{bulk['efficiency_of_two_workers']:.2f}"],
        ["overhead of Ray per video", f"{1e3 * bulk['overhead_seconds_per_video']:.0f} ms"],
        ["start of a cluster", f"{bulk['cluster_start_seconds']:.0f} s"],
    ]
    origins = " ".join(dict.fromkeys(map(_origin, records.values())))
    return f"{markdown(['measurement', 'result'], rows, right=(1,))}\n{origins}\n"


def _corpus_index(results: Results) -> str:
    """Make the table of what a process holds of a pack."""
    record = _record(results, "corpus_index")
    rows = [
        [
            f"{one['clips']:,}",
            f"{one['shards']:,}",
            f"{one['all_clips_mb']:,.0f} MB",
            f"{one['next_start_mb']:,.0f} MB",
            f"{one['first_start_seconds']:,.1f} s",
            f"{one['first_start_two_seconds']:,.1f} s",
            f"{1e3 * one['next_start_seconds']:,.0f} ms",
            f"{one['next_start_microseconds_per_sample']:,.0f} µs",
        ]
        for one in record["measured"]["growth"]
    ]
    starts = ["first start", "two processes", "next start"]
    heads = ["clips", "shards", "memory, all clips", "memory", *starts, "a look-up"]
    return f"{markdown(heads, rows, right=range(len(heads)))}\n{_origin(record)}\n"


def _bulk_resume(results: Results) -> str:
    record = _record(results, "bulk_chunks_resume")
    settings, measured = record["settings"], record["measured"]
    begun, whole, single = (measured[name] for name in ("chunks", "chunks_with_summary", "videos"))
    rows = [
        [
            f"{settings['lines']:,} lines, chunks of {settings['chunk']:,}, all but {settings['missing_chunks']} "
            "finished: plan, and find the first unfinished chunk",
            _seconds(begun),
        ],
        ["all finished: plan, list, read all records, write the summary", _seconds(whole)],
        [
            "most memory for it; of that, libraries before it begins",
            f"{whole['peak_memory_mb']:.0f} MB; {whole['memory_before_mb']:.0f} MB",
        ],
        [
            "resuming, processor time for each finished video: in chunks; each by itself",
            f"{begun['processor_microseconds_per_video'] / 1e3:.3f} ms; "
            f"{single['processor_microseconds_per_video'] / 1e3:.2f} ms",
        ],
    ]
    return f"{markdown(['measurement', 'result'], rows, right=(1,))}\n{_origin(record)}\n"


def _bulk_workers(results: Results) -> str:
    record = _record(results, "bulk_chunks_workers")
    measured = record["measured"]
    rows = [
        ["two workers on Ray / twice one worker", f"{measured['efficiency_of_two_workers']:.2f}"],
        [
            "two processes without Ray / twice one process",
            f"{measured['efficiency_of_two_processes_without_ray']:.2f}",
        ],
    ]
    return f"{markdown(['one thread each', 'result'], rows, right=(1,))}\n{_origin(record)}\n"


def _seconds(measured: Mapping[str, Any]) -> str:
    return f"{measured['processor_seconds']:.0f} s of processor time"


def _matching_arithmetic(results: Results) -> str:
    record = _record(results, "matching_arithmetic")
    measured, card = record["measured"], record["settings"]["card"]
    parts, side = measured["parts"], record["settings"]["tile"]
    works = {
        "encoder": parts["encoder"],
        **{
            f"search in tiles of {one}{' (used)' if int(one) == side else ''}": work
            for one, work in measured["tile_sides"].items()
        },
        "search, fused": parts["fused_search"],
        f"search of confidence in tiles of {side}": parts["search_of_confidence"],
        "search of confidence, fused": parts["fused_search_of_confidence"],
    }
    rows = [
        [
            name,
            f"{work['launches']:,}",
            f"{work['giga_flop']:.1f}",
            f"{work['giga_bytes']:.2f}",
            f"{work['milliseconds']:.1f}",
        ]
        for name, work in works.items()
    ]
    table = markdown(["part", "launches", "GFLOP", "GB", "expected ms"], rows, right=(1, 2, 3, 4))
    cells = "{1}x{0}".format(*measured["cells"])
    host, device = measured["host_milliseconds"], measured["device_milliseconds"]
    ratios = measured["frame_over_fused_frame"]
    text = f"""One frame of {record["settings"]["size"]}, preset `{record["settings"]["preset"]}`: {cells} cells of
{measured["dimensions"]} dimensions, {measured["references"]} references, {measured["window_cells"]:.0f} cells of each
in a window; the windows alone need {measured["needed_giga_flop"]:.1f} GFLOP. Assumed: {card["fp32_tera"]:g} TFLOP/s
(fp32; {card["tf32_tera"]:g} with TF32 in the encoder) and {card["memory_tera_bytes"]:.2f} TB/s, of which
{card["arithmetic_share"]:.0%} ({card["fused_share"]:.0%} in a fused kernel) and {card["memory_share"]:.0%} are reached;
{1e6 * card["launch_seconds"]:.0f} µs for a launch; `topk` reads the scores {card["topk_passes"]} times. All together:
{device["tiles"]:.1f} ms with tiles, {device["fused"]:.1f} ms fused. Host, measured: {host["decode"]:.0f} ms to decode
the labels and {host["other"]:.0f} ms of one core to read and write, beside {host["tensors"]:.0f} ms of tensors that a
GPU would do. With tiles a step of `Propagator` takes {ratios["step"]:.1f} times as long as with a fused kernel, a frame
of `timecycle propagate` on one core and a GPU {ratios["command"]:.1f} times. Making the masks
of the windows takes {measured["masks"]["milliseconds"]:.1f} ms, for the first frame only. {_origin(record)}"""
    return f"{table}\n{' '.join(text.split())}\n"


def _fuzz(results: Results) -> str:
    record = _record(results, "fuzz")
    kinds: dict[str, Any] = record["measured"]["by_kind"]
    counts = ("inputs", "refused", "accepted", "crash", "hang", "other_exception", "wrong")
    rows = [[name.replace("_", " "), *(f"{kind[count]:,}" for count in counts)] for name, kind in kinds.items()]
    rows.append(["total", *(f"{sum(kind[count] for kind in kinds.values()):,}" for count in counts)])
    remarks = {text: count for kind in kinds.values() for text, count in kind.get("remarks", {}).items() if ":" in text}
    listed = "; ".join(f"{text.replace(': ', ', ')} {count}" for text, count in sorted(remarks.items()))
    heads = ["input", "inputs", "refused", "read", "crashes", "hangs", "other exceptions", "wrong results"]
    about = f"Known deviations in damaged videos that were read: {listed}. " if listed else ""
    return f"{markdown(heads, rows, right=tuple(range(1, len(heads))))}\n{about}{_origin(record)}\n"


def _mouse(results: Results) -> str:
    record = _record(results, "mouse")
    settings: dict[str, Any] = record["settings"]
    rows = [
        [
            f"`{name}`" if name != "trained" else "the bundled one, trained on the mouse's video",
            *(f"{score[f'pck_{threshold}']:.1f}" for threshold in (0.1, 0.05)),
        ]
        for name, score in record["measured"].items()
    ]
    about = f"""{settings["images"]} images, {settings["pairs"]} pairs. Training: {settings["steps"]} steps in
{settings["cpu_minutes"]:.1f} minutes of one core. {_origin(record)}"""
    table = markdown(["encoder", "PCK@0.1", "PCK@0.05"], rows, right=(1, 2))
    return f"{table}\n{' '.join(about.split())}\n"


def _kills(results: Results) -> str:
    commands, training = (_record(results, name) for name in ("command_kills", "kills"))
    programs = {
        ", ".join(f"`{name}`" for name in commands["measured"]["by_command"]): ("command_kills.py", commands),
        "`train`": ("kills.py VIDEOS", training),
    }
    rows = [
        [killed, str(record["measured"]["kills"]), str(record["measured"]["differences"]), f"`benchmarks/{program}`"]
        for killed, (program, record) in programs.items()
    ]
    table = markdown(["what is killed", "SIGKILLs", "differing files", "program"], rows, right=(1, 2))
    repeated = training["measured"]["most_steps_redone"]
    origins = " ".join(dict.fromkeys(map(_origin, (commands, training))))
    return f"{table}\nTraining repeated at most {repeated} steps after a kill. {origins}\n"


def _capacity(results: Results) -> str:
    given = Assumptions()
    estimate = capacity({name: _record(results, name) for name in NEEDED}, given)
    assumed = (
        f"Assumptions: ${given.core_hour:g} per core-hour, ${given.gpu_hour:g} per GPU-hour at "
        f"{given.gpu_tera_per_second:g} TFLOP/s achieved, ${given.gb_month:g} per GB and month, "
        f"${given.thousand_puts:g} per thousand puts. With {given.gpus:,} GPUs of which one fails every "
        f"{given.hours_between_failures:g} hours, the best checkpoint interval is "
        f"{estimate.save_every_minutes:.1f} minutes."
    )
    return f"""Training on {given.hours / 1e6:g} million hours:

{_amounts(estimate.training)}
Labelling {given.clips / 1e6:g} million clips of {given.frames} frames:

{_amounts(estimate.labelling)}
{assumed}
"""


def _amounts(lines: Sequence[Line]) -> str:
    rows = [
        [line.what, line.amount, "" if line.dollars is None else f"{line.dollars:,.0f}", line.how] for line in lines
    ]
    return markdown(["item", "amount", "dollars", "derived from"], rows, right=(1, 2))


def _record(results: Results, name: str) -> Mapping[str, Any]:
    if name not in results.records:
        raise NoResultsError(f"there is no {name}.json", remedy=f"python benchmarks/{name}.py")
    return results.records[name]


def _origin(record: Mapping[str, Any], *, of_one_encoder: bool = True) -> str:
    machine = record["machine"]
    changed = " with changes" if "with changes" in record["commit"] else ""
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    is_former = of_one_encoder and record.get("settings", {}).get("encoder") == FORMER
    former = f"Measured with {FORMER}, the encoder before. " if is_former else ""
    return f"{former}Commit {record['commit'][:7]}{changed}; {machine['processor']}, {threads}."


def _with_provenance(table: str, reports: Sequence[Report]) -> str:
    return f"{table}\n{provenance(reports)}\n"


# The settings of each ablation, and the heading of its column. A window is in pixels, so it grows with the image.
_ABLATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "neighbours": (("neighbours",), "neighbours"),
    "references": (("past_frames",), "past frames"),
    "resolution": (("image_size_px", "window_px", "anchor_window_px"), "image px"),
    "window": (("window_px", "anchor_window_px"), "window px"),
    "temperature": (("temperature",), "temperature"),
    "weighting": (("weighting",), "weighting"),
}

# Of the bundled encoder and the one before: what was measured, and how names of its results begin and end.
_COMPARED_ON = {
    "DAVIS at 720p, `best`": ("davis2016_720p_best", ""),
    "DAVIS at 480p, `default`": ("davis2016_480p_default", ""),
    "DAVIS at 480p, `plain`": ("davis2016_480p", ""),
    "DAVIS at 240p, `fast`": ("davis2016_240p_fast", ""),
    "DAVIS at 240p, `plain`": ("davis2016_240p", ""),
    "the same, without colour": ("davis2016_240p", "_without_colour"),
    "eight sequences at 240p, `plain`": ("davis2016_eight_240p", ""),
    "the same eight, without colour": ("davis2016_eight_240p", "_without_colour"),
    "BADJA at 240p, `plain`": ("badja_240p", ""),
    "reconstruction at 240p, `plain`": ("reconstruction_240p", ""),
}
_CONTROL_ENCODERS = ("vgg16", "efficientnet-lite0-s8", "rgb")
# Weights of res2 features and of colour in the descriptor, and the ends of the names of their records.
_DESCRIPTOR_WEIGHTS = {
    "0.5, 1": "",
    "2.5, 1": "_fine_2.5",
    "5, 1": "_fine_5",
    "1.5, 1.5": "_fine_1.5_colour_1.5",
    "2.5, 2": "_fine_2.5_colour_2",
}
_CONTROLS = ("vgg16_fp32", "rgb", "efficientnet_lite0_s8", "sift", "dis_flow", "random_resnet18", "identity")


def _ui_assist(results: Results) -> str:
    """Tabulate what strokes of the assisted tool bring, on composites with and without the mask before the stroke."""
    davis, composites = (_record(results, name) for name in ("ui_assist", "ui_assist_composites"))
    shown = {
        "composites, all strokes at once": composites["measured"]["at_once"],
        "composites": composites["measured"]["segment"],
        "DAVIS-2016 val": davis["measured"],
    }
    strokes = range(davis["settings"]["strokes"] + 1)
    rows = [
        [
            name,
            *(f"{one['mean'][column]:.3f}" for column in ("box", *(f"strokes_{i}" for i in strokes))),
            str(one["strokes_that_made_it_worse"]),
            f"{one['mean']['seconds']:.2f}",
            f"{one['longest_seconds']:.2f}",
        ]
        for name, one in shown.items()
    ]
    heads = ["first frames of", "box itself", "box", *(f"{i} stroke{'s' * (i > 1)}" for i in strokes if i)]
    table = markdown([*heads, "made worse", "seconds", "longest"], rows, right=tuple(range(1, len(heads) + 3)))
    return (
        f"{table}\nMean IoU with the true mask. Made worse: strokes that lowered it by more than 0.05. Seconds of an "
        f"answer on one core, its median and the longest. {_origin(davis)}\n"
    )


def _ui_page(results: Results) -> str:
    """Tabulate the measurements of the page in a browser."""
    record = _record(results, "ui_page")
    measured = record["measured"]
    start, scrub, memory = measured["start"], measured["scrub"], measured["memory"]
    rows = [
        ["from the command to the first frame", f"{start['to_first_frame_seconds']:.1f} s"],
        ["from the command to the first stroke", f"{start['to_first_stroke_seconds']:.1f} s"],
        [
            f"a random frame on the screen, median of {scrub['frames']}",
            f"{scrub['page_median_seconds']:.2f} s, the bare decode {scrub['bare_median_seconds']:.2f} s",
        ],
        ["a step of a stroke, median", f"{measured['stroke']['median_milliseconds']:.1f} ms"],
        [
            f"the same with {measured['many_objects']['objects']} objects",
            f"{measured['many_objects']['stroke']['median_milliseconds']:.1f} ms",
        ],
        *(
            [
                f"memory after {row['scrubs']:,} random frames",
                f"server {row['server_mb']} MB, frames {row['frames_mb']} MB, page {row['page_heap_mb']} MB",
            ]
            for row in (memory[0], memory[-1])
        ),
    ]
    table = markdown(["of the page", "measured"], rows, right=())
    return f"{table}\nThe video: {record['settings']['long']}; memory with a smaller one. {_origin(record)}\n"


# Records of agreement without colour, for `_by_clip`.
_STRONG_MASKS: Mapping[str, Any] = {"file": "strong_masks_{}_colour_0", "measure": ("scores", "agreement")}

TABLES: Mapping[str, Callable[[Results], str]] = {
    "davis2016_480p": _davis_large,
    "headline": _headline,
    "versions": _versions,
    "why": _why,
    "what_is_learned": _what_is_learned,
    "steps_480p": _steps,
    "davis2016_240p": partial(_davis, size_px=240),
    "davis2016_eight_240p": partial(_davis, size_px=240, eight=True),
    **{f"ablation_{what}": partial(_ablation, what=what) for what in _ABLATIONS},
    "badja": partial(_scores, prefix="badja", benchmark="badja"),
    "jhmdb_sample": partial(_scores, prefix="jhmdb", benchmark="jhmdb", beside=[COUNTED]),
    "reconstruction": partial(_scores, prefix="reconstruction", benchmark="reconstruction-5-10-every-10"),
    **{f"published_{protocol}": partial(_published, protocol=protocol) for protocol in protocols()},
    "learned": partial(_learned, group="learned", controls=_CONTROLS),
    "learned_levers": partial(_learned, group="lever"),
    "learned_ablations": partial(_learned, group="ablation"),
    "training_step": _step_cost,
    "recipes": _recipes,
    "free_footage": partial(
        _by_clip,
        **_STRONG_MASKS,
        groups=("free",),
        base="timecycle-v1",
        controls=("vgg16", "timecycle-v1", "segments", "random-timecycle-v1@0"),
    ),
    "free_ideas": partial(_by_clip, **_STRONG_MASKS, groups=("idea",), base="idea_recipe"),
    "free_as_used": partial(
        _by_clip,
        file="strong_masks_{}_fine_2.5",
        measure=("scores", "agreement"),
        groups=("free", "idea"),
        base="short_contrast",
    ),
    "free_descriptor": _free_descriptor,
    "free_round_trips": partial(
        _by_clip,
        file="round_trips_{}",
        measure=("overlaps", "overlap on return"),
        groups=("free",),
        base="timecycle-v1",
        controls=("timecycle-v1", "segments", "random-timecycle-v1@0"),
    ),
    "descriptors": _descriptors,
    "stages": _stages,
    "probes": _probes,
    "cost": _cost,
    "confidence": _confidence,
    "confidence_points": _confidence_points,
    "confidence_cost": _confidence_cost,
    "audit": _audit,
    "corrections": _corrections,
    "correction_cost": _correction_cost,
    "tuning": _tuning,
    "corpus": _corpus,
    "corpus_index": _corpus_index,
    "bulk_resume": _bulk_resume,
    "bulk_workers": _bulk_workers,
    "capacity": _capacity,
    "speed": _speed,
    "speed_growth": _speed_growth,
    "memory_course": _memory_course,
    "speed_peers": _speed_peers,
    "published_ablations": partial(_published, protocol="davis2017", group="ablation"),
    "fuzz": _fuzz,
    "mouse": _mouse,
    "matching_arithmetic": _matching_arithmetic,
    "kills": _kills,
    "ui_assist": _ui_assist,
    "ui_page": _ui_page,
}


def _pages(root: Path) -> list[Path]:
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if page.is_file() and _BEGIN in page.read_text(encoding="utf-8")]


def _stale_blocks(page: Path, results: Results) -> list[str]:
    text = page.read_text(encoding="utf-8")
    update(text, results, page=page.name)  # refuses a page whose blocks are malformed
    return [name for name, body in _BLOCK.findall(text) if body != make_table(name, results)]


def _plots(results: Results) -> dict[str, tuple[Callable[[], Any], str]]:
    """Return the function that draws each plot, and the checksum of its data; plots without results are left out."""
    plots: dict[str, tuple[Callable[[], Any], str]] = {}
    if any(result.name.startswith("davis2016_480p_") for result in results.reports):
        reports = list(_in_common_settings(results).values())
        digest = _sha256(repr(reports))
        plots[f"{IMAGES}/davis2016_480p_bars.png"] = partial(draw_bars, reports), digest
        plots[f"{IMAGES}/davis2016_480p_over_time.png"] = partial(draw_over_time, reports), digest
    shown = {name: f"training_{name}" for name in SHOWN}
    if set(shown.values()) <= set(results.records):
        records = {name: results.records[record] for name, record in shown.items()}
        plots[f"{IMAGES}/learning_curves.png"] = partial(draw_learning_curves, records), _sha256(json.dumps(records))
    for name, draw in _PLOTS_OF_ONE_RECORD.items():
        if name in results.records:
            record = results.records[name]
            plots[f"{IMAGES}/{name}.png"] = partial(draw, record), _sha256(json.dumps(record))
    if {"corpus_pack", "corpus_index", "corpus_bulk"} <= set(results.records):
        records = {name: results.records[f"corpus_{name}"] for name in ("pack", "index", "bulk")}
        plots[f"{IMAGES}/corpus_growth.png"] = partial(draw_corpus, records), _sha256(json.dumps(records))
    if any(result.name == "learned_stage_1" for result in results.reports):
        stages, by_name = read_stages(results), {result.name: result.report for result in results.reports}
        controls = {
            words: fmean(by_name[f"davis2016_eight_240p_{name}"].scores["JF"] for name in names)
            for words, names in _HOURS_CONTROLS.items()
        }
        plots[f"{IMAGES}/hours.png"] = partial(draw_hours, FORMER, stages, controls), _sha256(repr((stages, controls)))
    return plots


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_PLOTS_OF_ONE_RECORD: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "speed_growth": draw_growth,
    "confidence_default": partial(draw_risk_coverage, estimates=_CONFIDENCE),
    "corrections": draw_corrections,
}
# Of several reports, such as those of seeds, the mean is drawn.
_HOURS_CONTROLS: Mapping[str, Sequence[str]] = {
    "VGG-16, ImageNet": ("vgg16_fp32",),
    "EfficientNet-Lite0, ImageNet": ("efficientnet_lite0_s8",),
    "colour": ("rgb",),
    "random, in its form": ("random_timecycle_v1", "random_timecycle_v1_1", "random_timecycle_v1_2"),
    "random ResNet-18": ("random_resnet18",),
}


def _stored_digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with Image.open(path) as image:
        return image.info.get(_NOTE)


if __name__ == "__main__":
    sys.exit(main())
