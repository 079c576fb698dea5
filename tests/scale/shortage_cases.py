"""What stops at a shortage, each under a limit of its own; run by test_shortage.py in a fresh process."""

from pathlib import Path

import pytest

from limited import limited
from timecycle.bulk.manifest import Item
from timecycle.bulk.one import Refused, Stopped, Work, label_one
from timecycle.data.index import make_index
from timecycle.data.pack import PackConfig, pack, read_pack
from timecycle.data.transcode import ClipForm
from timecycle.errors import ShortageError
from timecycle.propagation.settings import PropagateConfig
from timecycle.store import Folder

SMALL = PackConfig(form=ClipForm(short_side_px=48))
MB = 1 << 20


@pytest.mark.parametrize(("limit", "room"), [("files", 1), ("memory", 2 * MB)])
def test_the_index_blames_no_video_for_a_shortage(videos, tmp_path, limit, room):
    path = tmp_path / "index.jsonl"
    make_index(videos / "0.mp4", path)  # so that the folder is there
    error = limited(lambda: make_index(videos, path), limit, room)
    assert isinstance(error, ShortageError), repr(error)
    assert "was examined" in error.problem
    index = make_index(videos, path)
    assert (len(index.entries), index.bad) == (3, ())


@pytest.mark.parametrize(("limit", "room"), [("files", 2), ("memory", 2 * MB), ("size", 1000)])
def test_a_pack_blames_no_video_for_a_shortage(videos, tmp_path, limit, room):
    store, work = Folder(tmp_path / "pack"), tmp_path / "work"
    error = limited(lambda: pack(videos, store, work, SMALL), limit, room)
    assert isinstance(error, ShortageError), repr(error)
    assert not (tmp_path / "pack" / "pack.json").exists()
    assert pack(videos, store, work, SMALL).counts.corrupt == 0
    assert read_pack(store).counts.clips == 3


def item(videos: Path, name: str) -> Item:
    return Item(name, str(videos / f"{name}.mp4"), (str(videos / "none.png"),))


@pytest.mark.parametrize(("limit", "room"), [("files", 3), ("memory", 2 * MB)])
def test_bulk_stops_at_a_shortage_and_gives_up_a_video_for_its_own_faults(videos, tmp_path, limit, room):
    work = Work(place=str(tmp_path / "out"), encoder="rgb", config=PropagateConfig(), trust=None)
    assert isinstance(label_one(item(videos, "0"), work), Refused)  # it has no mask
    outcome = limited(lambda: label_one(item(videos, "1"), work), limit, room)
    assert isinstance(outcome, Stopped), repr(outcome)
    assert isinstance(outcome.error, ShortageError)
    assert "1 was labelled" in outcome.error.problem
