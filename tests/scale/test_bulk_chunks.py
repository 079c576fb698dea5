"""Bulk runs in chunks: the outputs are those of single videos, committed once for each chunk; resuming reads little."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
from collections import Counter, deque
from pathlib import Path
from typing import ClassVar

import pytest

import timecycle as tc
from bulk_runs import command, contents, environment, finish, kill_a_worker, run_here, until
from timecycle.bulk import chunk_worker, outputs
from timecycle.bulk.chunk_outputs import is_intact, parse_records
from timecycle.bulk.chunk_scheduler import run_chunks
from timecycle.bulk.chunks import check_plan, plan_chunks
from timecycle.bulk.manifest import ManifestFile, ManifestList, read_manifest
from timecycle.bulk.outputs import Outputs
from timecycle.bulk.scheduler import Crashed, LocalEngine, in_steps, mean_confidence
from timecycle.bulk.worker import label_video
from timecycle.errors import SettingsError
from timecycle.store import FolderStore

CHUNK = ("--chunk", 4)  # ten videos: two whole chunks and one of two
GOOD = [f"v{number}" for number in (0, 1, 2, 4, 5, 6, 8, 9)]


def records(out: Path) -> list[dict[str, object]]:
    """The records of all chunks, without the checksum of the output: see `contents` for why it may differ."""
    texts = [path.read_text() for path in sorted((out / "chunks").glob("*.jsonl"))]
    return [{**json.loads(line), "sha256": None} for text in texts for line in text.splitlines()]


def unpacked(out: Path, folder: Path) -> dict[str, dict[str, bytes]]:
    """The files of all videos."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted((out / "chunks").glob("*.tar")):
        with tarfile.open(path) as tar:
            tar.extractall(folder, filter="data")
    return {path.name: contents(path) for path in sorted(folder.iterdir())}


def chunk_files(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in sorted((out / "chunks").iterdir())}


