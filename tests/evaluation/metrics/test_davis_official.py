"""Our DAVIS scores equal those of the official evaluator, on predictions made from the ground truth alone."""

import json
from pathlib import Path

import davis_predictions
import numpy as np
import pytest

from timecycle.evaluation.metrics.masks import average_objects, score_objects, summarise

OFFICIAL = json.loads(Path(__file__).with_name("davis_official.json").read_text())
# Three small objects and a large one.
A_FEW = ("bmx-trees", "kite-surf", "libby", "dog")


def columns(scores):
    """Return the scores in the order of the fixture: mean, recall and decay of J, then of F."""
    j, f = summarise(scores.j), summarise(scores.f)
    return [j.mean, j.recall, j.decay, f.mean, f.recall, f.decay]


def compare(ground_truth, degrade, name, official):
    objects = score_objects(degrade(ground_truth), ground_truth)
    ours = {f"{name}_{each.id}": columns(each) for each in objects}
    expected = {key: row for key, row in official.items() if key.rpartition("_")[0] == name}
    assert ours.keys() == expected.keys()
    for key, row in ours.items():
        assert row == pytest.approx(expected[key], abs=1e-5), (degrade.__name__, key)
    return objects


@pytest.mark.parametrize("degrade", davis_predictions.MANY_OBJECTS.values(), ids=lambda degrade: degrade.__name__)
def test_worlds_of_many_objects_score_as_in_the_official_evaluator(degrade):
    official = OFFICIAL["worlds"][degrade.__name__]
    objects = []
    for name in davis_predictions.WORLDS:
        objects += compare(davis_predictions.world_ground_truth(name), degrade, name, official["objects"])
    scores = average_objects(objects)
    ours = [scores.JF, scores.J, scores.J_recall, scores.J_decay, scores.F, scores.F_recall, scores.F_decay]
    assert ours == pytest.approx(official["overall"], abs=1e-5)


@pytest.mark.data
@pytest.mark.parametrize("name", A_FEW)
def test_real_sequences_score_as_in_the_official_evaluator(data, name):
    ground_truth = davis_predictions.davis_ground_truth(data, name)
    for key, degrade in davis_predictions.ONE_OBJECT.items():
        compare(ground_truth, degrade, name, OFFICIAL["davis2016"][key]["objects"])


@pytest.mark.data
@pytest.mark.slow  # 20 sequences, 1376 frames at 480p, degraded in seven ways
def test_all_of_davis_2016_scores_as_in_the_official_evaluator(data):
    objects = {key: [] for key in davis_predictions.ONE_OBJECT}
    for name in davis_predictions.davis_names(data):
        ground_truth = davis_predictions.davis_ground_truth(data, name)
        for key, degrade in davis_predictions.ONE_OBJECT.items():
            objects[key] += compare(ground_truth, degrade, name, OFFICIAL["davis2016"][key]["objects"])
    for key, some in objects.items():
        scores = average_objects(some)
        ours = [scores.JF, scores.J, scores.J_recall, scores.J_decay, scores.F, scores.F_recall, scores.F_decay]
        assert ours == pytest.approx(OFFICIAL["davis2016"][key]["overall"], abs=1e-5), key


def test_the_fixture_covers_every_degradation():
    assert OFFICIAL["worlds"].keys() == davis_predictions.MANY_OBJECTS.keys()
    assert OFFICIAL["davis2016"].keys() == davis_predictions.ONE_OBJECT.keys()
    rows = [
        row for group in ("worlds", "davis2016") for one in OFFICIAL[group].values() for row in one["objects"].values()
    ]
    assert np.isfinite(rows).all()
