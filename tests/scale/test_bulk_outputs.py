"""One owner for every video, outputs that appear whole, and records that are believed only while they are true."""

import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from timecycle.bulk.lease import Lease, renewed_lease
from timecycle.bulk.outputs import Outputs
from timecycle.bulk.owner import Owner
from timecycle.errors import InUseError, OutputError, SettingsError
from timecycle.store import Folder

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked, and killed, on Unix alone")
SIZES = {"run.json": 40, "labels/00000.png": 300, "labels/00001.png": 200}


def made(folder: Path, *, seed: int = 0) -> Path:
    """A small output, as a run leaves it."""
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


def forked(act) -> int:
    """A process that does something, and is killed if it comes to its end."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return child


def until(true) -> None:
    ends = time.monotonic() + 20
    while not true():
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.005)


# Leases


@needs_fork
def test_a_video_has_one_owner_whose_files_nobody_removes_until_it_dies(tmp_path):
    def work() -> None:
        outputs = Outputs(str(tmp_path))
        with outputs.lease("a") as held, outputs.work_folder("a", held) as folder:
            made(folder / "out")
            (tmp_path / "ready").touch()
            signal.pause()

    child = forked(work)
    until((tmp_path / "ready").exists)
    files = sorted(tmp_path.rglob("*.png"))
    with pytest.raises(InUseError, match=rf"a is in the hands of process {child} on .+; wait for it to end"):
        commit(tmp_path)
    commit(tmp_path, "a.b")  # whose name begins alike
    assert sorted(path for path in tmp_path.rglob("*.png") if ".work" in path.parts) == files
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    commit(tmp_path)
    assert problem(tmp_path, checksums=True) == ""
    assert not [path for path in tmp_path.rglob("*.png") if ".work" in path.parts]


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    return Folder(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("bucket")


def test_a_lease_in_a_store_is_refused_to_others_and_given_back(store):
    with renewed_lease(store, "a") as held:
        held.check()
        with pytest.raises(InUseError, match=rf"process {os.getpid()} on"), renewed_lease(store, "a"):
            pass
        with renewed_lease(store, "b"):
            pass
        held.check()
    with renewed_lease(store, "a"):
        pass


def test_a_lease_that_is_renewed_outlasts_its_time_and_a_lapsed_one_is_taken(tmp_path):
    store = Folder(tmp_path)
    with renewed_lease(store, "a", seconds=2) as held:
        time.sleep(2.5)
        held.check()
        stopped = json.loads(store.read(".leases/a.json")) | {"until": time.time() - 1, "token": "x", "pid": 1}
        store.write(".leases/a.json", json.dumps(stopped).encode())
        with renewed_lease(store, "a") as second:
            second.check()
            with pytest.raises(InUseError):  # the first was asleep for too long, and must not commit
                held.check()
    assert not (tmp_path / ".leases/a.json").exists()


@needs_fork
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is known of other processes")
def test_the_lease_of_a_process_that_was_killed_here_need_not_lapse(tmp_path):
    store = Folder(tmp_path)

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


def test_owners_elsewhere_are_never_taken_for_gone():
    here = Owner.here()
    assert not here.is_gone
    assert not Owner(host=here.host, space="another container", pid=here.pid, started="1").is_gone
    assert not Owner(host=here.host, space="", pid=here.pid, started="1").is_gone


# Commits


@pytest.fixture
def in_memory(tmp_path):
    """A folder where bringing things to the disk costs nothing, if there is one."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def killed_at(step: int, out: Path, seed: int) -> bool:
    """Commit in a process that is killed before its n-th change of the disk; False if it had fewer."""

    def work() -> None:
        outputs = Outputs(str(out))
        with outputs.lease("a") as held, outputs.work_folder("a", held) as folder:
            made(folder / "out", seed=seed)
            changes = 0

            def count(event: str, arguments: tuple[object, ...]) -> None:
                nonlocal changes
                is_write = event == "open" and int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
                if is_write or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree"):
                    changes += 1
                    if changes == step:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            outputs.commit("a", folder / "out", {"frames": 2}, held)
        out.with_name("finished").touch()

    os.waitpid(forked(work), 0)
    return not out.with_name("finished").exists()


