"""Tables of reports (score_tables.py), and the generated blocks of the docs (result_tables.py)."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

import result_tables as script
from published import published_rows
from reports import davis_report
from score_tables import davis_table, inference_name, provenance, published_table
from timecycle.config import propagate_config
from timecycle.errors import SettingsError
from timecycle.evaluation.reporting.report import write_report
from timecycle.evaluation.reporting.scores import main_scores, merge_seeds, method_name, score_name
from timecycle.model.registry import DEFAULT_ENCODER

ROOT = Path(__file__).parents[2]


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]


def test_the_davis_table_is_in_percent_best_first_with_settings_and_cost():
    table = cells(
        davis_table([davis_report("identity", (0.2, 0.3)), davis_report("vgg16", (0.5, 0.7), window_px=None)])
    )
    assert table[0] == [
        "method", "J&F", "J", "F", "J recall", "J decay", "s / frame", "inference", "image px", "window px",
    ]  # fmt: skip
    assert table[2] == [
        "VGG-16 relu4_3, supervised ImageNet",
        "65.0", "60.0", "70.0", "50.0", "25.0", "0.30", "plain", "240", "anywhere, first frame 48",
    ]  # fmt: skip
    # Copying reads no settings.
    assert table[3] == ["identity (copy frame 1)", "30.0", "25.0", "35.0", "50.0", "25.0", "0.30", "-", "-", "-"]


def test_inference_is_named_by_its_preset_and_what_differs():
    def as_report(name, *settings):
        return dataclasses.asdict(propagate_config(name, settings))

    names = ["plain", "default", "fast", "best"]
    assert [inference_name(as_report(name)) for name in names] == names
    assert inference_name(as_report("plain", "image_size_px=240")) == "plain"
    assert inference_name(as_report("plain", "past_frames=20", "neighbours=5")) == "plain, past_frames=20, neighbours=5"
    assert inference_name(as_report("default", "guided_filter=false")) == "default, guided_filter=False"
    older = {name: value for name, value in as_report("plain").items() if name != "sharpening"}
    assert inference_name(older) == "plain"  # written before there was such a setting


def test_seeds_are_merged_into_one_row_with_their_standard_deviation():
    seeds = [davis_report(f"random-resnet18{seed}", (j, j)) for seed, j in (("", 0.3), ("@1", 0.32), ("@2", 0.34))]
    (row,) = cells(davis_table(seeds))[2:]
    assert row[:3] == ["random ResNet-18 (3 seeds)", "37.0 ± 2.0", "32.0 ± 2.0"]
    assert len(merge_seeds(seeds[:1])) == 1
    assert merge_seeds(seeds[1:2])[0].name() == "random ResNet-18, seed 1"


def test_seeds_with_different_settings_are_not_merged():
    rows = merge_seeds([davis_report("random-resnet18"), davis_report("random-resnet18@1", neighbours=5)])
    assert [len(row.reports) for row in rows] == [1, 1]


def test_a_repeated_report_is_refused():
    with pytest.raises(SettingsError, match="2 reports of rgb with the same settings"):
        davis_table([davis_report("rgb"), davis_report("rgb")])


def test_seeds_with_different_descriptions_are_not_merged():
    other = dataclasses.replace(davis_report("random-resnet18@1"), description="bf16")
    rows = merge_seeds([davis_report("random-resnet18"), other])
    assert [row.name() for row in rows] == ["random ResNet-18 (test)", "random ResNet-18, seed 1 (bf16)"]


def test_rows_with_different_weights_or_descriptions_have_distinct_names():
    one = davis_report("mine.safetensors", (0.1, 0.2))
    other = dataclasses.replace(one, weights_sha256="12345678" * 8)
    rows = cells(davis_table([one, other]))[2:]
    assert [row[0] for row in rows] == [
        "mine.safetensors (weights 0000000)", "mine.safetensors (weights 1234567)"
    ]  # fmt: skip
    rows = cells(davis_table([one, dataclasses.replace(one, description="bf16")]))[2:]
    assert [row[0] for row in rows] == ["mine.safetensors (test)", "mine.safetensors (bf16)"]


def test_different_data_are_refused():
    with pytest.raises(SettingsError, match="rgb and sift were evaluated on different data: ab and cd"):
        davis_table([davis_report("rgb"), davis_report("sift", sha256="cd")])
    with pytest.raises(SettingsError, match="without reports"):
        davis_table([])


def test_the_time_of_masks_of_another_program_is_unknown():
    elsewhere = dataclasses.replace(davis_report("masks in results"), config={})
    assert cells(davis_table([elsewhere]))[2][6:] == ["-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("encoder", "name"),
    [
        ("identity", "identity (copy frame 1)"),
        ("rgb", "RGB, mean of 8x8 px"),
        ("random-resnet50", "random ResNet-50"),
        ("random-timecycle-v1@2", "random weights in the form of timecycle-v1, seed 2"),
        ("timecycle-v1-without-colour", "timecycle-v1, ours, no labels, not free, without colour"),
        ("random-timecycle-v1-without-colour", "random weights in the form of timecycle-v1, without colour"),
        ("dis-flow", "DIS optical flow, chained"),
        ("sift", "dense SIFT"),
        ("vgg16", "VGG-16 relu4_3, supervised ImageNet"),
        ("efficientnet-lite0-s8", "EfficientNet-Lite0, stride 8, supervised ImageNet"),
        ("mine.safetensors", "mine.safetensors"),
    ],
)
def test_methods_have_names_for_readers(encoder, name):
    assert method_name(encoder) == name


def test_scores_have_names_for_readers():
    names = ["JF", "J_recall", "PCK@0.1", "L1_5", "L1_5_mean_of_channels", "AP_vol"]
    assert list(map(score_name, names)) == [
        "J&F", "J recall", "PCK@0.1", "L1, 5 frames", "L1, 5 frames, mean of channels", "AP vol",
    ]  # fmt: skip


def test_scores_that_only_some_reports_have_are_not_main_scores():
    one = davis_report("rgb")
    assert main_scores([one]) == ["JF", "J", "F"]
    assert main_scores([one, dataclasses.replace(one, scores={"J": 0.5, "extra": 1.0})]) == ["J"]


def test_provenance_names_data_commit_and_machine():
    assert provenance([davis_report("rgb", (0.1, 0.2))]) == "2 sequences, 14 frames; commit 0123456; Abacus, 1 thread."
    changed = dataclasses.replace(davis_report("sift"), commit="0123456789abcdef, fedcba9876543210 with changes")
    assert "commit 0123456, fedcba9 with changes; Abacus" in provenance([davis_report("rgb"), changed])


def test_published_rows_have_their_source_and_unchecked_ones_are_left_out():
    table = published_table(published_rows("davis2017"), order_by="JF")
    assert table.startswith("| as published | J&F | J | F | inference | source |")
    assert "| TimeCycle, ResNet-50 | 40.7 | 41.9 | 39.4 |" in table
    assert "| ImageNet, ResNet-50 (supervised) | 49.7 |" in table
    assert "[Wang, Jabri, Efros 2019](https://arxiv.org/abs/1903.07593), table 1 |" in table
    assert "LIIR" not in table  # not checked at its source
    values = [float(row[1]) for row in cells(table)[2:]]
    assert values == sorted(values, reverse=True)


def test_published_errors_are_lowest_first_and_mixed_protocols_are_refused():
    table = cells(published_table(published_rows("reconstruction"), order_by="L1_5"))
    assert [row[1] for row in table[2:]] == ["60.4", "62.4", "64.0", "82.0"]
    with pytest.raises(SettingsError, match="2 protocols: jhmdb, vip"):
        published_table([*published_rows("jhmdb"), *published_rows("vip")])


# benchmarks/result_tables.py


def twenty(encoder, shift=0.0, **config):
    return davis_report(encoder, tuple(0.2 + shift + 0.02 * i for i in range(20)), **config)


@pytest.fixture
def tree(tmp_path):
    """A repository with results of two resolutions and an ablation, and pages with blocks for their tables."""
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for size in (240, 480):
        for encoder, shift in (("rgb", 0.0), ("vgg16", 0.2)):
            report = twenty(encoder, shift, image_size_px=size)
            write_report(results / f"davis2016_{size}p_{encoder}.json", report)
    for k in (5, 20):
        write_report(results / f"ablation_neighbours_{k}.json", twenty("rgb", 0.01 * k, neighbours=k))
    (results / "scale_memory.json").write_text(json.dumps({"benchmark": "scale_memory", "measured": {}}))
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(page("davis2016_480p"))
    (tmp_path / "docs" / "results.md").write_text(page("davis2016_240p", "ablation_neighbours", "published_jhmdb"))
    return tmp_path


def page(*names):
    blocks = (f"Before.\n\n<!-- generated: {name} -->\nold\n<!-- end generated -->\n\nAfter.\n" for name in names)
    return "\n".join(blocks)


def test_stale_blocks_and_plots_are_listed_and_updated(tree):
    stale = [
        "README.md: davis2016_480p",
        "docs/results.md: davis2016_240p",
        "docs/results.md: ablation_neighbours",
        "docs/results.md: published_jhmdb",
        "docs/images/davis2016_480p_bars.png",
        "docs/images/davis2016_480p_over_time.png",
    ]
    assert script.find_stale(tree) == stale
    assert script.rewrite(tree) == stale
    assert script.find_stale(tree) == []
    readme = (tree / "README.md").read_text()
    assert readme.startswith("Before.\n\n<!-- generated: davis2016_480p -->\n| method |")
    assert readme.endswith("<!-- end generated -->\n\nAfter.\n")
    assert "old" not in readme
    with Image.open(tree / "docs/images/davis2016_480p_bars.png") as picture:
        assert picture.width == 1000


def test_a_changed_result_makes_its_tables_and_plots_stale(tree):
    script.rewrite(tree)
    write_report(tree / "benchmarks/results/davis2016_480p_rgb.json", twenty("rgb", 0.1, image_size_px=480))
    assert script.find_stale(tree) == [
        "README.md: davis2016_480p",
        "docs/images/davis2016_480p_bars.png",
        "docs/images/davis2016_480p_over_time.png",
    ]


def test_an_ablation_includes_its_baseline(tree):
    table = cells(script.make_table("ablation_neighbours", script.read_results(tree / "benchmarks/results")))
    assert [row[1] for row in table[2:5]] == ["5", "10", "20"]
    assert {row[0] for row in table[2:5]} == {"RGB, mean of 8x8 px"}


def test_an_ablation_that_changes_two_settings_is_refused(tree):
    write_report(
        tree / "benchmarks/results/ablation_240p_neighbours_1.json", twenty("rgb", neighbours=1, temperature=1.0)
    )
    with pytest.raises(SettingsError, match="differ in more than neighbours"):
        script.find_stale(tree)


def test_the_headline_compares_ours_with_each_control_in_common_settings_only(tree):
    results = tree / "benchmarks/results"
    assert script.make_table("headline", script.read_results(results)) == ""  # ours is not there yet
    write_report(results / "davis2016_480p_ours.json", twenty(DEFAULT_ENCODER, 0.1, image_size_px=480))
    best = twenty("vgg16", 0.4, image_size_px=480, past_frames=20)
    write_report(results / "davis2016_480p_best_vgg16.json", best)
    table = cells(script.make_table("headline", script.read_results(results)))
    assert [row[2:5] for row in table[2:] if len(row) > 1] == [
        ["-10.0", "-10.0 to -10.0", "0 of 20"],
        ["-", "-", "-"],
        ["+10.0", "+10.0 to +10.0", "20 of 20"],
    ]
    assert {row[-1] for row in table[2:] if len(row) > 1} == {"-"}  # frames were not rebuilt


def test_the_encoder_and_the_one_before_are_compared_wherever_both_were_measured(tree):
    results = tree / "benchmarks/results"
    old, new = twenty("timecycle-v1", image_size_px=480), twenty("timecycle-v2", 0.1, image_size_px=480)
    write_report(results / "davis2016_480p_timecycle_v1.json", old)
    write_report(results / "davis2016_480p_timecycle_v2.json", new)
    write_report(results / "davis2016_480p_default_timecycle_v1.json", old)
    table = cells(script.make_table("versions", script.read_results(results)))
    assert table[0][1:3] == ["timecycle-v1", "timecycle-v2"]
    assert [row for row in table[2:] if len(row) > 1] == [
        ["DAVIS at 480p, `plain`, J&F", *table[2][1:3], "+10.0", "+10.0 to +10.0", "20 of 20"]
    ]


def test_no_window_is_ordered_as_the_widest(tree):
    for px in (None, 24.0):
        report = twenty("rgb", window_px=px, anchor_window_px=px)
        write_report(tree / f"benchmarks/results/ablation_240p_window_{px}.json", report)
    table = cells(script.make_table("ablation_window", script.read_results(tree / "benchmarks/results")))
    assert [row[1] for row in table[2:5]] == ["24", "48", "anywhere"]


def test_a_file_whose_content_contradicts_its_name_is_refused(tree):
    write_report(tree / "benchmarks/results/davis2016_480p_sift.json", twenty("sift", image_size_px=320))
    with pytest.raises(SettingsError, match=r"davis2016_480p_sift.json has image_size_px = 320, .* name says 480"):
        script.find_stale(tree)


def test_blocks_without_name_or_end_are_refused(tree):
    results = script.read_results(tree / "benchmarks/results")
    with pytest.raises(SettingsError, match="there is no generated block 'other'"):
        script.update(page("other"), results)
    with pytest.raises(SettingsError, match="has no end"):
        script.update("<!-- generated: badja -->\n", results)


def test_a_block_without_results_is_empty_and_listed(tree):
    (tree / "README.md").write_text(page("badja", "ablation_references"))
    script.rewrite(tree)
    assert "<!-- generated: badja -->\n<!-- end generated -->" in (tree / "README.md").read_text()
    assert script.find_empty(tree) == ["README.md: badja", "README.md: ablation_references"]
    assert script.find_stale(tree) == []


def test_the_table_of_another_benchmark_shows_its_main_scores(tree):
    for encoder, pck in (("rgb", 0.3), ("sift", 0.4)):
        scores = {"PCK@0.2": pck, "PCK@0.2_first_in": 0.9}
        report = dataclasses.replace(
            davis_report(encoder, benchmark="badja"), scores=scores, per_sequence={"dog": scores, "cows": scores}
        )
        write_report(tree / f"benchmarks/results/badja_{encoder}.json", report)
    table = cells(script.make_table("badja", script.read_results(tree / "benchmarks/results")))
    assert table[0] == ["method", "PCK@0.2", "s / frame", "inference", "image px", "window px"]
    assert table[2][4:] == ["240", "48"]
    assert [row[:2] for row in table[2:4]] == [["dense SIFT", "40.0"], ["RGB, mean of 8x8 px", "30.0"]]


def test_the_share_of_counted_joints_is_shown_and_other_benchmarks_are_refused(tree):
    scores = {"PCK@0.1": 0.3, "PCK@0.1_hidden_wrong": 0.2, "counted": 0.95}
    report = dataclasses.replace(
        davis_report("rgb", benchmark="jhmdb"), scores=scores, per_sequence={"a": scores, "b": scores}
    )
    write_report(tree / "benchmarks/results/jhmdb_sample_rgb.json", report)
    table = cells(script.make_table("jhmdb_sample", script.read_results(tree / "benchmarks/results")))
    assert table[0][:3] == ["method", "PCK@0.1", "counted"]
    assert table[2][1:3] == ["30.0", "95.0"]
    write_report(tree / "benchmarks/results/badja_rgb.json", report)
    with pytest.raises(SettingsError, match=r"badja_rgb\.json has benchmark = jhmdb, but its name says badja"):
        script.make_table("badja", script.read_results(tree / "benchmarks/results"))


def test_check_exits_with_1_for_stale_blocks_and_2_for_errors(tree, monkeypatch, capsys):
    monkeypatch.setattr(script, "ROOT", tree)
    monkeypatch.setattr("sys.argv", ["result_tables.py", "--check"])
    assert script.main() == 1
    assert "stale: README.md: davis2016_480p" in capsys.readouterr().out
    (tree / "README.md").write_text(page("other"))
    assert script.main() == 2
    assert "the blocks are davis2016_480p" in capsys.readouterr().err
    (tree / "README.md").write_text("nothing generated\n")
    (tree / "docs/results.md").unlink()
    shutil.rmtree(tree / "benchmarks")
    assert script.main() == 0


def test_tables_and_plots_of_this_repository_are_up_to_date():
    """After a change of benchmarks/results run `python benchmarks/result_tables.py`."""
    assert script.find_stale(ROOT) == []


def test_commits_that_results_name_are_in_the_history_or_listed_as_lost():
    git = ["git", "-C", str(ROOT), "rev-list", "--all"]
    known = subprocess.run(git, capture_output=True, text=True, check=False)
    if known.returncode != 0 or (ROOT / ".git" / "shallow").exists():
        pytest.skip("there is no whole history here")
    history = set(known.stdout.split())
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    listed = text.partition("A few of them (")[2].partition(")")[0]
    unknown = {}
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        for commit in re.findall(r"\b[0-9a-f]{40}\b", str(json.loads(path.read_text(encoding="utf-8")).get("commit"))):
            if commit not in history:
                unknown.setdefault(commit[:7], []).append(path.name)
    assert set(unknown) == set(listed.split(", ")), unknown
