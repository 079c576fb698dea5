"""The runs of benchmarks/learn.py, and the tables and curves of their results."""

import pytest

import result_tables as script
from figures import draw_learning_curves
from learn import RUNS, curve
from reports import davis_report
from timecycle.config import preset_names

EIGHT = tuple(0.3 + 0.05 * i for i in range(8))
CONTRAST = "cells weighted by how much they differ from their neighbours"


def result(name, encoder, shift=0.0):
    return script.Result(name, davis_report(encoder, tuple(value + shift for value in EIGHT)))


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_runs_have_distinct_names_and_valid_settings():
    assert len({run.name for run in RUNS}) == len({run.description for run in RUNS}) == len(RUNS)
    for run in RUNS:
        assert run.config().steps == run.steps
        assert run.preset in preset_names("train")
        assert run.start is None or run.start in {other.name for other in RUNS}


def test_learned_runs_and_controls_are_ordered_by_score():
    controls = [result(f"davis2016_eight_240p_{name}", name, 0.01 * i) for i, name in enumerate(script._CONTROLS)]
    learned = result("learned_walks", "walks.safetensors", 0.2)
    table = rows(script.make_table("learned", script.Results([*controls, learned], {})))
    assert table[0] == ["method", "steps", "J&F", "J", "F"]
    assert table[2][:2] == ["walks, 30 minutes", "1,300"]
    assert {row[1] for row in table[3:]} == {"-"}


def test_ablations_show_the_scores_of_the_paper_in_the_order_of_the_runs():
    reports = [result(f"learned_{name}", f"{name}.safetensors") for name in ("ablation_no_skip", "ablation_base")]
    table = rows(script.make_table("learned_ablations", script.Results(reports, {})))
    assert table[0][-1] == "J, F in the paper"
    assert [row[0] for row in table[2:]] == ["cycles, 15 minutes", "without skip cycles"]
    assert [row[-1] for row in table[2:]] == ["41.9, 39.4", "39.5, 37.9"]


def scored(measure, *scores):
    return {
        "commit": "0" * 40,
        "machine": {"processor": "a processor", "threads": 1},
        "measured": {measure: {f"clip{i}": score for i, score in enumerate(scores)}},
    }


def test_runs_are_compared_with_the_shipped_encoder_clip_by_clip():
    records = {
        "strong_masks_short_contrast_colour_0": scored("scores", 33.0, 45.0),
        "strong_masks_timecycle-v1_colour_0": scored("scores", 30.0, 40.0),
        "training_short_contrast": {"seconds": 1250.0},
    }
    table = rows(script.make_table("free_footage", script.Results([], records)))
    steps = {run.name: f"{run.steps:,}" for run in script.RUNS}
    assert table[0] == ["", "steps", "minutes", "agreement", "difference"]
    assert table[2:] == [
        ["timecycle-v1, ours, no labels, not free", "-", "-", "35.0", "-"],
        [CONTRAST, steps["short_contrast"], "21", "39.0", "+4.0 ± 1.0"],
    ]
    assert script.make_table("free_round_trips", script.Results([], records)) == ""


def test_ideas_are_compared_with_the_recipe_they_change():
    records = {
        "strong_masks_idea_negatives_colour_0": scored("scores", 33.0, 45.0),
        "strong_masks_idea_recipe_colour_0": scored("scores", 30.0, 40.0),
    }
    table = rows(script.make_table("free_ideas", script.Results([], records)))
    assert [row[0] for row in table[2:]] == [
        "the recipe of timecycle-v2, half its steps",
        "negatives from two other clips",
    ]
    assert [row[4] for row in table[2:]] == ["-", "+4.0 ± 1.0"]


def test_runs_and_ideas_are_compared_as_propagation_uses_them():
    records = {
        "strong_masks_short_contrast_fine_2.5": scored("scores", 30.0, 40.0),
        "strong_masks_idea_synthetic_fine_2.5": scored("scores", 31.0, 43.0),
    }
    table = rows(script.make_table("free_as_used", script.Results([], records)))
    assert table[2][0] == CONTRAST
    assert [row[4] for row in table[2:]] == ["-", "+2.0 ± 1.0"]


def test_weights_in_the_descriptor_are_compared_for_learned_and_random_weights():
    records = {
        "strong_masks_short_contrast": scored("scores", 60.0, 70.0),
        "strong_masks_short_contrast_fine_2.5": scored("scores", 62.0, 71.0),
        "strong_masks_random-timecycle-v1@0_fine_2.5": scored("scores", 50.0, 52.0),
    }
    table = rows(script.make_table("free_descriptor", script.Results([], records)))
    assert table[0] == ["weights of res2 and colour", "0.5, 1", "2.5, 1"]
    assert [row[1:] for row in table[2:]] == [["65.0", "66.5"], ["-", "-"], ["-", "51.0"]]


def test_without_runs_a_table_is_empty():
    assert script.make_table("learned_levers", script.Results([], {})) == ""
    assert script.make_table("training_step", script.Results([], {})) == ""


def test_a_curve_averages_the_journal_into_60_points():
    journal = [{"step": step, "total": float(step), "alarms": []} for step in range(1, 601)]
    journal[299]["held_out_warp_accuracy"] = 0.5
    points = curve(journal)
    assert len(points) == 60
    assert points[0] == {"step": 10, "total": 5.5}
    assert points[29] == {"step": 300, "total": 295.5, "held_out_warp_accuracy": 0.5}


@pytest.fixture
def records():
    line = dict.fromkeys(("same_frame", "walk", "pose_gain", "held_out_warp_accuracy", "held_out_cycle_accuracy"), 0.5)
    points = [{"step": step, **line} for step in (10, 20, 30)]
    return {name: {"settings": {"steps": 30}, "measured": {"curve": points}} for name in ("walks", "cycles")}


def test_learning_curves_are_drawn(records):
    picture = draw_learning_curves(records)
    assert picture.shape[1] == 1080
    assert len({tuple(colour) for colour in picture.reshape(-1, 3)[::7]}) > 4


def test_the_table_of_training_steps_names_commit_and_machine():
    record = {
        "commit": "0123456789",
        "machine": {"processor": "a processor", "threads": 2},
        "measured": {
            "seconds": {"walks_resnet18_128px_batch8": {"step": 1.2, "bare": 1.0, "ratio": 1.2}},
            "pace": {"walks": {"steps_in_half_an_hour": 1340, "waiting_for_clips": 0.004}},
        },
    }
    text = script.make_table("training_step", script.Results([], {"training_step": record}))
    assert rows(text)[2] == ["walks resnet18 128px batch8", "1.2", "1.2", "1"]
    assert "1,340 steps of walks (0.4% waiting for clips)" in text
    assert "Commit 0123456; a processor, 2 threads." in text
