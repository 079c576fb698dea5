"""`convert` into an existing folder: the old export stays until the new one is complete."""

import json

import pytest

from folders import contents
from label_samples import masks
from timecycle.api.conversion import convert
from timecycle.errors import OutputError
from timecycle.formats.registry import read_file, write_file


@pytest.fixture
def source(tmp_path):
    write_file(masks(), tmp_path / "source", name="png")
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path):
    """An export of another clip, with a file that the new one does not have."""
    folder = tmp_path / "data" / "export"
    folder.mkdir(parents=True)
    (folder / "00099.png").write_bytes(b"of before")
    return folder


def test_new_export_replaces_the_old_one_and_leaves_nothing_beside_it(source, target):
    convert(source, target, overwrite=True)
    assert not (target / "00099.png").exists()
    assert len(read_file(target).labels) == len(masks().labels)
    assert list(target.parent.iterdir()) == [target]


def test_old_export_is_whole_while_the_new_one_is_written(source, target):
    """What a killed conversion would leave is what is there at any moment before the end."""
    before, seen = contents(target), []
    convert(source, target, overwrite=True, progress=lambda done, total: seen.append(contents(target) == before))
    assert len(seen) >= len(masks().labels)
    assert all(seen)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_failed_conversion_keeps_the_old_export(source, target, failure):
    before = contents(target)

    def fail(done: int, total: int) -> None:
        if done == 3:
            raise failure

    with pytest.raises(failure):
        convert(source, target, overwrite=True, progress=fail)
    assert contents(target) == before
    assert list(target.parent.iterdir()) == [target]


def test_swap_that_fails_puts_the_old_export_back(source, target, monkeypatch):
    before, rename = contents(target), type(target).rename

    def fail_for_new(self, to):
        if self.name == target.name and self != target:
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(type(target), "rename", fail_for_new)
    with pytest.raises(OutputError, match=r"cannot write .*export: No space left on device"):
        convert(source, target, overwrite=True)
    assert contents(target) == before


def test_folder_behind_a_link_is_replaced_and_the_link_stays(source, target, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(target)
    convert(source, link, overwrite=True)
    assert link.is_symlink()
    assert not (target / "00099.png").exists()


def test_file_above_the_folder_is_replaced_with_it(source, tmp_path):
    """meta.json of YouTube-VOS belongs to all videos of a data set."""
    target = tmp_path / "valid" / "Annotations" / "dog"
    meta = tmp_path / "valid" / "meta.json"
    target.mkdir(parents=True)
    (target / "00099.png").write_bytes(b"of before")
    meta.write_text(json.dumps({"videos": {"cat": {"objects": {}}}}))
    convert(source, target, overwrite=True)
    assert set(json.loads(meta.read_text())["videos"]) == {"cat", "dog"}
    assert sorted(path.name for path in meta.parent.iterdir()) == ["Annotations", "meta.json"]
    assert list(target.parent.iterdir()) == [target]