@pytest.fixture(scope="session")
def undisturbed(corpus, tmp_path_factory) -> Path:
    """What one process writes that is not killed."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    finish(command(corpus, out, *CHUNK), code=1)
    return out


@pytest.fixture
def copied(undisturbed, tmp_path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "out", copy_function=shutil.copy2))


def check(out: Path, undisturbed: Path, folder: Path) -> None:
    """Compare everything with what an undisturbed process wrote."""
    assert records(out) == records(undisturbed)
    assert unpacked(out, folder / "one") == unpacked(undisturbed, folder / "other")
    assert (out / "dead.jsonl").read_text() == (undisturbed / "dead.jsonl").read_text()
    summaries = [json.loads((path / "summary.json").read_text()) for path in (out, undisturbed)]
    for name in ("videos", "done", "dead", "confidence", "least_confident", "manifest"):
        assert summaries[0][name] == summaries[1][name]
    assert {path.name for path in out.iterdir()} == {path.name for path in undisturbed.iterdir()}
    store = Outputs(str(out))
    for path in (out / "chunks").glob("*.jsonl"):
        assert is_intact(store, path.stem, parse_records(path.read_text(), str(path)))


# Outputs


def test_outputs_are_those_of_propagate_and_failures_are_recorded(undisturbed, expected, corpus, tmp_path, capsys):
    written = unpacked(undisturbed, tmp_path / "unpacked")
    assert sorted(written) == GOOD
    for name, files in expected.items():
        assert written[name] == files
    assert sorted(chunk_files(undisturbed)) == [
        f"00000{index}.{kind}" for index in range(3) for kind in ("jsonl", "tar")
    ]
    assert {path.name for path in undisturbed.iterdir()} == {
        *("chunks", "bulk.json", "manifest.json", "summary.json", "dead.jsonl"),
    }
    found = records(undisturbed)
    assert [record["name"] for record in found] == [f"v{number}" for number in range(10)]
    failed = {record["name"]: record["error"] for record in found if record["error"] is not None}
    assert list(failed) == ["v3", "v7"]
    assert all(f"{name}.mp4" in problem for name, problem in failed.items())
    letters = [json.loads(line) for line in (undisturbed / "dead.jsonl").read_text().splitlines()]
    assert {letter["name"]: letter["problem"] for letter in letters} == failed
    # The summary is that of a run without chunks, and an unpacked output is a run.
    assert run_here(capsys, corpus, tmp_path / "single")[0] == 1
    summaries = [json.loads((path / "summary.json").read_text()) for path in (undisturbed, tmp_path / "single")]
    for name in ("videos", "done", "dead", "frames", "confidence", "least_confident", "manifest"):
        assert summaries[0][name] == summaries[1][name]
    assert (tmp_path / "single/dead.jsonl").read_text() == (undisturbed / "dead.jsonl").read_text()
    assert len(tc.Run(tmp_path / "unpacked" / "v0")) == 8


def test_any_size_of_chunks_gives_the_same_outputs(undisturbed, corpus, tmp_path, capsys):
    assert run_here(capsys, corpus, tmp_path / "out", "--chunk", 100)[0] == 1
    assert len(chunk_files(tmp_path / "out")) == 2
    assert unpacked(tmp_path / "out", tmp_path / "a") == unpacked(undisturbed, tmp_path / "b")


def test_killed_process_resumes_at_the_video_where_it_stopped(undisturbed, corpus, tmp_path):
    out, words = tmp_path / "out", command(corpus, tmp_path / "out", *CHUNK)

    def finished() -> int:
        chunks = {path.stem for path in out.glob("chunks/*.jsonl")}
        # A chunk that was just committed may still have its folder of work.
        records = [
            path for path in out.glob(".work/*/records/*.json") if path.parts[-3].partition("-")[0] not in chunks
        ]
        return len(chunks) * 4 + len(records)

    for count in (2, 5):  # in the first chunk, and in the second
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        until(lambda count=count: finished() >= count, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = finished()
    committed = chunk_files(out)
    finish(words, code=1)
    # Of the videos finished before at most two are the corrupt ones, which have no frames.
    assert json.loads((out / "summary.json").read_text())["frames"] <= 8 * (8 - (before - 2))
    assert {name: changed for name, changed in chunk_files(out).items() if name in committed} == committed
    check(out, undisturbed, tmp_path)


def test_lost_work_folder_costs_the_chunk_only(undisturbed, corpus, copied, tmp_path, capsys):
    for suffix in ("tar", "jsonl"):
        (copied / f"chunks/000001.{suffix}").unlink()
    others = chunk_files(copied)
    code, said = run_here(capsys, corpus, copied, *CHUNK)
    assert code == 1
    assert "8 of 10 videos are done, 5 of them before" in said
    assert chunk_files(copied).items() >= others.items()
    check(copied, undisturbed, tmp_path)


def test_two_processes_and_shards_label_every_chunk_once(undisturbed, corpus, tmp_path, capsys):
    out = tmp_path / "out"
    both = [
        subprocess.Popen(command(corpus, out, *CHUNK), stdout=subprocess.PIPE, text=True, env=environment())
        for _ in range(2)
    ]
    said = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [1, 1]
    assert sum(int(frames) for text in said for frames in re.findall(r"(\d+) frames in", text)) == 8 * 8
    check(out, undisturbed, tmp_path)
    for shard in range(2):
        run_here(capsys, corpus, tmp_path / "shards", *CHUNK, "--shard", f"{shard}/2")
    assert records(tmp_path / "shards") == records(undisturbed)
    assert json.loads((tmp_path / "shards/summary-1-of-2.json").read_text())["videos"] == 4


def test_object_store_gets_two_objects_for_each_chunk(
    undisturbed, corpus, bucket, server, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run_here(capsys, corpus, bucket.name, *CHUNK)[0] == 1
    out = server.root / bucket.name.removeprefix("s3://")
    assert sorted(chunk_files(out)) == sorted(chunk_files(undisturbed))
    assert records(out) == records(undisturbed)
    assert unpacked(out, tmp_path / "a") == unpacked(undisturbed, tmp_path / "b")
    assert not list((tmp_path / "cache").rglob("*.*"))
    said = run_here(capsys, corpus, bucket.name, *CHUNK, "--verify")[1]
    assert "8 of 10 videos are done, 8 of them before" in said


@pytest.mark.slow  # starts two Ray clusters
def test_ray_run_survives_killed_workers_and_a_killed_driver(undisturbed, corpus, tmp_path):
    out = tmp_path / "out"
    words = command(corpus, out, "--chunk", 4, "--ray", "local", "--workers", "2")
    driver = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    )
    until(lambda: any(out.glob(".work/*/records/*.json")), driver)
    assert kill_a_worker("process_chunk")
    until(lambda: any(out.glob("chunks/*.jsonl")), driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    first = {name: changed for name, changed in chunk_files(out).items() if name.endswith(".jsonl")}
    assert first
    finish(words, code=1)
    assert chunk_files(out).items() >= first.items()
    check(out, undisturbed, tmp_path)


# What resuming reads


class CountingStore(FolderStore):
    """A folder that counts what is asked of it."""

    calls: ClassVar[Counter[str]] = Counter()

    def read(self, name: str) -> bytes:
        self.calls[f"read {Path(name).parent.name or name}"] += 1
        return super().read(name)

    def sizes(self, under: str = "") -> dict[str, int]:
        self.calls[f"list {under}"] += 1
        return super().sizes(under)

    def version_tag(self, name: str) -> str:
        self.calls["tag"] += 1
        return super().version_tag(name)

    def fetch(self, name: str, path: Path) -> None:
        self.calls["fetch"] += 1
        super().fetch(name, path)


def test_resuming_lists_chunks_and_opens_no_video(copied, corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(outputs, "open_store", lambda location: CountingStore(Path(location)))
    monkeypatch.setattr(CountingStore, "calls", calls := Counter())
    elsewhere = tmp_path / "videos.csv"  # the videos and labels are not where the manifest says
    shutil.copy(corpus / "videos.csv", elsewhere)
    code, said = run_here(capsys, tmp_path, copied, *CHUNK)
    assert code == 1
    assert "8 of 10 videos are done, 8 of them before" in said
    # Three chunks are read for the summary, at the end.
    assert calls == {"list chunks": 1, "read bulk.json": 2, "read manifest.json": 1, "read chunks": 3}


# Repeated work


def test_failed_videos_are_tried_again_when_asked(undisturbed, corpus, tmp_path, capsys):
    videos, out = Path(shutil.copytree(corpus, tmp_path / "videos")), tmp_path / "out"
    assert run_here(capsys, videos, out, *CHUNK)[0] == 1
    before = unpacked(out, tmp_path / "before")
    shutil.copy(videos / "v5.mp4", videos / "v3.mp4")
    assert "8 of 10 videos are done" in run_here(capsys, videos, out, *CHUNK)[1]  # nobody looks at the videos
    code, said = run_here(capsys, videos, out, *CHUNK, "--retry-failed")
    assert code == 1
    assert "9 of 10 videos are done, 2 of them before" in said  # the last chunk had no failed videos
    assert "8 frames in" in said
    after = unpacked(out, tmp_path / "after")
    assert {name: after[name] for name in before} == before
    assert sorted(after) == sorted([*before, "v3"])
    shutil.copy(videos / "v5.mp4", videos / "v7.mp4")
    assert "10 of 10 videos are done" in run_here(capsys, videos, out, *CHUNK, "--verify")[1]  # it has changed
    assert (out / "dead.jsonl").read_text() == ""


def test_verify_finds_changed_videos_and_damaged_chunks(undisturbed, corpus, tmp_path, capsys, caplog):
    videos, out = Path(shutil.copytree(corpus, tmp_path / "videos", copy_function=shutil.copy2)), tmp_path / "out"
    assert run_here(capsys, videos, out, *CHUNK)[0] == 1
    assert "8 of 10 videos are done, 8 of them before" in run_here(capsys, videos, out, *CHUNK, "--verify")[1]
    shutil.copy(videos / "m5.png", videos / "m1.png")
    content = bytearray((out / "chunks/000001.tar").read_bytes())
    content[520] ^= 1  # of the first file
    (out / "chunks/000001.tar").write_bytes(content)
    (out / "chunks/000002.jsonl").write_text("{}\n")
    caplog.clear()
    code, said = run_here(capsys, videos, out, *CHUNK, "--verify")
    assert code == 1
    assert "8 of 10 videos are done" in said
    assert "v1 is processed again: its labels have changed" in caplog.text
    assert "v4 is processed again: its files in chunk 000001 are damaged" in caplog.text
    assert "000002.jsonl line 1 is not the record of a video" in caplog.text
    assert f"{8 * 4} frames in" in said  # v1, v4, and v8 and v9 of the chunk without records
    assert "8 of them before" in run_here(capsys, videos, out, *CHUNK, "--verify")[1]


def test_missing_tar_is_made_again(undisturbed, copied, corpus, tmp_path, capsys, caplog):
    (copied / "chunks/000001.tar").unlink()
    assert run_here(capsys, corpus, copied, *CHUNK)[0] == 1
    assert "chunk 000001 is processed again: its tar is missing" in caplog.text
    check(copied, undisturbed, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("000001.jsonl", '{"name": "v4"}\n', r"000001\.jsonl line 1 is not the record of a video; try: remove it"),
        ("000001.jsonl", "cut off", r"000001\.jsonl is truncated; try: remove it"),
        ("000001.jsonl", "", r"000001\.jsonl is not of lines 6 to 9 of .*videos\.csv; try: remove it"),
        ("000077.jsonl", "", "has a chunk 77, but the manifest has only 3 chunks; try: give the manifest"),
        ("../manifest.json", "[]", r"manifest\.json is damaged; try: choose another output"),
    ],
)
def test_damaged_and_unknown_files_are_named(copied, corpus, name, text, message, capsys):
    (copied / "chunks" / name).write_text(text)
    code, said = run_here(capsys, corpus, copied, *CHUNK)
    assert code == 2
    assert re.search(message, said.replace("\n  try", "; try").replace("\n", " "))


def test_records_of_another_chunk_are_refused(copied, corpus, capsys):
    shutil.copy(copied / "chunks/000000.jsonl", copied / "chunks/000001.jsonl")
    code, said = run_here(capsys, corpus, copied, *CHUNK)
    assert code == 2
    assert "is not of lines 6 to 9 of" in said.replace("\n", " ")


def test_other_chunks_and_outputs_without_chunks_are_refused(copied, corpus, capsys):
    for words, now in (("--chunk 5", "5"), ("", "None")):
        code, said = run_here(capsys, corpus, copied, *words.split())
        assert code == 2
        assert f"was made with outputs chunk = 4, now it is {now}" in said.replace("\n", " ")
    assert run_here(capsys, corpus, copied, "--chunk", 0)[0] == 2


def test_video_that_kills_its_worker_fails_alone(corpus, tmp_path, monkeypatch):
    """In one run; a killed run is no attempt at the video."""
    plan = plan_chunks(ManifestFile(corpus / "good.csv"), 3)
    job = _job(tmp_path / "out", run="first")
    monkeypatch.setattr(chunk_worker, "label_video", _killed_by_v1)
    for run in ("first", "second", "second", "second"):
        assert _in_a_process(lambda run=run: chunk_worker.process_chunk(plan.chunk(0), _job(tmp_path / "out", run=run)))
    done = chunk_worker.process_chunk(plan.chunk(0), _job(tmp_path / "out", run="second"))
    assert [record.error for record in done.records] == [None, "its process was killed each time", None]
    assert done.records[1].tries == 3
    assert done.frames == 8  # v0 was finished by the first
    assert job.output == str(tmp_path / "out")


def test_unexpected_error_of_a_video_fails_it_alone(corpus, tmp_path, monkeypatch):
    plan = plan_chunks(ManifestFile(corpus / "good.csv"), 3)
    monkeypatch.setattr(chunk_worker, "label_video", _fails_at_v1)
    done = chunk_worker.process_chunk(plan.chunk(0), _job(tmp_path / "out", run="a"))
    assert [record.error for record in done.records] == [None, "ZeroDivisionError: of v1", None]


class CrashingEngine:
    """Its workers are killed each time they process the second chunk."""

    def __init__(self, job: chunk_worker.BulkJob) -> None:
        self.attempts: Counter[str] = Counter()
        self._job, self._submitted = job, deque()

    @property
    def room(self) -> int:
        return 2 - len(self._submitted)

    def submit(self, work) -> None:
        self._submitted.append(work)

    def next(self):
        chunk = self._submitted.popleft()
        self.attempts[chunk.name] += 1
        return chunk, Crashed("killed") if chunk.index == 1 else chunk_worker.process_chunk(chunk, self._job)


def test_chunk_that_crashes_each_time_is_left_to_the_next_run(corpus, tmp_path):
    plan, job = plan_chunks(ManifestFile(corpus / "good.csv"), 3), _job(tmp_path / "out", run="a")
    engine = CrashingEngine(job)
    summary = run_chunks(plan, job, engine)
    assert (summary.videos, summary.done, summary.dead) == (8, 5, 3)
    assert engine.attempts == {"000000": 1, "000001": 10, "000002": 1}
    letters = [json.loads(line) for line in (tmp_path / "out/dead.jsonl").read_text().splitlines()]
    assert {letter["problem"] for letter in letters} == {"chunk 000001 was not finished: killed"}
    summary = run_chunks(plan, job, LocalEngine(chunk_worker.process_chunk, job))
    assert (summary.done, summary.before, summary.dead, summary.frames) == (8, 5, 0, 8 * 3)
    assert (tmp_path / "out/dead.jsonl").read_text() == ""


def _job(out: Path, *, run: str) -> chunk_worker.BulkJob:
    return chunk_worker.BulkJob(
        output=str(out), encoder="rgb", config=tc.propagate_config("fast", ["image_size_px=64"]), confidence=None,
        chunk=3, run=run,
    )  # fmt: skip


def _killed_by_v1(item, job, folder):
    if item.name == "v1":
        os.kill(os.getpid(), signal.SIGKILL)
    return label_video(item, job, folder)


def _fails_at_v1(item, job, folder):
    if item.name == "v1":
        raise ZeroDivisionError("of v1")
    return label_video(item, job, folder)


def _in_a_process(action) -> bool:
    """Whether a process that does it is killed."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


