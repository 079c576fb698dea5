"""benchmarks/evaluate.py reuses the predictions of a whole benchmark for a subset, only with the same settings."""

import json

import pytest

import evaluate as script
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import Identity, load_method
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.propagation.settings import PropagateConfig
from trees import davis_tree

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
OTHER = PropagateConfig(image_size_px=64, window_px=16, anchor_window_px=24)


@pytest.fixture
def benchmarks(tmp_path):
    """Two clips, a subset of one, and a folder with an evaluation of both."""
    davis_tree(tmp_path / "root", clips=2)
    whole, subset = (find_davis(tmp_path / "root", names=names) for names in (["clip00", "clip01"], ["clip01"]))
    evaluate(whole, Identity(), CONFIG, tmp_path / "work" / "whole")
    return whole, subset, tmp_path / "work"


def test_reused_predictions_score_like_new_ones(benchmarks, monkeypatch):
    whole, subset, work = benchmarks
    expected = evaluate(subset, Identity(), CONFIG, work.parent / "apart")
    script.reuse_predictions(work / "subset", whole, subset, Identity(), CONFIG)
    assert [path.name for path in (work / "subset" / "predictions").iterdir()] == ["clip01"]
    monkeypatch.setattr(Identity, "propagate", lambda *_: pytest.fail("it was predicted again"))
    reused = evaluate(subset, Identity(), CONFIG, work / "subset")
    assert (reused.scores, reused.data, reused.config) == (expected.scores, expected.data, expected.config)
    assert {path.name for path in work.iterdir()} == {"whole", "subset"}


@pytest.mark.parametrize("changed", ["settings", "method", "data", "unfinished", "existing folder"])
def test_predictions_are_not_reused_after_any_change(benchmarks, changed):
    whole, subset, work = benchmarks
    method, config = Identity(), CONFIG
    if changed == "settings":
        config = OTHER
    elif changed == "method":
        method = load_method("rgb")
    elif changed == "data":  # a frame of a clip outside the subset
        frame = whole.clips[0].frames[3]
        frame.write_bytes(whole.clips[0].frames[2].read_bytes())
    elif changed == "unfinished":
        path = work / "whole" / "predictions.json"
        record = json.loads(path.read_text())
        del record["clips"]["clip01"]
        path.write_text(json.dumps(record))
    else:
        (work / "subset").mkdir()
    script.reuse_predictions(work / "subset", whole, subset, method, config)
    assert not (work / "subset" / "predictions").exists()
