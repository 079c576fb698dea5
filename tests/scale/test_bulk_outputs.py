"""Leases, atomic commits, and records that are compared with their outputs."""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from timecycle.bulk.chunk_outputs import ChunkRecord, commit_chunk, folder_checksum, is_intact, read_records, work_on
from timecycle.bulk.lease import Lease, Owner, renewed_lease
from timecycle.bulk.outputs import Outputs
from timecycle.errors import InUseError, OutputError, SettingsError
from timecycle.store import FolderStore

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed only on Unix")
SIZES = {"run.json": 40, "labels/00000.png": 300, "labels/00001.png": 200}


def made(folder: Path, *, seed: int = 0) -> Path:
    """A small output like that of a run."""
    (folder / "labels").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"timecycle": "0", "status": "finished", "seed": seed}))
    for name, size in list(SIZES.items())[1:]:
        (folder / name).write_bytes(bytes([seed]) * size)
    return folder


def commit(out: Path, name: str = "a", *, seed: int = 0) -> None:
    outputs = Outputs(str(out))
    with outputs.lease(name) as held, outputs.work_folder(name, held) as work:
        outputs.commit(name, made(work / "out", seed=seed), {"frames": 2}, held)


def problem(out: Path, name: str = "a", **options) -> str:
    outputs = Outputs(str(out))
    return outputs.difference(outputs.record(name), **options)