# The plan


def write_manifest(path: Path, count: int) -> Path:
    path.write_text("video,labels\n" + "".join(f"clips/{n}.mp4,m/{n}.png\n" for n in range(count)))
    return path


@pytest.mark.parametrize("kind", ["csv", "windows.csv", "jsonl", "list"])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_chunks_are_the_manifest_in_order(tmp_path, kind, size):
    lines = [{"video": f"ä/{n}.mp4", "labels": [f"m {n}.png" if kind == "list" else f"m{n}.png"]} for n in range(20)]
    path = tmp_path / f"m.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(f"{json.dumps(line)}\n" for line in lines))  # with empty lines
    elif kind == "csv":
        rows = [f'"{line["video"]}","{line["labels"][0]}"' for line in lines]
        path.write_text("video,labels\n\n" + "\n\n".join(rows))
    else:
        rows = [f"{line['video']},{line['labels'][0]}" for line in lines]
        path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["video,labels", *rows]).encode())
    manifest = ManifestList(lines) if kind == "list" else ManifestFile(path)
    plan = plan_chunks(manifest, size)
    assert plan.videos == 20
    assert [span.videos for span in plan.spans] == [min(size, 20 - start) for start in range(0, 20, size)]
    items = [item for index in reversed(range(len(plan.spans))) for item in reversed(plan.chunk(index).items)][::-1]
    assert [item.name for item in items] == [str(n) for n in range(20)]
    if kind != "list":
        assert items == read_manifest(path)
    assert plan_chunks(manifest, size) == plan


