"""The numbers of the official DAVIS evaluator, on predictions made here from the truth alone."""

import json
from pathlib import Path

import davis_predictions
import numpy as np
import pytest

from timecycle.evaluation.metrics.objects import average_objects, score_objects
from timecycle.evaluation.metrics.summary import summarise

OFFICIAL = json.loads(Path(__file__).with_name("davis_official.json").read_text())
# Three small objects and a large one.
A_FEW = ("bmx-trees", "kite-surf", "libby", "dog")


def columns(scores):
    """As the fixture orders them: mean, recall and decay of J, then of F."""
    j, f = summarise(scores.j), summarise(scores.f)
    return [j.mean, j.recall, j.decay, f.mean, f.recall, f.decay]


def compare(truth, spoil, name, official):
    objects = score_objects(spoil(truth), truth)
    found = {f"{name}_{each.id}": columns(each) for each in objects}
    expected = {key: row for key, row in official.items() if key.rpartition("_")[0] == name}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert row == pytest.approx(expected[key], abs=1e-5), (spoil.__name__, key)
    return objects


@pytest.mark.parametrize("spoil", davis_predictions.MANY_OBJECTS.values(), ids=lambda spoil: spoil.__name__)
def test_worlds_of_many_objects(spoil):
    official = OFFICIAL["worlds"][spoil.__name__]
    objects = []
    for name in davis_predictions.WORLDS:
        objects += compare(davis_predictions.world_truth(name), spoil, name, official["objects"])
    scores = average_objects(objects)
    found = [scores.JF, scores.J, scores.J_recall, scores.J_decay, scores.F, scores.F_recall, scores.F_decay]
    assert found == pytest.approx(official["overall"], abs=1e-5)


@pytest.mark.data
@pytest.mark.parametrize("name", A_FEW)
def test_sequences_of_real_footage(data, name):
    truth = davis_predictions.davis_truth(data, name)
    for key, spoil in davis_predictions.ONE_OBJECT.items():
        compare(truth, spoil, name, OFFICIAL["davis2016"][key]["objects"])


@pytest.mark.data
@pytest.mark.slow  # 20 sequences, 1376 frames at 480p, spoilt in seven ways
def test_all_of_davis_2016(data):
    objects = {key: [] for key in davis_predictions.ONE_OBJECT}
    for name in davis_predictions.davis_names(data):
        truth = davis_predictions.davis_truth(data, name)
        for key, spoil in davis_predictions.ONE_OBJECT.items():
            objects[key] += compare(truth, spoil, name, OFFICIAL["davis2016"][key]["objects"])
    for key, some in objects.items():
        scores = average_objects(some)
        found = [scores.JF, scores.J, scores.J_recall, scores.J_decay, scores.F, scores.F_recall, scores.F_decay]
        assert found == pytest.approx(OFFICIAL["davis2016"][key]["overall"], abs=1e-5), key


def test_the_fixture_speaks_of_what_is_made_here():
    assert OFFICIAL["worlds"].keys() == davis_predictions.MANY_OBJECTS.keys()
    assert OFFICIAL["davis2016"].keys() == davis_predictions.ONE_OBJECT.keys()
    rows = [
        row for group in ("worlds", "davis2016") for one in OFFICIAL[group].values() for row in one["objects"].values()
    ]
    assert np.isfinite(rows).all()