def forked(action) -> int:
    """Fork a process for an action; it is killed at the end of the action."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return child


def until(condition) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.005)


# Leases


@needs_fork
def test_files_of_a_living_owner_are_not_removed(tmp_path):
    def work() -> None:
        outputs = Outputs(str(tmp_path))
        with outputs.lease("a") as held, outputs.work_folder("a", held) as folder:
            made(folder / "out")
            (tmp_path / "ready").touch()
            signal.pause()

    child = forked(work)
    until((tmp_path / "ready").exists)
    files = sorted(tmp_path.rglob("*.png"))
    with pytest.raises(InUseError, match=rf"a is in use by process {child} on .+; wait for it to end"):
        commit(tmp_path)
    commit(tmp_path, "a.b")  # a name with the same prefix
    assert sorted(path for path in tmp_path.rglob("*.png") if ".work" in path.parts) == files
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    commit(tmp_path)
    assert problem(tmp_path, checksums=True) == ""
    assert not [path for path in tmp_path.rglob("*.png") if ".work" in path.parts]


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    return FolderStore(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("bucket")


def test_lease_in_a_store_is_refused_to_others_until_released(store):
    with renewed_lease(store, "a") as held:
        held.check()
        with pytest.raises(InUseError, match=rf"process {os.getpid()} on"), renewed_lease(store, "a"):
            pass
        with renewed_lease(store, "b"):
            pass
        held.check()
    with renewed_lease(store, "a"):
        pass


def test_renewed_lease_lasts_and_an_expired_one_is_taken(tmp_path):
    store = FolderStore(tmp_path)
    with renewed_lease(store, "a", seconds=2) as held:
        time.sleep(2.5)
        held.check()
        stopped = json.loads(store.read(".leases/a.json")) | {"until": time.time() - 1, "token": "x", "pid": 1}
        store.write(".leases/a.json", json.dumps(stopped).encode())
        with renewed_lease(store, "a") as second:
            second.check()
            with pytest.raises(InUseError):  # the first was suspended for too long and must not commit
                held.check()
    assert not (tmp_path / ".leases/a.json").exists()


@needs_fork
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show start times of processes")
def test_lease_of_a_killed_local_process_is_taken_at_once(tmp_path):
    store = FolderStore(tmp_path)

    def hold() -> None:
        with renewed_lease(store, "a"):
            (tmp_path / "ready").touch()
            signal.pause()

    child = forked(hold)
    until((tmp_path / "ready").exists)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with renewed_lease(store, "a"):
        pass


@needs_fork
def test_files_of_killed_processes_are_removed_at_the_end(tmp_path):
    outputs = Outputs(str(tmp_path))
    (tmp_path / ".leases").mkdir()
    for name in ("c", "d"):  # killed after the record was written, before the work folder was removed
        (tmp_path / ".work" / name / "0123").mkdir(parents=True)
    (tmp_path / ".leases/a.b.lock").touch()
    with outputs.lease("c"):
        outputs.remove_empty_folders()
        assert [path.name for path in (tmp_path / ".leases").iterdir()] == ["c.lock"]
        assert [path.name for path in (tmp_path / ".work").iterdir()] == ["c"]
    outputs.remove_empty_folders()
    assert not list(tmp_path.iterdir())


def test_owner_on_another_machine_is_never_gone():
    here = Owner.this_process()
    assert not here.is_gone
    assert not Owner(host=here.host, space="another container", pid=here.pid, started="1").is_gone
    assert not Owner(host=here.host, space="", pid=here.pid, started="1").is_gone


# Commits


@pytest.fixture
def in_memory(tmp_path):
    """A folder in memory, where fsync costs nothing, if there is one."""
    memory = Path("/dev/shm")  # noqa: S108  only a folder with a random name is made there
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def killed_at(step: int, out: Path, seed: int) -> bool:
    """Commit in a process that is killed before its n-th change of the disk; False if it made fewer."""

    def work(kill_at: Callable[[int], None]) -> None:
        outputs = Outputs(str(out))
        with outputs.lease("a") as held, outputs.work_folder("a", held) as folder:
            made(folder / "out", seed=seed)
            kill_at(step)
            outputs.commit("a", folder / "out", {"frames": 2}, held)

    return _is_killed(work, out)


def _is_killed(work: Callable[[Callable[[int], None]], None], out: Path) -> bool:
    """Do the work in a process; the work calls what it is given to be killed before its n-th change of the disk."""

    def kill_at(step: int) -> None:
        changes = 0

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal changes
            is_write = event == "open" and int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if is_write or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree"):
                changes += 1
                if changes == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)

    def both() -> None:
        work(kill_at)
        out.with_name("finished").touch()

    os.waitpid(forked(both), 0)
    return not out.with_name("finished").exists()


@needs_fork
@pytest.mark.parametrize("before", [None, "equal", "other", "no record"])
def test_commit_killed_at_any_step_leaves_no_record_of_missing_files(in_memory, before):
    for step in range(1, 50):
        out = in_memory / str(step) / "out"
        if before is not None:
            commit(out, seed=0 if before == "other" else 1)
        if before == "no record":
            (out / "records" / "a.json").unlink()
        was_killed = killed_at(step, out, seed=1)
        outputs = Outputs(str(out))
        record = outputs.record("a")
        if record is not None:
            is_complete = all((out / "a" / file).is_file() for file in SIZES)
            assert is_complete or outputs.difference(record)  # missing files are noticed without checksums
            if before in (None, "no record"):  # the record is of this commit, and written last
                assert outputs.difference(record, checksums=True) == ""
        commit(out, seed=1)
        assert problem(out, checksums=True) == ""
        assert (out / "a/labels/00001.png").read_bytes() == b"\1" * 200
        assert not list(out.glob(".work/*"))
        if not was_killed:
            break
    assert 3 < step < 49


def commit_two(out: Path, names: str, kill: Callable[[], None] = lambda: None) -> None:
    """Commit a chunk of the videos a and b, of which those not named failed."""
    outputs, records = Outputs(str(out)), []
    with outputs.lease("000000") as held, work_on(outputs, "000000", {}, held) as work:
        for name in "ab":
            if name in names:
                folder = made(work.unfinished(), seed=ord(name))
                record = ChunkRecord(name=name, source=name, error=None, tries=1, sha256=folder_checksum(folder))
                work.keep(folder, record)
            else:
                record = ChunkRecord(name=name, source=name, error="it failed", tries=1)
            records.append(record)
        kill()
        commit_chunk(outputs, "000000", work, records, held)


@needs_fork
@pytest.mark.parametrize("before", ["", "a"])
def test_chunk_killed_at_any_step_of_its_commit_has_the_files_of_its_records(in_memory, before):
    for step in range(1, 50):
        out = in_memory / str(step) / "out"
        out.parent.mkdir()
        if before:
            commit_two(out, before)
        was_killed = _is_killed(lambda kill_at: commit_two(out, "ab", lambda: kill_at(step)), out)  # noqa: B023
        outputs = Outputs(str(out))
        records = read_records(outputs, "000000")
        assert is_intact(outputs, "000000", records)  # also if they are the earlier ones
        commit_two(out, "ab")
        assert [record.error for record in read_records(outputs, "000000")] == [None, None]
        assert sorted(path.name for path in (out / "chunks").iterdir()) == ["000000.jsonl", "000000.tar"]
        assert not list(out.glob(".work/*"))
        if not was_killed:
            break
    assert 3 < step < 49


def test_difference_from_the_record_is_described(tmp_path):
    commit(tmp_path)
    assert problem(tmp_path, checksums=True) == ""
    label = tmp_path / "a/labels/00000.png"
    label.write_bytes(b"\1" * 300)
    assert problem(tmp_path) == ""
    assert problem(tmp_path, checksums=True).endswith("00000.png was changed")
    label.write_bytes(b"\0" * 299)
    assert problem(tmp_path).endswith("00000.png was changed")
    label.unlink()
    assert problem(tmp_path).endswith("00000.png is missing")
    (tmp_path / "records/a.json").write_text('{"name": "a", "frames": 2}')
    assert problem(tmp_path) == "the record of a lists no files"
    (tmp_path / "records/a.json").write_text("[" * 100_000)
    assert Outputs(str(tmp_path)).records() == {}


def test_missing_object_is_described(bucket, server, tmp_path):
    outputs = Outputs(bucket.name)
    with outputs.lease("a") as held:
        outputs.commit("a", made(tmp_path / "made"), {"frames": 2}, held)
    record = outputs.record("a")
    assert outputs.difference(record, checksums=True) == ""
    assert outputs.difference(record, listing=outputs.listing()) == ""
    (server.root / bucket.name.removeprefix("s3://") / "a.tar").unlink()
    server.notice()
    for options in ({}, {"checksums": True}, {"listing": outputs.listing()}):
        assert "a.tar is missing" in outputs.difference(record, **options)


def test_corrected_output_is_valid(tmp_path):
    commit(tmp_path)
    (tmp_path / "a/labels/00000.png").write_bytes(b"corrected")
    (tmp_path / "a/history/1").mkdir(parents=True)
    assert problem(tmp_path, checksums=True) == ""


def test_replaced_output_is_kept(tmp_path):
    commit(tmp_path, seed=1)
    commit(tmp_path, seed=1)
    assert not (tmp_path / ".replaced").exists()
    commit(tmp_path, seed=2)
    (aside,) = (tmp_path / ".replaced").iterdir()
    assert (aside / "labels/00000.png").read_bytes() == b"\1" * 300
    assert (tmp_path / "a/labels/00000.png").read_bytes() == b"\2" * 300


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_files_of_others_are_never_replaced(tmp_path, kind):
    out, mine = tmp_path / "out", tmp_path / "out" / "a"
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames/0.png").write_text("the only copy")
    out.mkdir()
    if kind == "link":
        mine.symlink_to(tmp_path / "frames")
    elif kind == "file":
        mine.write_text("the only copy")
    else:
        (tmp_path / "frames").rename(mine)
    with pytest.raises(OutputError, match="exists and is not an output of timecycle; choose another output"):
        Outputs(str(out)).check_replaceable(["b", "a"])
    with suppress(OutputError):
        commit(out)
    assert (mine if kind == "file" else mine / "0.png").read_text() == "the only copy"


def test_output_has_one_encoder_and_one_set_of_settings(tmp_path):
    settings = {"encoder": {"sha256": "a"}, "config": {"size": 64, "k": 5}}
    outputs = Outputs(str(tmp_path))
    outputs.check_settings(settings)
    outputs.check_settings(settings)
    for section, name, value, message in (
        ("encoder", "sha256", "b", "made with encoder sha256 = a, now it is b; give the same encoder"),
        ("config", "k", 6, "made with config k = 5, now it is 6"),
    ):
        with pytest.raises(SettingsError, match=message):
            outputs.check_settings(settings | {section: settings[section] | {name: value}})
    (tmp_path / "bulk.json").write_text("[]")
    with pytest.raises(OutputError, match=r"bulk\.json cannot be used"):
        outputs.check_settings(settings)


def test_only_lock_file_leases_are_exclusive(tmp_path):
    assert Lease.is_exclusive
    with renewed_lease(FolderStore(tmp_path), "a") as held:
        assert not held.is_exclusive
