"""Indexing, packing and bulk labelling under limits of the system; test_shortage.py runs these in a fresh process."""

from pathlib import Path

import pytest

from limited import limited
from timecycle.bulk.manifest import Item
from timecycle.bulk.worker import BulkJob, Failed, Stopped, process_video
from timecycle.data.corpus.index import make_index
from timecycle.data.packing.pack import PackConfig, pack, read_pack
from timecycle.data.packing.transcode import ClipFormat
from timecycle.errors import ShortageError
from timecycle.propagation.settings import PropagateConfig
from timecycle.store import FolderStore

SMALL = PackConfig(clips=ClipFormat(short_side_px=48))
MB = 1 << 20


@pytest.mark.parametrize(("limit", "room"), [("files", 1), ("memory", 2 * MB)])
def test_the_index_records_no_shortage_as_a_bad_video(videos, tmp_path, limit, room):
    path = tmp_path / "index.jsonl"
    make_index(videos / "0.mp4", path)  # creates the index's folder
    error = limited(lambda: make_index(videos, path), limit, room)
    assert isinstance(error, ShortageError), repr(error)
    assert "was probed" in error.problem
    index = make_index(videos, path)
    assert (len(index.entries), index.bad) == (3, ())


@pytest.mark.parametrize(("limit", "room"), [("files", 2), ("memory", 2 * MB), ("size", 1000)])
def test_a_pack_records_no_shortage_as_a_bad_video(videos, tmp_path, limit, room):
    store, work = FolderStore(tmp_path / "pack"), tmp_path / "work"
    error = limited(lambda: pack(videos, store, work, SMALL), limit, room)
    assert isinstance(error, ShortageError), repr(error)
    assert not (tmp_path / "pack" / "pack.json").exists()
    assert pack(videos, store, work, SMALL).counts.corrupt == 0
    assert read_pack(store).counts.clips == 3


def item(videos: Path, name: str) -> Item:
    return Item(name, str(videos / f"{name}.mp4"), (str(videos / "none.png"),))


@pytest.mark.parametrize(("limit", "room"), [("files", 3), ("memory", 2 * MB)])
def test_bulk_stops_at_a_shortage_but_skips_a_faulty_video(videos, tmp_path, limit, room):
    work = BulkJob(output=str(tmp_path / "out"), encoder="rgb", config=PropagateConfig(), confidence=None)
    assert isinstance(process_video(item(videos, "0"), work), Failed)  # it has no mask
    outcome = limited(lambda: process_video(item(videos, "1"), work), limit, room)
    assert isinstance(outcome, Stopped), repr(outcome)
    assert isinstance(outcome.error, ShortageError)
    assert "1 was processed" in outcome.error.problem
