"""benchmarks/evaluate.py takes predicted clips over from a wider evaluation, and only from one that agrees in all."""

import json

import pytest

import evaluate as script
from timecycle.evaluation.davis import find_davis
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods import Identity, load_method
from timecycle.propagation.settings import PropagateConfig
from trees import davis_tree

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
OTHER = PropagateConfig(image_size_px=64, window_px=16, anchor_window_px=24)


@pytest.fixture
def trees(tmp_path):
    """Two clips, the second of them alone, and the folder of an evaluation of both."""
    davis_tree(tmp_path / "root", filmed=2)
    whole, part = (find_davis(tmp_path / "root", names=names) for names in (["clip00", "clip01"], ["clip01"]))
    evaluate(whole, Identity(), CONFIG, tmp_path / "work" / "whole")
    return whole, part, tmp_path / "work"


def test_clips_are_taken_over_and_pass_for_predicted(trees, monkeypatch):
    whole, part, work = trees
    expected = evaluate(part, Identity(), CONFIG, work.parent / "apart")
    script._borrow(work / "part", whole, part, Identity(), CONFIG)
    assert [path.name for path in (work / "part" / "predictions").iterdir()] == ["clip01"]
    monkeypatch.setattr(Identity, "carry", lambda *_: pytest.fail("it was predicted again"))
    taken = evaluate(part, Identity(), CONFIG, work / "part")
    assert (taken.scores, taken.data, taken.config) == (expected.scores, expected.data, expected.config)
    assert {path.name for path in work.iterdir()} == {"whole", "part"}


@pytest.mark.parametrize("changed", ["settings", "method", "data", "unfinished", "there already"])
def test_nothing_is_taken_over_where_anything_differs(trees, changed):
    whole, part, work = trees
    method, config = Identity(), CONFIG
    if changed == "settings":
        config = OTHER
    elif changed == "method":
        method = load_method("rgb")
    elif changed == "data":  # a frame of a clip that is not even asked for
        frame = whole.clips[0].frames[3]
        frame.write_bytes(whole.clips[0].frames[2].read_bytes())
    elif changed == "unfinished":
        path = work / "whole" / "predictions.json"
        record = json.loads(path.read_text())
        del record["clips"]["clip01"]
        path.write_text(json.dumps(record))
    else:
        (work / "part").mkdir()
    script._borrow(work / "part", whole, part, method, config)
    assert not (work / "part" / "predictions").exists()