def test_appended_lines_make_new_chunks_and_finish_the_last(undisturbed, corpus, tmp_path, capsys):
    videos, out = Path(shutil.copytree(corpus, tmp_path / "videos", copy_function=shutil.copy2)), tmp_path / "out"
    whole = (corpus / "videos.csv").read_text().splitlines()
    for lines in (7, 11):  # with the header: six videos, then all ten
        (videos / "videos.csv").write_text("\n".join(whole[:lines]))
        run_here(capsys, videos, out, *CHUNK)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["videos"], summary["done"], summary["frames"]) == (10, 8, 8 * 3)  # v6, v8 and v9
    assert [record["name"] for record in records(out)] == [f"v{number}" for number in range(10)]
    assert unpacked(out, tmp_path / "a") == unpacked(undisturbed, tmp_path / "b")
    shutil.copy(videos / "m4.png", videos / "m5.png")
    assert "8 frames in" in run_here(capsys, videos, out, *CHUNK, "--verify")[1]
    assert "frames in" not in run_here(capsys, videos, out, *CHUNK, "--verify")[1]
    shutil.copy(videos / "v5.mp4", videos / "v7.mp4")
    assert "9 of 10 videos are done" in run_here(capsys, videos, out, *CHUNK, "--retry-failed")[1]
    (videos / "videos.csv").write_text("\n".join(whole[:7]))
    code, said = run_here(capsys, videos, out, *CHUNK)
    assert code == 2
    assert "are not those" in said


