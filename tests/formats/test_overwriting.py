"""`convert` into a folder: what was there, or nothing, stays until the new export is complete."""

import errno
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
def whole(source, tmp_path):
    """The contents of an undisturbed export."""
    convert(source, tmp_path / "undisturbed")
    return contents(tmp_path / "undisturbed")


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


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_failed_conversion_to_a_new_folder_leaves_nothing_and_can_be_run_again(source, whole, tmp_path, failure):
    def fail(done: int, total: int) -> None:
        if done == 3:
            raise failure

    target = tmp_path / "old" / "export"  # also what the folder of the old export is called meanwhile
    with pytest.raises(failure):
        convert(source, target, progress=fail)
    assert list(target.parent.iterdir()) == []
    convert(source, target)
    assert contents(target) == whole
    convert(source, target, overwrite=True)
    assert list(target.parent.iterdir()) == [target]


@pytest.fixture
def mounted(target, monkeypatch):
    """The target as the place where a file system is mounted: nothing can be renamed to it or from it."""
    is_mount, rename = type(target).is_mount, type(target).rename

    def rename_within(self, to):
        if target in (self, to) or (target in self.parents) is not (target in to.parents):
            raise OSError(errno.EBUSY, "Device or resource busy")
        return rename(self, to)

    monkeypatch.setattr(type(target), "is_mount", lambda self: self == target or is_mount(self))
    monkeypatch.setattr(type(target), "rename", rename_within)
    return target


def test_mounted_folder_gets_the_export(source, whole, mounted):
    (mounted / "00099.png").unlink()
    convert(source, mounted)
    assert contents(mounted) == whole
    assert list(mounted.parent.iterdir()) == [mounted]


def test_contents_of_a_mounted_folder_are_replaced(source, whole, mounted):
    with pytest.raises(OutputError, match="already exists"):
        convert(source, mounted)
    convert(source, mounted, overwrite=True)
    assert contents(mounted) == whole
    assert not list(mounted.glob(".*"))


@pytest.mark.parametrize("at", ["writing", "00003.png"])
def test_failed_conversion_keeps_the_contents_of_a_mounted_folder(source, mounted, monkeypatch, at):
    before, rename = contents(mounted), type(mounted).rename

    def fail(done: int, total: int) -> None:
        if at == "writing" and done == 3:
            raise OutputError("No space left on device", remedy="delete something")

    def fail_for_one(self, to):
        if to == mounted / at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(type(mounted), "rename", fail_for_one)
    with pytest.raises(OutputError, match="No space left on device"):
        convert(source, mounted, overwrite=True, progress=fail)
    assert contents(mounted) == before
    assert [path.name for path in mounted.iterdir()] == ["00099.png"]


def test_what_a_killed_conversion_left_in_a_mounted_folder_is_removed(source, whole, mounted):
    (mounted / "00099.png").rename(mounted / ".lock")
    (mounted / ".export.0123.part" / "new").mkdir(parents=True)
    convert(source, mounted)
    assert contents(mounted) == whole
    assert not list(mounted.glob(".*"))


def test_file_that_would_replace_a_folder_is_refused(source, target):
    before = contents(target)
    with pytest.raises(OutputError, match=r"export is a folder, but CVAT .* is a file; give the name of a file"):
        convert(source, target, target_format="cvat", overwrite=True)
    assert contents(target) == before


def test_videos_that_are_added_to_a_data_set_meanwhile_stay(source, tmp_path):
    folder = tmp_path / "valid" / "Annotations"
    convert(source, folder / "dog", progress=lambda done, total: done == 3 and convert(source, folder / "cat"))
    assert set(json.loads((tmp_path / "valid" / "meta.json").read_text())["videos"]) == {"cat", "dog"}


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
