"""Write the tables of README.md and docs/results.md from the result files: python benchmarks/tables.py [--check]

A table stands between `<!-- generated: NAME -->` and `<!-- end generated -->`; NAME is one of TABLES below. The plots
of docs/images are drawn again too. With --check nothing is written: the exit code is 1 and the stale parts are named.
A block without result files is empty.
"""

import argparse
import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from PIL import Image

from capacity import NEEDED, Assumptions, Line, capacity
from curves import draw_curves
from forms import FORMS
from growth import draw_corpus, draw_growth, exponent
from hours import Stage, draw_hours
from learn import RUNS, SHOWN, Group, Run
from recipes import RECIPES
from record import RESULTS
from timecycle.config import propagate_config
from timecycle.errors import SettingsError, TimecycleError
from timecycle.evaluation.compare import compare
from timecycle.evaluation.figure import save_small
from timecycle.evaluation.metrics.bootstrap import paired_bootstrap
from timecycle.evaluation.plots import draw_bars, draw_over_time
from timecycle.evaluation.published import Group as PublishedGroup
from timecycle.evaluation.published import protocols, published_rows
from timecycle.evaluation.report import Report, read_report
from timecycle.evaluation.scores import COUNTED, lower_is_better, main_scores
from timecycle.evaluation.tables import (
    IMAGE_SIZE,
    METHOD,
    SECONDS_PER_FRAME,
    WINDOW,
    Column,
    Row,
    davis_table,
    grid,
    method_name,
    provenance,
    published_table,
    score_column,
    score_table,
    setting_column,
)
from timecycle.model.registry import DEFAULT_ENCODER
from trusting import draw_corrections, draw_risk

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("results", "learning", "encoders", "model", "trust", "speed", "scale")),
)
IMAGES = "docs/images"

_BLOCK = re.compile(r"<!-- generated: (\S+) -->\n(.*?)<!-- end generated -->", re.DOTALL)
_BEGIN = "<!-- generated:"
_NOTE = "timecycle results"  # in a picture: the checksum of the files it was drawn from


class NoResultsError(SettingsError):
    """A table was asked for of which nothing has been measured."""


@dataclass(frozen=True)
class Result:
    """A report and the name of its file."""

    name: str
    report: Report


