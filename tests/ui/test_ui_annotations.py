"""What a person annotates: edits, undo and redo, revisions, and what survives."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import InUseError, OutputError
from timecycle.ui.annotations import Annotations

KEYS = st.sampled_from(["objects", "frame/0", "frame/7"])
VALUES = st.sampled_from([[{"id": 1, "name": "a"}], [{"id": 2, "name": ""}]])


def edit(annotations: Annotations, key: str, value: object) -> None:
    annotations.edit(key, value, revision=annotations.revision)


@settings(max_examples=40)
@given(edits=st.lists(st.tuples(st.sampled_from(["frame/0", "frame/7"]), st.integers(0, 3)), max_size=12))
def test_undoing_all_edits_and_making_them_again_changes_nothing(tmp_path_factory, edits):
    annotations = Annotations(tmp_path_factory.mktemp("a"))
    first = dict(annotations.values)
    for key, value in edits:
        edit(annotations, key, {"points": {"a": [value, value, True]}} if value else None)
    last = dict(annotations.values)
    while annotations.undo(revision=annotations.revision):
        pass
    assert annotations.values == first
    while annotations.redo(revision=annotations.revision):
        pass
    assert annotations.values == last


def test_everything_survives_a_new_start(tmp_path):
    annotations = Annotations(tmp_path)
    edit(annotations, "frame/3", {"points": {"a": [1.0, 2.0, True]}})
    edit(annotations, "objects", [{"id": 1, "name": "dog"}])
    annotations.submit()
    again = Annotations(tmp_path)
    assert (again.values, again.revision, again.submitted) == (
        annotations.values,
        annotations.revision,
        annotations.submitted,
    )
    assert again.undo(revision=again.revision) == "objects"
    assert again.names == {}


def test_an_edit_of_an_older_revision_is_refused(tmp_path):
    annotations = Annotations(tmp_path)
    old = annotations.revision
    edit(annotations, "frame/3", {"points": {"a": [1.0, 2.0, True]}})
    with pytest.raises(InUseError, match="another tab"):
        annotations.edit("frame/3", None, revision=old)
    assert 3 in annotations.frames


def test_an_edit_after_undo_ends_what_could_be_made_again(tmp_path):
    annotations = Annotations(tmp_path)
    for x in (1.0, 2.0):
        edit(annotations, "frame/0", {"points": {"a": [x, x, True]}})
    annotations.undo(revision=annotations.revision)
    edit(annotations, "frame/0", {"points": {"a": [9.0, 9.0, True]}})
    assert not annotations.can_redo
    annotations.undo(revision=annotations.revision)
    assert annotations.frames[0] == {"points": {"a": [1.0, 1.0, True]}}


def test_frames_that_changed_since_the_run_started_are_pending(tmp_path):
    annotations = Annotations(tmp_path)
    edit(annotations, "frame/0", {"points": {"a": [1.0, 1.0, True]}})
    assert annotations.pending() == [0]
    annotations.submit()
    assert annotations.pending() == []
    edit(annotations, "frame/5", {"points": {"a": [2.0, 2.0, True]}})
    assert annotations.pending() == [5]
    annotations.submit_corrections({5: annotations.frames[5]})
    assert annotations.pending() == []
    annotations.take_back_correction()
    assert annotations.frames == {0: {"points": {"a": [1.0, 1.0, True]}}}
    assert annotations.undo(revision=annotations.revision) == "frame/5"
    assert annotations.pending() == [5]


def test_renaming_points_is_one_edit_of_the_list_the_frames_and_the_skeleton(tmp_path):
    annotations = Annotations(tmp_path)
    first, second = [{"id": 1, "name": ""}, {"id": 2, "name": "b"}], [{"id": 1, "name": "b"}, {"id": 2, "name": "a"}]
    here, there = [1.0, 1.0, True], [2.0, 2.0, False]
    edit(annotations, "kind", "keypoints")
    edit(annotations, "objects", first)
    edit(annotations, "skeleton", [["point 1", "b"]])
    edit(annotations, "frame/0", {"points": {"point 1": here, "b": there}})
    edit(annotations, "frame/7", {"points": {"other": here}})
    before = dict(annotations.values)
    annotations.edit_objects(second, revision=annotations.revision)
    after = {
        **before,
        "objects": second,
        "skeleton": [["b", "a"]],
        "frame/0": {"points": {"b": here, "a": there}},
    }
    assert annotations.values == after
    again = Annotations(tmp_path)
    assert again.undo(revision=again.revision) == "objects"
    assert again.values == before
    assert again.redo(revision=again.revision) == "objects"
    assert again.values == after


def test_masks_that_nothing_names_any_more_are_removed(tmp_path):
    annotations = Annotations(tmp_path)
    for name in ("used.png", "unused.png"):
        (annotations.edits / name).write_bytes(b"x")
    edit(annotations, "frame/0", {"mask": "used.png", "objects": [1], "pixels": {"1": 5}})
    assert [path.name for path in Annotations(tmp_path).edits.iterdir()] == ["used.png"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"values": {"kind": "masks"}}', "x" * 10])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, text):
    (tmp_path / "session.json").write_text(text)
    with pytest.raises(OutputError, match=r"session\.json"):
        Annotations(tmp_path)


def test_a_file_cannot_name_masks_elsewhere(tmp_path):
    annotations = Annotations(tmp_path)
    edit(annotations, "frame/0", {"points": {"a": [1.0, 1.0, True]}})
    saved = json.loads((tmp_path / "session.json").read_text())
    saved["values"]["frame/0"] = {"mask": "../../secret.png"}
    (tmp_path / "session.json").write_text(json.dumps(saved))
    with pytest.raises(OutputError):
        Annotations(tmp_path)
