"""Folder and bucket behave alike; missing objects are named, and requests to an absent server are repeated."""

import os
import threading
import time

import pytest

from timecycle.errors import SettingsError, StoreError
from timecycle.store import FolderStore, open_store


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    return FolderStore(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("bucket")


def test_written_content_is_read_back(store, tmp_path):
    store.write("a/b.bin", b"old")
    store.write("a/b.bin", b"new")
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 50_000)
    store.put(tmp_path / "sent", "c.tar")
    store.fetch("c.tar", tmp_path / "back")
    assert store.read("a/b.bin") == b"new"
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
    assert store.sizes() == {"a/b.bin": 3, "c.tar": 256 * 50_000}


def test_clear_unfinished_removes_the_temporary_files_and_folders_of_one_or_all_files(tmp_path):
    store = FolderStore(tmp_path)
    store.write("a/b.json", b"whole")
    for name in ("a/.b.json.12ab.part", "a/.bb.json.12ab.part", ".c.tar.12ab.part"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".clip.part").mkdir()
    (tmp_path / ".clip.part" / "00000.png").write_bytes(b"half")
    store.clear_unfinished("a/b.json")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b.json", ".bb.json.12ab.part"}
    store.clear_unfinished()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_missing_object_is_named(store, tmp_path):
    for request in (lambda: store.read("x.json"), lambda: store.fetch("x.json", tmp_path / "x")):
        with pytest.raises(StoreError, match=r"(store|corpus) has no x\.json; check the address"):
            request()


@pytest.mark.parametrize("location", ["pipe:cat /etc/passwd", "pipe://x", "http://host/x", "file:///etc", "ssh://h/x"])
def test_only_folders_and_object_stores_are_opened(location, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "://" in location:
        with pytest.raises(SettingsError, match="is not an address of a supported object store; give a folder, or"):
            open_store(location)
    else:  # a missing folder of that name
        with pytest.raises(StoreError, match=r"has no pack.json"):
            open_store(location).read("pack.json")


def test_an_address_without_a_bucket_is_refused():
    with pytest.raises(SettingsError, match="s3:// names no bucket; give s3://BUCKET/PREFIX"):
        open_store("s3://")


def test_wrong_keys_are_not_retried(bucket, monkeypatch):
    monkeypatch.setitem(os.environ, "AWS_ACCESS_KEY_ID", "somebody-else")
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"does not allow reading x: .*; check the keys"):
        open_store(bucket.name).read("x")
    assert time.monotonic() - began < 20


@pytest.mark.slow  # clients take seconds to notice an absent server
def test_requests_are_repeated_until_the_server_is_back(bucket, server):
    bucket.write("x", b"here")
    server.stop()
    threading.Timer(8, server.start).start()
    began = time.monotonic()
    assert bucket.read("x") == b"here"
    assert time.monotonic() - began > 7


@pytest.mark.slow  # clients take seconds to notice an absent server
def test_an_absent_server_is_an_error_after_the_patience_time(bucket, server):
    impatient = open_store(bucket.name, patience_seconds=1)
    server.stop()
    try:
        with pytest.raises(
            StoreError, match=r"does not answer for x, .*; check the address, the network and the server"
        ):
            impatient.read("x")
    finally:
        server.start()