@dataclass(frozen=True)
class Results:
    """All result files: reports of evaluations, and records of everything else by name."""

    reports: Sequence[Result]
    records: Mapping[str, Mapping[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something is stale")
    check = parser.parse_args().check
    try:
        stale = find_stale(ROOT) if check else rewrite(ROOT)
    except TimecycleError as error:
        print(f"error: {error.problem}\n  try: {error.remedy}", file=sys.stderr)
        return 2
    for part in stale:
        print(f"{'stale' if check else 'written'}: {part}")
    for part in find_empty(ROOT):
        print(f"empty, for want of results: {part}")
    if check and stale:
        print("  try: python benchmarks/tables.py")
    return 1 if check and stale else 0


def find_stale(root: Path) -> list[str]:
    """The blocks and pictures that are not what the result files say."""
    results = read_results(root / "benchmarks" / RESULTS.name)
    blocks = [f"{page.relative_to(root)}: {name}" for page in _pages(root) for name in _stale_blocks(page, results)]
    return blocks + [name for name, (_, seen) in _pictures(results).items() if _drawn_from(root / name) != seen]


def find_empty(root: Path) -> list[str]:
    """The blocks for which there is no result file."""
    results = read_results(root / "benchmarks" / RESULTS.name)
    named = [(page, name) for page in _pages(root) for name, _ in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [f"{page.relative_to(root)}: {name}" for page, name in named if not make_table(name, results)]


def rewrite(root: Path) -> list[str]:
    """Bring blocks and pictures up to date; returns those that were stale."""
    stale = find_stale(root)
    results = read_results(root / "benchmarks" / RESULTS.name)
    for page in _pages(root):
        text = page.read_text(encoding="utf-8")
        fresh = renew(text, results, page=page.name)
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
    for name, (draw, seen) in _pictures(results).items():
        if name in stale:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            save_small(root / name, draw(), note={_NOTE: seen})
    return stale


def renew(text: str, results: Results, *, page: str = "the page") -> str:
    """A page with every generated block made again."""
    if text.count(_BEGIN) != len(_BLOCK.findall(text)):
        raise SettingsError(
            f"a generated block of {page} does not end, or its first line is not as it should be",
            remedy="write '<!-- generated: NAME -->' and '<!-- end generated -->' on lines of their own",
        )
    return _BLOCK.sub(
        lambda block: f"<!-- generated: {block[1]} -->\n{make_table(block[1], results)}<!-- end generated -->", text
    )


def make_table(name: str, results: Results) -> str:
    """The text of a block; empty as long as there are no results for it."""
    if name not in TABLES:
        raise SettingsError(f"there is no generated block {name!r}", remedy=f"the blocks are {', '.join(TABLES)}")
    try:
        return TABLES[name](results)
    except NoResultsError:
        return ""


def read_results(folder: Path) -> Results:
    """The files in a folder; what has scores per sequence is a report."""
    contents = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    reports = [Result(path.stem, read_report(path)) for path, content in contents.items() if "per_sequence" in content]
    records = {path.stem: content for path, content in contents.items() if "per_sequence" not in content}
    return Results(reports, records)


def _named(results: Results, prefix: str, **expected: Any) -> list[Report]:
    """The reports whose files begin with a prefix; each must be what its name says."""
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
                f"{result.name}.json has {wrong[0]} = {facts[wrong[0]]}, but its name stands for {expected[wrong[0]]}",
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
    """All sequences of DAVIS-2016 val, or the eight that slow encoders and ablations are run on."""
    prefix, sequences = ("davis2016_eight", 8) if eight else ("davis2016", 20)
    expected = {"benchmark": "davis2016", "image_size_px": size_px, "sequences": sequences}
    return _named(results, f"{prefix}_{size_px}p_", **expected)


def _in_common_settings(results: Results) -> dict[str, Report]:
    """By encoder, on all of DAVIS-2016 val at 480p, without what `best` settings give."""
    past = propagate_config("default").past_frames
    return {r.encoder: r for r in _davis_reports(results, 480) if r.config["past_frames"] == past}


def _headline(results: Results) -> str:
    """The shipped encoder and every control on all that is measured; differences are paired over the sequences."""
    reports = _in_common_settings(results)
    ours = reports.get(DEFAULT_ENCODER)
    if ours is None:
        raise NoResultsError(
            f"no result of {DEFAULT_ENCODER} at 480p", remedy="python benchmarks/evaluate.py DATA --work DIR"
        )
    others = {  # what else is in the table: heading, benchmark, score, factor
        "BADJA PCK@0.2": ("badja", "PCK@0.2", 100),
        "L1, 5 frames": ("reconstruction-5-10-every-10", "L1_5", 1),
        "L1, 10 frames": ("reconstruction-5-10-every-10", "L1_10", 1),
    }
    found = {(r.report.benchmark, r.report.encoder): r.report for r in results.reports}
    rows = []
    for name, report in sorted(reports.items(), key=lambda item: -item[1].scores["JF"]):
        by = compare(report, ours).differences[0]
        rows.append(
            [
                method_name(name),
                f"{100 * report.scores['JF']:.1f}",
                "-" if report is ours else f"{100 * by.difference:+.1f}",
                "-" if report is ours else f"{100 * by.low:+.1f} to {100 * by.high:+.1f}",
                "-" if report is ours else f"{by.better} of {by.sequences}",
                *(
                    f"{factor * found[benchmark, name].scores[score]:.1f}" if (benchmark, name) in found else "-"
                    for benchmark, score, factor in others.values()
                ),
            ]
        )
    heads = ["encoder", "DAVIS J&F", "ours against it", "95 % interval", "ours better on", *others]
    return _with_provenance(grid(heads, rows, right=tuple(range(1, len(heads)))), [ours])


def _scores(results: Results, *, prefix: str, benchmark: str, beside: Sequence[str] = ()) -> str:
    """A benchmark's own scores and others beside them, best first by the first; with the settings, which may differ."""
    reports = _named(results, prefix, benchmark=benchmark)
    scores = main_scores(reports)
    shown = [score_column(score) for score in (*scores, *beside)]
    table = score_table(reports, [METHOD, *shown, SECONDS_PER_FRAME, IMAGE_SIZE, WINDOW], order_by=scores[0])
    return _with_provenance(table, reports)


def _ablation(results: Results, *, what: str) -> str:
    """One setting changed and all others kept; the run it departs from is found among the others."""
    changed, heading = _ABLATIONS[what]
    changing = [result for result in results.reports if re.match(rf"ablation_\w*?_?{what}_", result.name)]
    if not changing:
        raise NoResultsError(
            f"no result file begins with ablation_ and names {what}",
            remedy=f"copy the reports to benchmarks/results/ablation_{what}_VALUE.json",
        )
    kept = {_kept(result.report, changed) for result in changing}
    if len(kept) != len({result.report.encoder for result in changing}):
        raise SettingsError(
            f"the {len(changing)} results of the ablation of {what} differ in more than {', '.join(changed)}",
            remedy="evaluate them with all other settings alike",
        )
    bases = [r for r in results.reports if r.name.startswith("davis2016_") and _kept(r.report, changed) in kept]
    # The base may have been run once more under the ablation's name.
    unique = {(r.report.encoder, *(str(r.report.config.get(name)) for name in changed)): r for r in bases + changing}
    reports = sorted((result.report for result in unique.values()), key=lambda report: _rank(report, changed[0]))
    columns = [setting_column(changed[0], heading)] if changed[0] != "window_px" else []
    columns += [WINDOW] if "window_px" in changed else []
    scores = [score_column(score) for score in ("JF", "J", "F")]
    return _with_provenance(score_table(reports, [METHOD, *columns, *scores, SECONDS_PER_FRAME]), reports)


def _learned(results: Results, *, group: Group, controls: Sequence[str] = ()) -> str:
    """Runs of one group by their words, best first, among controls on the same sequences where these are named."""
    runs = {f"learned_{run.name}": run for run in RUNS if run.group == group}
    found = {result.name: result.report for result in results.reports}
    learned = {
        run.words: (run, dataclasses.replace(found[name], encoder=run.words))
        for name, run in runs.items()
        if name in found
    }
    if not learned:
        raise NoResultsError(f"no result file of the runs {', '.join(runs)}", remedy="python benchmarks/learn.py")
    reports = [report for _, report in learned.values()]
    reports += [found[f"davis2016_eight_240p_{name}"] for name in controls]

    def of_run(cell: Callable[[Run], str]) -> Callable[[Row], str]:
        return lambda row: cell(learned[row.first.encoder][0]) if row.first.encoder in learned else "-"

    columns = [METHOD, Column("steps", of_run(lambda run: f"{run.steps:,}"))]
    columns += [score_column(score) for score in ("JF", "J", "F")]
    if any(run.paper for run, _ in learned.values()):
        columns.append(Column("the paper's J, F", of_run(lambda run: run.paper or "-")))
    return _with_provenance(score_table(reports, columns, order_by="JF" if controls else None), reports)


def _kept(report: Report, changed: Sequence[str]) -> tuple[str, ...]:
    settings = (f"{name}={value}" for name, value in sorted(report.config.items()) if name not in changed)
    return report.encoder, report.benchmark, str(report.data.get("sha256")), *settings


def _rank(report: Report, setting: str) -> tuple[str, float, str]:
    """By encoder, then by the setting; no window is the widest."""
    value = report.config.get(setting)
    number = float("inf") if value is None else float(value) if isinstance(value, int | float) else 0.0
    return report.encoder, number, str(value)


def _published(results: Results, *, protocol: str, group: PublishedGroup | None = None) -> str:
    rows = [row for row in published_rows(protocol) if (row.group == "ablation") == (group == "ablation")]
    if group == "ablation":  # with the row they depart from
        base = rows[0].method.partition(":")[0]
        rows += [row for row in published_rows(protocol, group="paper") if row.method == base]
    first = next(iter(rows[0].scores))
    order = "JF" if first == "J" else first
    best = "Lowest" if lower_is_better(order) else "Highest"
    mean = " J&F is the mean of J and F where the source does not give it." if order == "JF" else ""
    return f"{published_table(rows, order_by=order)}\n{protocols()[protocol]}. {best} first.{mean}\n"


def _step_cost(results: Results) -> str:
    """Whole training steps over the bare encoder, as measured in turns."""
    record = _record(results, "training_step")
    rows = [
        [name.replace("_", " "), *(f"{row[part]:.3g}" for part in ("ratio", "step", "bare"))]
        for name, row in record["measured"]["seconds"].items()
    ]
    table = grid(["objective, encoder, image, batch", "step / bare encoder", "step s", "bare s"], rows, right=(1, 2, 3))
    pace = ", ".join(
        f"{row['steps_in_half_an_hour']:,} steps of {objective} ({row['waiting_for_clips']:.1%} waiting for clips)"
        for objective, row in record["measured"]["pace"].items()
    )
    return f"{table}\nOn real clips half an hour is {pace}. {_origin(record)}\n"


# Of benchmarks/speed.py: the part, the ratio, and what was done for it.
_SPEED = (
    ("whole", "whole_over_bare_fp32", "frames to labels, 7 + 1 references, window 96 px"),
    ("whole", "whole_20_over_bare_fp32", "20 + 1 references, all windowed"),
    ("whole", "stepwise_over_bare_fp32", "7 + 1, each frame waits for the one before (a camera)"),
    ("whole", "global_over_bare_fp32", "7 + 1, no window"),
    ("whole", "without_kernel_over_bare_fp32", "7 + 1, without the kernel"),
    ("whole", "whole_bf16_over_bare_bf16", "7 + 1, everything and the bare encoder in bf16"),
    ("command", "command_over_bare_fp32", "`timecycle propagate`: mp4 in; label files, table, film and pictures out"),
    ("fast", "fast_over_bare_fp32", "preset `fast`, over the bare encoder at its 240p"),
)


def _speed(results: Results) -> str:
    """Everything over the bare encoder, and what else was seen."""
    parts = {part: _record(results, f"speed_{part}") for part, _, _ in _SPEED}
    measured = {part: record["measured"] for part, record in parts.items()}
    rows = [
        [words, f"{measured[part]['ratios'][name]:.2f}", "{:.2f} to {:.2f}".format(*measured[part]["spread"][name])]
        for part, name, words in _SPEED
        if name in measured[part]["spread"]
    ]
    table = grid(["what", "time / bare encoder", "rounds"], rows, right=(1, 2))
    same, threads = (_record(results, f"speed_{part}")["measured"] for part in ("agreement", "threads"))
    settings, fast = parts["whole"]["settings"], measured["fast"]
    text = f"""Medians and range over the rounds; {settings["sequence"]} at {settings["size"]}, ResNet-18 with trained
weights ({settings["weights_sha256"][:12]}), kernel {settings["kernel"]}. The command's memory peaks at
{measured["command"]["peak_rss_mib"]:,.0f} MiB. Preset `fast` labels {fast["frames_per_second"]:.1f} frames a second,
where the bare encoder makes {1 / fast["seconds_bare"]:.1f}. {threads["threads"]} threads are
{threads["ratios"]["one_thread_over_all"]:.2f} times as fast as one. Labels equal those of matching and voting in
float64 in {same["same_pixels"]:.5%} of the pixels of {same["frames"]} frames
({same["same_pixels_worst_frame"]:.5%} in the worst).
{_origin(parts["whole"])}"""
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
    table = grid(["of", "amounts", "time / bare encoder at 480p", "rounds", "power"], rows, right=(4,))
    return f"{table}\nTime grows with this power of the amount: 1 is linear. {_origin(record)}\n"


def _speed_peers(results: Results) -> str:
    """Other programs' matching over ours on the same features, run aside."""
    record = _record(results, "speed_peers")
    rows = [
        [row["program"], row["settings"], f"{row['ratio']:.1f}", row["agreement"]]
        for row in record["measured"]["peers"]
    ]
    table = grid(["program", "settings", "its time / ours", "agreement"], rows, right=(2,))
    return f"{table}\n{record['measured']['how']} {_origin(record)}\n"


def _recipes(results: Results) -> str:
    """Short runs of equal time on composites of held-out footage, best first, and the controls."""
    records = {
        name.removeprefix("recipe_"): record for name, record in results.records.items() if "recipe_" in name[:7]
    }
    if not records:
        raise NoResultsError("no result file begins with recipe_", remedy="python benchmarks/recipes.py")

    def row(name: str, record: Mapping[str, Any]) -> list[str]:
        settings, scores = record["settings"], record["measured"]["scores"]
        coloured = record["measured"].get("scores_with_colour")
        return [
            RECIPES[name].words if name in RECIPES else name,
            f"{settings['steps']:,}" if settings else "-",
            *(f"{100 * scores[score]:.1f}" for score in ("J", "F")),
            *(f"{100 * coloured[score]:.1f}" if coloured else "-" for score in ("J", "F")),
        ]

    def best(record: Mapping[str, Any]) -> float:
        measured = record["measured"]
        return max(float(measured[kind]["JF"]) for kind in ("scores", "scores_with_colour") if measured.get(kind))

    ordered = sorted(records.items(), key=lambda item: -best(item[1]))
    heads = ["recipe", "steps", "J", "F", "J with colour", "F with colour"]
    table = grid(heads, [row(name, record) for name, record in ordered], right=(1, 2, 3, 4, 5))
    minutes = {record["settings"]["minutes"] for record in records.values() if record["settings"]}
    each = f"{next(iter(minutes)):g} minutes each" if len(minutes) == 1 else "times differ"
    return f"{table}\nTraining: {each}. {_origin(ordered[0][1])}\n"


def _forms(results: Results) -> str:
    """What labels are carried by, on the composites that recipes are judged on, in the order they were tried."""
    records = {name: results.records[f"form_{name}"] for name in FORMS if f"form_{name}" in results.records}
    if not records:
        raise NoResultsError("no result file begins with form_", remedy="python benchmarks/forms.py")
    scores = {name: record["measured"]["scores"] for name, record in records.items()}
    rows = [
        [FORMS[name].words, *(f"{100 * of[score]:.1f}" for score in ("JF", "J", "F"))] for name, of in scores.items()
    ]
    return f"{grid(['labels are carried by', 'J&F', 'J', 'F'], rows, right=(1, 2, 3))}\n{_origin(records['plain'])}\n"


def stages_of(results: Results) -> list[Stage]:
    """The stages of the shipped encoder that are trained and scored, with the hours up to the end of each."""
    scored = {result.name: result.report.scores for result in results.reports}
    stages: dict[str, Stage] = {}
    for run in (run for run in RUNS if run.group == "stage"):
        record, scores = results.records.get(f"training_{run.name}"), scored.get(f"learned_{run.name}")
        if record is not None and scores is not None:
            hours = record["seconds"] / 3600 + (stages[run.start].hours if run.start else 0)
            stages[run.name] = Stage(run.words, run.steps, hours, scores)
    if not stages:
        raise NoResultsError("no stage is trained", remedy="python benchmarks/learn.py DATA --work DIR --only stage")
    return list(stages.values())


def _stages(results: Results) -> str:
    stages = stages_of(results)
    rows = [
        [stage.words, f"{stage.hours:.2f}", f"{stage.steps:,}"]
        + [f"{100 * stage.scores[score]:.1f}" for score in ("JF", "J", "F")]
        for stage in stages
    ]
    table = grid(["after", "hours", "steps", "J&F", "J", "F"], rows, right=(1, 2, 3, 4, 5))
    return f"{table}\nEight sequences of DAVIS-2016 val at 240p. {_origin(results.records['training_stage_1'])}\n"


def _probes(results: Results) -> str:
    record = _record(results, "probes")
    heads = {
        "effective_rank": "effective rank",
        "mean_cosine": "mean cosine",
        "position_r2": "position R2",
        "shift_8px": "moved by a cell",
        "shift_4px": "moved by half a cell",
    }
    rows = [
        [name, *(f"{figures[figure]:.3g}" for figure in heads)]
        for name, figures in record["measured"]["encoders"].items()
    ]
    table = grid(["encoder", *heads.values()], rows, right=tuple(range(1, len(heads) + 1)))
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
    heads = ["preset", "steps", "views a step", "TFLOP a step", "PFLOP in all"]
    heads += [f"hours at {rate:g} TFLOP/s" for rate in _TERA_PER_SECOND]
    return f"{grid(heads, rows, right=tuple(range(1, len(heads))))}\n{_origin(record)}\n"


_TERA_PER_SECOND = (0.08, 20, 100)  # sustained: two cores as measured here, and two guesses for a GPU

# Of trust_PRESET.json: the ways of trusting that are shown, and their words.
_TRUST = (
    ("fused", "the confidence, fitted on composites"),
    ("fused, fitted on the others", "the same signals, fitted on the truth of the other sequences"),
    ("frames since the drawing alone", "frames since the drawing"),
    ("certainty alone", "entropy of the votes"),
    ("similarity alone", "distance of descriptors to the drawing's"),
)

_TRUST_POINTS = (
    ("fused", "the confidence, weighed by hand"),
    ("fused, fitted on the others", "the same signals, fitted on the truth of the other sequences"),
    ("frames since the drawing alone", "frames since the drawing"),
    ("margin alone", "margin of the votes"),
    ("past_return alone", "coming home from the oldest frame that votes"),
    ("drawing_return alone", "coming home from the drawing"),
    ("similarity alone", "distance of descriptors to the drawing's"),
)


def _trust(results: Results) -> str:
    record = _record(results, "trust_default")
    scores = record["measured"]["scores"]
    rows = [
        [words, *(f"{scores[name][figure]:.3f}" for figure in ("auroc_j50", "spearman_j", "area_under_risk"))]
        for name, words in _TRUST
        if name in scores
    ]
    table = grid(["trust by", "AUROC, J below 0.5", "Spearman with J", "area under risk"], rows, right=(1, 2, 3))
    measured = record["measured"]
    return (
        f"{table}\n{measured['frames']:,} carried frames, {measured['bad_frames']} of them with J below 0.5; mean J "
        f"{100 * measured['mean_j']:.1f}. {_origin(record)}\n"
    )


def _trust_cost(results: Results) -> str:
    record = _record(results, "speed_judged")
    rows = [
        [f"`{preset}`", f"{of['ratios'][name]:.2f}", "{:.2f} to {:.2f}".format(*of["spread"][name])]
        for preset, of in record["measured"].items()
        for name in of["ratios"]
    ]
    table = grid(["preset", "time with confidence / without", "rounds"], rows, right=(1, 2))
    return f"{table}\n{_origin(record)}\n"


def _trust_points(results: Results) -> str:
    record = _record(results, "trust_points")
    scores = record["measured"]["scores"]
    rows = [
        [words, *(f"{scores[name][figure]:.3f}" for figure in ("auroc_j50", "spearman_j"))]
        for name, words in _TRUST_POINTS
    ]
    table = grid(["trust by", "AUROC, joint is wrong", "Spearman with nearness"], rows, right=(1, 2))
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
            f"{of['found']} of {of['of']}" if "found" in of else f"{of['false_alarms']} of {of['of']} (false alarms)",
        ]
        for name, of in scores.items()
    ]
    one, table = scores["shift of 1 frame"], grid(["fault", "found"], rows, right=(1,))
    return (
        f"{table}\nOf shifts of one frame that change the mean overlap by 0.03 or more: "
        f"{one['found_telling']} of {one['of_telling']}. {_origin(record)}\n"
    )


def _corrections(results: Results) -> str:
    record = _record(results, "corrections")
    means = record["measured"]["scores"]["JF_by_corrections"]
    rows = [[name, *(f"{100 * value:.1f}" for value in values)] for name, values in means.items()]
    heads = ["frames chosen by", *(str(count) for count in range(len(rows[0]) - 1))]
    table = grid(heads, rows, right=tuple(range(1, len(heads))))
    return (
        f"{table}\nJ&F by corrected frames; ours together over uniform: {_gains_by_count(record)} "
        f"(95 % intervals of a paired bootstrap over sequences). {_origin(record)}\n"
    )


def _gains_by_count(record: Mapping[str, Any]) -> str:
    """What our queue gains over even spacing with one drawing, with two, ..."""
    curves = record["measured"]["per_sequence"].values()
    ours, uniform = (np.array([of[name] for of in curves]).T for name in ("ours, together", "uniform"))
    found = [paired_bootstrap(100 * a, 100 * b) for a, b in zip(ours[1:], uniform[1:], strict=True)]
    return ", ".join(f"{one.difference:+.1f} [{one.low:.1f}, {one.high:.1f}]" for one in found)


def _correction_cost(results: Results) -> str:
    record = _record(results, "correction_cost")
    acts = {
        "propagate": "propagate from the first frame",
        "propagate_all_at_once": "propagate from three frames",
        "correct_one": "correct the middle frame",
        "correct_between": "then the frame between it and the first",
        "correct_two_together": "correct two frames together",
    }
    rows = []
    for act, words in acts.items():
        of = [record["measured"][when] for when in ("before", "after")]
        ratio = [one["ratio_to_share_of_propagating"].get(act) for one in of]
        rows.append(
            [words, *(f"{one['cpu_seconds'][act]:.1f}" for one in of), *(f"{r:.2f}" if r else "" for r in ratio)]
        )
    heads = ["", "before", "after", "ratio before", "ratio after"]
    table = grid(heads, rows, right=(1, 2, 3, 4))
    return (
        f"{table}\nCPU seconds, without the start of the process, before and after what is told here; ratio to the "
        "share that the frames propagated again have of propagating the clip from the frames annotated so far. "
        f"{_origin(record)}\n"
    )


def _tuning(results: Results) -> str:
    record = _record(results, "tuning")
    scores, truth = record["measured"]["scores"], record["measured"]["JF"]
    clips = truth["as in the preset"]
    preset = fmean(max(of[clip] for of in truth.values()) - clips[clip] for clip in clips)
    text = f"""Over {scores["settings"]} settings and {len(clips)} sequences the rank correlation of cycle error with
true J&F is {scores["spearman_of_means"]:.2f} for the mean over sequences, {scores["spearman_per_sequence"]:.2f} within
a sequence. Against the best setting of each sequence, choosing by it loses {100 * scores["regret"]:.1f} J&F, always the
preset {100 * preset:.1f}, a setting at random {100 * scores["regret_of_a_setting_at_random"]:.1f}.
{_origin(record)}"""
    return f"{' '.join(text.split())}\n"


def _corpus(results: Results) -> str:
    records = {name: _record(results, f"corpus_{name}") for name in ("pack", "load", "train", "bulk")}
    packed, load, trained, bulk = (record["measured"] for record in records.values())
    counts, yes = packed["counts"], {True: "yes", False: "no"}
    left_out = sum(counts[name] for name in ("still", "duplicate", "short"))
    equal = bulk["outputs_equal_to_propagate"] and bulk["outputs_equal_to_one_process"]
    rows = [
        ["videos packed; clips kept, left out", f"{counts['videos']}; {counts['clips']}, {left_out}"],
        ["pack to S3 killed twice: shards as of one that was not", yes[packed["same_shards_after_kills"]]],
        ["shards that differ when read back", str(len(packed["differing_after_reading_back"]))],
        ["bytes of an hour of video, packed", f"{packed['bytes_per_hour'] / 1e6:,.0f} MB"],
        ["core-hours to pack an hour of video", f"{packed['core_hours_per_hour']:.2f}"],
        ["clips from S3 / bare decoding and resizing of files at hand", f"{load['throughput_over_bare']:.2f}"],
        [
            f"training killed at {len(trained['kills_at_steps'])} points; 2, 1, 2 processes; no server for "
            f"{trained['server_away_seconds']} s: the same clips in the same order",
            yes[all(trained["same_sequence"].values())],
        ],
        ["the same weights, to the byte, after kills and without a server", yes[all(trained["same_weights"].values())]],
        [
            "bulk: videos, workers killed, drivers killed, corrupt videos given up",
            f"{bulk['videos']}, {bulk['workers_killed']}, 1, {bulk['dead_letters']}",
        ],
        [
            "videos done; of these, done again after the driver was killed",
            f"{bulk['done']}; {bulk['done_again_after_the_driver_was_killed']}",
        ],
        ["every output equal to those of one process and of `timecycle propagate`", yes[equal]],
        ["efficiency of two workers, one thread each, against one", f"{bulk['efficiency_of_two_workers']:.2f}"],
        ["what Ray adds to a video", f"{1e3 * bulk['overhead_seconds_per_video']:.0f} ms"],
        ["start of a cluster", f"{bulk['cluster_start_seconds']:.0f} s"],
    ]
    return (
        f"{grid(['what', 'measured'], rows, right=(1,))}\n{' '.join(dict.fromkeys(map(_origin, records.values())))}\n"
    )


def _fuzz(results: Results) -> str:
    record = _record(results, "fuzz")
    kinds: dict[str, Any] = record["measured"]["by_kind"]
    counts = ("inputs", "refused", "accepted", "crash", "hang", "foreign", "wrong")
    rows = [[name.replace("_", " "), *(f"{of[count]:,}" for count in counts)] for name, of in kinds.items()]
    rows.append(["together", *(f"{sum(of[count] for of in kinds.values()):,}" for count in counts)])
    remarks = {words: count for of in kinds.values() for words, count in of.get("remarks", {}).items() if ":" in words}
    told = "; ".join(f"{words.replace(': ', ', ')} {count}" for words, count in sorted(remarks.items()))
    heads = ["input", "inputs", "refused", "read", "crashes", "hangs", "foreign exceptions", "wrong results"]
    about = f"Beyond what is promised, of videos that were read: {told}. " if told else ""
    return f"{grid(heads, rows, right=tuple(range(1, len(heads))))}\n{about}{_origin(record)}\n"


def _capacity(results: Results) -> str:
    given = Assumptions()
    found = capacity({name: _record(results, name) for name in NEEDED}, given)
    assumed = (
        f"Assumed: ${given.core_hour:g} a core-hour, ${given.gpu_hour:g} a GPU-hour at "
        f"{given.gpu_tera_per_second:g} TFLOP/s achieved, ${given.gb_month:g} a GB and month, "
        f"${given.thousand_puts:g} a thousand puts. With {given.gpus:,} GPUs of which one fails every "
        f"{given.hours_between_failures:g} hours, saving costs least every {found.save_every_minutes:.1f} minutes."
    )
    return f"""Training on {given.hours / 1e6:g} million hours:

{_amounts(found.training)}
Labelling {given.clips / 1e6:g} million clips of {given.frames} frames:

{_amounts(found.labelling)}
{assumed}
"""


def _amounts(lines: Sequence[Line]) -> str:
    rows = [
        [line.what, line.amount, "" if line.dollars is None else f"{line.dollars:,.0f}", line.how] for line in lines
    ]
    return grid(["what", "amount", "dollars", "from the measured"], rows, right=(1, 2))


def _record(results: Results, name: str) -> Mapping[str, Any]:
    if name not in results.records:
        raise NoResultsError(f"there is no {name}.json", remedy=f"python benchmarks/{name}.py")
    return results.records[name]


def _origin(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    changed = " with changes" if "with changes" in record["commit"] else ""
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    return f"Commit {record['commit'][:7]}{changed}; {machine['processor']}, {threads}."


def _with_provenance(table: str, reports: Sequence[Report]) -> str:
    return f"{table}\n{provenance(reports)}\n"


# What each ablation changes, and the heading of its column. A window is in pixels, so it grows with the image.
_ABLATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "neighbours": (("neighbours",), "neighbours"),
    "references": (("past_frames",), "past frames"),
    "resolution": (("image_size_px", "window_px", "anchor_window_px"), "image px"),
    "window": (("window_px", "anchor_window_px"), "window px"),
    "temperature": (("temperature",), "temperature"),
    "weighting": (("weighting",), "weighting"),
}

_CONTROLS = ("vgg16_fp32", "rgb", "efficientnet_lite0_s8", "sift", "dis_flow", "random_resnet18", "identity")

TABLES: Mapping[str, Callable[[Results], str]] = {
    "davis2016_480p": partial(_davis, size_px=480),
    "headline": _headline,
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
    "forms": _forms,
    "stages": _stages,
    "probes": _probes,
    "cost": _cost,
    "trust": _trust,
    "trust_points": _trust_points,
    "trust_cost": _trust_cost,
    "audit": _audit,
    "corrections": _corrections,
    "correction_cost": _correction_cost,
    "tuning": _tuning,
    "corpus": _corpus,
    "capacity": _capacity,
    "speed": _speed,
    "speed_growth": _speed_growth,
    "speed_peers": _speed_peers,
    "published_ablations": partial(_published, protocol="davis2017", group="ablation"),
    "fuzz": _fuzz,
}


def _pages(root: Path) -> list[Path]:
    return [root / page for page in PAGES if (root / page).is_file()]


def _stale_blocks(page: Path, results: Results) -> list[str]:
    text = page.read_text(encoding="utf-8")
    renew(text, results, page=page.name)  # refuses a page whose blocks are broken
    return [name for name, body in _BLOCK.findall(text) if body != make_table(name, results)]


def _pictures(results: Results) -> dict[str, tuple[Callable[[], Any], str]]:
    """How each picture is drawn, and the checksum of what it is drawn from; none without results."""
    pictures: dict[str, tuple[Callable[[], Any], str]] = {}
    if any(result.name.startswith("davis2016_480p_") for result in results.reports):
        reports = list(_in_common_settings(results).values())
        seen = hashlib.sha256(repr(reports).encode()).hexdigest()
        pictures[f"{IMAGES}/davis2016_480p_bars.png"] = partial(draw_bars, reports), seen
        pictures[f"{IMAGES}/davis2016_480p_over_time.png"] = partial(draw_over_time, reports), seen
    shown = {name: f"training_{name}" for name in SHOWN}
    if set(shown.values()) <= set(results.records):
        records = {name: results.records[record] for name, record in shown.items()}
        seen = hashlib.sha256(json.dumps(records).encode()).hexdigest()
        pictures[f"{IMAGES}/learning_curves.png"] = partial(draw_curves, records), seen
    for name, draw in _OF_ONE_RECORD.items():
        if name in results.records:
            record = results.records[name]
            seen = hashlib.sha256(json.dumps(record).encode()).hexdigest()
            pictures[f"{IMAGES}/{name}.png"] = partial(draw, record), seen
    if {"corpus_pack", "corpus_index", "corpus_bulk"} <= set(results.records):
        records = {name: results.records[f"corpus_{name}"] for name in ("pack", "index", "bulk")}
        seen = hashlib.sha256(json.dumps(records).encode()).hexdigest()
        pictures[f"{IMAGES}/corpus_growth.png"] = partial(draw_corpus, records), seen
    if any(result.name == "learned_stage_1" for result in results.reports):
        stages, found = stages_of(results), {result.name: result.report for result in results.reports}
        controls = {words: found[f"davis2016_eight_240p_{name}"].scores["JF"] for name, words in _BESIDE_HOURS.items()}
        seen = hashlib.sha256(repr((stages, controls)).encode()).hexdigest()
        pictures[f"{IMAGES}/hours.png"] = partial(draw_hours, stages, controls), seen
    return pictures


_OF_ONE_RECORD: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "speed_growth": draw_growth,
    "trust_default": partial(draw_risk, ways=_TRUST),
    "corrections": draw_corrections,
}
_BESIDE_HOURS = {
    "vgg16_fp32": "VGG-16, ImageNet",
    "efficientnet_lite0_s8": "EfficientNet-Lite0, ImageNet",
    "rgb": "colour",
    "random_resnet18": "random ResNet-18",
}


def _drawn_from(path: Path) -> str | None:
    if not path.is_file():
        return None
    with Image.open(path) as image:
        return image.info.get(_NOTE)


if __name__ == "__main__":
    sys.exit(main())
