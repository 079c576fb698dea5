"""A folder and a bucket behave alike; what is not there is named, and a server that is away is waited for."""

import os
import threading
import time

import pytest

from timecycle.errors import SettingsError, StoreError
from timecycle.store import Folder, open_store


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    return Folder(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("bucket")


def test_what_is_written_is_read(store, tmp_path):
    store.write("a/b.bin", b"old")
    store.write("a/b.bin", b"new")
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 50_000)
    store.put(tmp_path / "sent", "c.tar")
    store.fetch("c.tar", tmp_path / "back")
    assert store.read("a/b.bin") == b"new"
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
    assert store.sizes() == {"a/b.bin": 3, "c.tar": 256 * 50_000}


def test_what_killed_writes_left_is_cleared_by_who_alone_writes_the_file(tmp_path):
    store = Folder(tmp_path)
    store.write("a/b.json", b"whole")
    for name in ("a/.b.json.12ab.part", "a/.bb.json.12ab.part", ".c.tar.12ab.part"):
        (tmp_path / name).write_bytes(b"half")
    store.clear_unfinished("a/b.json")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b.json", ".bb.json.12ab.part"}
    store.clear_unfinished()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_not_there_is_named(store, tmp_path):
    for act in (lambda: store.read("x.json"), lambda: store.fetch("x.json", tmp_path / "x")):
        with pytest.raises(StoreError, match=r"(store|corpus) has no x\.json; check the address"):
            act()


@pytest.mark.parametrize("place", ["pipe:cat /etc/passwd", "pipe://x", "http://host/x", "file:///etc", "ssh://h/x"])
def test_only_folders_and_object_stores_are_opened(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "://" in place:
        with pytest.raises(SettingsError, match="of a kind that is not read"):
            open_store(place)
    else:  # a folder of that name, which is not there
        with pytest.raises(StoreError, match=r"has no pack.json"):
            open_store(place).read("pack.json")


def test_an_address_without_a_bucket_is_refused():
    with pytest.raises(SettingsError, match="s3:// names no bucket; give s3://BUCKET/PREFIX"):
        open_store("s3://")


def test_wrong_keys_are_not_tried_again(bucket, monkeypatch):
    monkeypatch.setitem(os.environ, "AWS_ACCESS_KEY_ID", "somebody-else")
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"does not give x: .*; check the keys"):
        open_store(bucket.name).read("x")
    assert time.monotonic() - began < 20


@pytest.mark.slow  # clients take seconds to notice that a server is away
def test_a_server_that_is_away_is_waited_for(bucket, server):
    bucket.write("x", b"here")
    server.stop()
    threading.Timer(8, server.start).start()
    began = time.monotonic()
    assert bucket.read("x") == b"here"
    assert time.monotonic() - began > 7


@pytest.mark.slow  # clients take seconds to notice that a server is away
def test_patience_ends_with_a_line_that_says_so(bucket, server):
    impatient = open_store(bucket.name, patience_seconds=1)
    server.stop()
    try:
        with pytest.raises(
            StoreError, match=r"does not answer for x, .*; check the address, the network and the server"
        ):
            impatient.read("x")
    finally:
        server.start()