def test_changed_lines_are_refused(tmp_path):
    manifest = ManifestFile(write_manifest(tmp_path / "m.csv", 10))
    store = Outputs(str(tmp_path / "out"))
    assert check_plan(plan_chunks(manifest, 4), store) == frozenset()
    assert check_plan(plan_chunks(manifest, 4), store) == frozenset()
    write_manifest(tmp_path / "m.csv", 13)
    assert check_plan(plan_chunks(manifest, 4), store) == {2}
    assert check_plan(plan_chunks(manifest, 4), store) == {2}  # until the output is complete and ever after
    text = (tmp_path / "m.csv").read_text()
    for old, new, message in (
        ("m/5.png", "m/x.png", "lines 6 to 9 of .* are not those .* was begun with; append new lines at the end only"),
        ("m/12.png", "m/x.png", "lines 14 to 14 of"),
        ("clips/12.mp4,m/12.png\n", "", "has fewer lines than"),
    ):
        (tmp_path / "m.csv").write_text(text.replace(old, new))
        with pytest.raises(SettingsError, match=message):
            check_plan(plan_chunks(manifest, 4), store)


def test_manifest_that_changes_during_the_run_is_noticed(tmp_path):
    plan = plan_chunks(ManifestFile(write_manifest(tmp_path / "m.csv", 10)), 4)
    (tmp_path / "m.csv").write_text((tmp_path / "m.csv").read_text().replace("m/5.png", "m/x.png"))
    assert plan.chunk(0).items[0].name == "0"
    with pytest.raises(SettingsError, match="was changed meanwhile"):
        plan.chunk(1)


def test_equal_names_far_apart_are_refused(tmp_path):
    path = write_manifest(tmp_path / "m.csv", 50)
    path.write_text(path.read_text() + "other/7.mp4,m.png\n")
    with pytest.raises(SettingsError, match="lines 9 and 52 would both write to 7"):
        plan_chunks(ManifestFile(path), 4)


def test_the_mean_confidence_does_not_depend_on_how_videos_are_grouped():
    values = [0.3393, 0.3392, 0.1, 0.2, 0.7, 0.0001]
    alone = mean_confidence(in_steps(values), len(values))
    for size in (1, 2, 3, 4, 5):
        groups = [values[begin : begin + size] for begin in range(0, len(values), size)]
        assert mean_confidence(sum(in_steps(group) for group in groups), len(values)) == alone
    assert mean_confidence(in_steps([0.3393, 0.3392] * 4), 8) == mean_confidence(in_steps([0.3392, 0.3393] * 4), 8)
    assert mean_confidence(0, 0) is None