@needs_fork
@pytest.mark.parametrize("before", [None, "equal", "other", "no record"])
def test_killed_at_any_step_of_a_commit_no_record_speaks_of_what_is_not_there(in_memory, before):
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
            is_there = all((out / "a" / file).is_file() for file in SIZES)
            assert is_there or outputs.difference(record)  # what is gone is noticed without checksums
            if before in (None, "no record"):  # the record is of this commit, and written last
                assert outputs.difference(record, checksums=True) == ""
        commit(out, seed=1)
        assert problem(out, checksums=True) == ""
        assert (out / "a/labels/00001.png").read_bytes() == b"\1" * 200
        assert not list(out.glob(".work/*"))
        if not was_killed:
            break
    assert 3 < step < 49


def test_what_differs_from_its_record_is_named(tmp_path):
    commit(tmp_path)
    assert problem(tmp_path, checksums=True) == ""
    label = tmp_path / "a/labels/00000.png"
    label.write_bytes(b"\1" * 300)
    assert problem(tmp_path) == ""
    assert problem(tmp_path, checksums=True).endswith("00000.png is not what was written")
    label.write_bytes(b"\0" * 299)
    assert problem(tmp_path).endswith("00000.png is not what was written")
    label.unlink()
    assert problem(tmp_path).endswith("00000.png is gone")
    (tmp_path / "records/a.json").write_text('{"name": "a", "frames": 2}')
    assert problem(tmp_path) == "the record of a lists no files"
    (tmp_path / "records/a.json").write_text("[" * 100_000)
    assert Outputs(str(tmp_path)).records() == {}


def test_an_object_that_is_not_as_recorded_is_named(bucket, server, tmp_path):
    outputs = Outputs(bucket.name)
    with outputs.lease("a") as held:
        outputs.commit("a", made(tmp_path / "made"), {"frames": 2}, held)
    record = outputs.record("a")
    assert outputs.difference(record, checksums=True) == ""
    assert outputs.difference(record, listing=outputs.listing()) == ""
    (server.root / bucket.name.removeprefix("s3://") / "a.tar").unlink()
    for options in ({}, {"checksums": True}, {"listing": outputs.listing()}):
        assert "a.tar is gone" in outputs.difference(record, **options)


def test_an_output_that_was_corrected_since_is_believed(tmp_path):
    commit(tmp_path)
    (tmp_path / "a/labels/00000.png").write_bytes(b"corrected")
    (tmp_path / "a/history/1").mkdir(parents=True)
    assert problem(tmp_path, checksums=True) == ""


def test_an_output_that_is_replaced_by_another_is_kept_aside(tmp_path):
    commit(tmp_path, seed=1)
    commit(tmp_path, seed=1)
    assert not (tmp_path / ".replaced").exists()
    commit(tmp_path, seed=2)
    (aside,) = (tmp_path / ".replaced").iterdir()
    assert (aside / "labels/00000.png").read_bytes() == b"\1" * 300
    assert (tmp_path / "a/labels/00000.png").read_bytes() == b"\2" * 300


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_bulk_did_not_write_is_never_replaced(tmp_path, kind):
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
    with pytest.raises(OutputError, match="exists and is no output of timecycle; choose another output"):
        Outputs(str(out)).refuse_strangers(["b", "a"])
    with suppress(OutputError):
        commit(out)
    assert (mine if kind == "file" else mine / "0.png").read_text() == "the only copy"


def test_one_output_is_made_with_one_encoder_and_one_kind_of_settings(tmp_path):
    settings = {"encoder": {"sha256": "a"}, "config": {"size": 64, "k": 5}}
    outputs = Outputs(str(tmp_path))
    outputs.claim(settings)
    outputs.claim(settings)
    for part, name, value, said in (
        ("encoder", "sha256", "b", "made with encoder sha256 = a, now it is b; give the same encoder"),
        ("config", "k", 6, "made with config k = 5, now it is 6"),
    ):
        with pytest.raises(SettingsError, match=said):
            outputs.claim(settings | {part: settings[part] | {name: value}})
    (tmp_path / "bulk.json").write_text("[]")
    with pytest.raises(OutputError, match=r"bulk\.json cannot be used"):
        outputs.claim(settings)


def test_a_lease_of_a_folder_tells_that_it_is_exclusive(tmp_path):
    assert Lease.is_exclusive
    with renewed_lease(Folder(tmp_path), "a") as held:
        assert not held.is_exclusive
