"""Bulk runs: every output is written once and as by `timecycle propagate`, even if processes are killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import av
import numpy as np
import pytest

from bulk_runs import SETTINGS, command, contents, environment, finish, kill_a_worker, run_here, until
from timecycle.api.conversion import convert
from timecycle.bulk.manifest import Item, Shard, read_manifest
from timecycle.bulk.outputs import Outputs
from timecycle.cli import main
from timecycle.errors import SettingsError
from timecycle.labels import Keypoints
from timecycle.runs.opened import Run


def check(out: Path, expected: dict[str, dict[str, bytes]]) -> None:
    good = {f"v{number}" for number in range(10)} - {"v3", "v7"}
    assert {path.name for path in out.iterdir() if path.is_dir()} == good | {"records", "dead"}
    assert {path.stem for path in (out / "records").iterdir()} == good
    for name, files in expected.items():
        assert contents(out / name) == files
    letters = [json.loads(line) for line in (out / "dead.jsonl").read_text().splitlines()]
    assert {letter["name"] for letter in letters} == {"v3", "v7"}
    assert all(f"{letter['name']}.mp4" in letter["problem"] for letter in letters)


def test_second_run_skips_finished_videos(corpus, expected, tmp_path, capsys):
    said = finish(command(corpus, tmp_path / "out"), code=1)
    assert "8 of 10 videos are done" in said
    assert f"2 videos failed: {tmp_path / 'out'}/dead.jsonl says why; --retry-failed" in said
    check(tmp_path / "out", expected)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")}
    code, said = run_here(capsys, corpus, tmp_path / "out")
    assert code == 1
    assert "8 of 10 videos are done, 8 of them before" in said
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")} == before


def test_shards_of_an_array_job_cover_all_videos(corpus, expected, tmp_path, capsys):
    for shard, code in enumerate((1, 1, 0)):  # the corrupt videos are in the first two shards
        assert run_here(capsys, corpus, tmp_path / "out", "--shard", f"{shard}/3")[0] == code
    letters = "".join((tmp_path / "out" / f"dead-{shard}-of-3.jsonl").read_text() for shard in range(3))
    (tmp_path / "out" / "dead.jsonl").write_text(letters)
    check(tmp_path / "out", expected)


@pytest.mark.parametrize("chunk", [(), ("--chunk", "2")])
def test_formats_and_scale_are_those_of_propagate(corpus, tmp_path, capsys, chunk):
    asked = ("--format", "cvat", "png", "--scale", "4px/mm")
    (corpus / "two.csv").write_text("video,labels\nv0.mp4,m0.png\nv5.mp4,m5.png\n")
    out = tmp_path / "out"
    assert run_here(capsys, corpus, out, *asked, *chunk, manifest="two.csv")[0] == 0
    for tar in out.rglob("*.tar"):
        with tarfile.open(tar) as members:
            members.extractall(out, filter="data")
    for name in ("v0", "v5"):
        words = [corpus / f"{name}.mp4", corpus / f"m{name[1]}.png", "-o", tmp_path / name]
        assert main(["propagate", *map(str, words), *SETTINGS, *asked]) == 0
        (folder,) = (path for path in out.rglob(name) if path.is_dir())
        assert contents(folder) == contents(tmp_path / name)
        assert (folder / "exports").is_dir()
        assert "mm" in (folder / "measurements.csv").read_text().splitlines()[0]
    code, said = run_here(capsys, corpus, out, "--format", "cvat", *chunk, manifest="two.csv")
    assert code != 0  # one output has one set of settings
    assert "settings" in said


@pytest.mark.parametrize(
    ("asked", "problem"), [(("--format", "xls"), "there is no format 'xls'"), (("--scale", "1.2.3"), "is not a scale")]
)
def test_wrong_formats_and_scales_are_refused_once(corpus, tmp_path, capsys, asked, problem):
    code, said = run_here(capsys, corpus, tmp_path / "out", *asked)
    assert code != 0
    assert problem in said
    assert not (tmp_path / "out" / "dead.jsonl").exists()


@pytest.mark.parametrize("chunk", [(), ("--chunk", "2")])
def test_video_whose_labels_do_not_fit_a_format_fails_alone(corpus, tmp_path, capsys, chunk):
    points, out = tmp_path / "points.csv", tmp_path / "out"
    Keypoints(("nose",), np.array([[9, 9]], np.float32), np.array([True])).write(points)
    (corpus / "mixed.csv").write_text(f"video,labels\nv1.mp4,{points}\nv0.mp4,m0.png\n")
    code, said = run_here(capsys, corpus, out, "--format", "png", *chunk, manifest="mixed.csv")
    assert code == 1
    assert "1 of 2 videos are done" in said
    (letter,) = map(json.loads, (out / "dead.jsonl").read_text().splitlines())
    assert letter["name"] == "v1"
    assert "cannot be written from keypoints" in letter["problem"]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (("--workers", "2"), "--workers and --threads are for Ray, which was not asked for try: pass --ray local"),
        (("--threads", "2"), "--workers and --threads are for Ray, which was not asked for try: pass --ray local"),
        (("--ray", "local", "--workers", "0"), "--workers is 0 try: give 1 or more"),
        (("--ray", "local", "--threads", "0"), "--threads is 0 try: give 1 or more"),
    ],
)
def test_workers_and_threads_that_nothing_can_use_are_refused(corpus, tmp_path, capsys, asked, problem):
    code, said = run_here(capsys, corpus, tmp_path / "out", *asked)
    assert code == 2
    assert problem in " ".join(said.split())
    assert not (tmp_path / "out").exists()


def test_object_store_gets_one_tar_per_video(corpus, expected, bucket, server, tmp_path):
    finish(command(corpus, bucket.name, "--shard", "0/5"))
    folder = server.root / bucket.name.removeprefix("s3://")
    assert {path.name for path in folder.glob("*.tar")} == {"v0.tar", "v5.tar"}
    for name in ("v0", "v5"):
        with tarfile.open(folder / f"{name}.tar") as tar:
            tar.extractall(tmp_path / name, filter="data")
        assert contents(tmp_path / name) == expected[name]


def test_two_processes_on_one_output_process_every_video_once(corpus, expected, tmp_path):
    out = tmp_path / "out"
    words = command(corpus, out, manifest="good.csv")
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(2)]
    said = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all("8 of 8 videos are done" in text for text in said)
    assert sum(int(frames) for text in said for frames in re.findall(r"(\d+) frames in", text)) == 8 * 8
    outputs = Outputs(str(out))
    records = outputs.records()
    assert len(records) == 8
    assert [outputs.difference(record, checksums=True) for record in records.values()] == [""] * 8
    for name, files in expected.items():
        assert contents(out / name) == files
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_changed_inputs_and_missing_files_are_processed_again(corpus, tmp_path, capsys, caplog):
    videos, out = tmp_path / "videos", tmp_path / "out"
    videos.mkdir()
    for name in ("v0.mp4", "v1.mp4", "v2.mp4", "v4.mp4", "m0.png", "m1.png", "m2.png", "m4.png"):
        shutil.copy(corpus / name, videos)
    (videos / "videos.csv").write_text("video,labels\n" + "".join(f"v{n}.mp4,m{n}.png\n" for n in (0, 1, 2, 4)))
    assert run_here(capsys, videos, out)[0] == 0
    (videos / "v0.mp4").touch()  # the same bytes: nothing to do
    shutil.copy(corpus / "v5.mp4", videos / "v1.mp4")
    shutil.copy(corpus / "m5.png", videos / "m2.png")
    (out / "v4/labels/00003.png").unlink()
    code, said = run_here(capsys, videos, out)
    assert code == 0
    assert "v1 is processed again: " in caplog.text
    assert "v1.mp4 has changed" in caplog.text
    assert "v2 is processed again: its labels have changed" in caplog.text
    assert "v4/labels/00003.png is missing" in caplog.text
    assert "v0 is processed again" not in caplog.text
    assert "4 of 4 videos are done, 1 of them before" in said
    assert len(list((out / ".replaced").iterdir())) == 3
    (videos / "v0.mp4").unlink()
    assert "4 of them before" in run_here(capsys, videos, out, "--verify")[1]


def test_names_of_objects_and_labels_of_other_tools_are_read_as_by_propagate(corpus, tmp_path, capsys, caplog):
    pytest.importorskip("pycocotools")
    shutil.copy(corpus / "m0.png", tmp_path)
    names = tmp_path / "names.json"
    names.write_text('{"1": "camel"}')
    words = [corpus / "v0.mp4", tmp_path / "m0.png", "-o", tmp_path / "v0"]
    assert main(["propagate", *map(str, words), *SETTINGS]) == 0
    convert(tmp_path / "v0", tmp_path / "coco.json")
    manifest = tmp_path / "videos.csv"
    manifest.write_text(f"video,labels,name\n{corpus}/v0.mp4,m0.png,own\n{corpus}/v0.mp4,coco.json,coco\n")
    assert run_here(capsys, tmp_path, tmp_path / "out")[0] == 0
    for name in ("own", "coco"):
        assert Run(tmp_path / "out" / name).record["names"] == {"1": "camel"}
        assert contents(tmp_path / "out" / name) == contents(tmp_path / "v0")
    names.write_text('{"1": "dromedary"}')
    assert run_here(capsys, tmp_path, tmp_path / "out")[0] == 0
    assert "own is processed again: its labels have changed" in caplog.text
    assert Run(tmp_path / "out" / "own").record["names"] == {"1": "dromedary"}


def test_other_settings_and_unknown_encoders_are_refused_before_the_first_video(corpus, tmp_path, capsys):
    code, said = run_here(capsys, corpus, tmp_path / "out", "--encoder", "rgbb")
    assert code == 2
    assert "there is no encoder 'rgbb'" in said
    assert not (tmp_path / "out").exists()
    assert run_here(capsys, corpus, tmp_path / "out", "--shard", "0/10")[0] == 0
    code, said = run_here(capsys, corpus, tmp_path / "out", "--set", "neighbours=3")
    assert code == 2
    assert "was made with config image_size_px = 64, now it is 240" in said


def test_many_failed_videos_raise_an_alarm_and_a_repaired_one_is_tried_again(corpus, tmp_path, capsys):
    for name in ("v0.mp4", "m0.png", "v3.mp4", "m3.png", "v7.mp4", "m7.png"):
        shutil.copy(corpus / name, tmp_path)
    (tmp_path / "videos.csv").write_text("video,labels\n" + "".join(f"v{n}.mp4,m{n}.png\n" for n in (0, 3, 7)))
    code, said = run_here(capsys, tmp_path, tmp_path / "out")
    assert code == 1
    assert "alarm: 67% of the videos failed, more than 50%" in said
    shutil.copy(corpus / "v5.mp4", tmp_path / "v3.mp4")
    code, said = run_here(capsys, tmp_path, tmp_path / "out")
    assert code == 1
    assert "2 of 3 videos are done, 1 of them before" in said
    assert "alarm" not in said


def test_damaged_video_fails_unless_allowed(corpus, tmp_path, capsys):
    with av.open(str(corpus / "v0.mp4")) as source, av.open(str(tmp_path / "v.mkv"), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.dts is not None]
        for packet in packets:
            packet.stream = stream
            target.mux(packet)
    whole = (tmp_path / "v.mkv").read_bytes()
    (tmp_path / "v.mkv").write_bytes(whole[: len(whole) * 2 // 3])
    shutil.copy(corpus / "m0.png", tmp_path)
    (tmp_path / "videos.csv").write_text("video,labels\nv.mkv,m0.png\n")
    code, said = run_here(capsys, tmp_path, tmp_path / "out")
    assert code == 1
    assert "0 of 1 videos are done" in said
    code, said = run_here(capsys, tmp_path, tmp_path / "out", "--retry-failed", "--allow-damaged")
    assert code == 0, said
    record = json.loads((tmp_path / "out/records/v.json").read_text())
    assert 0 < record["frames"] < 8
    assert record["damage"] == json.loads((tmp_path / "out/v/run.json").read_text())["video"]["damage"] is not None


@pytest.mark.slow  # starts two Ray clusters
def test_ray_run_survives_killed_workers_and_a_killed_driver(corpus, expected, tmp_path):
    out = tmp_path / "out"
    words = command(corpus, out, "--ray", "local", "--workers", "2")
    driver = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    )
    until(lambda: len(list(out.glob("records/*.json"))) >= 1, driver)
    assert kill_a_worker("process_video")
    until(lambda: len(list(out.glob("records/*.json"))) >= 4, driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    first = {path: path.stat().st_mtime_ns for path in out.glob("records/*.json")}
    said = finish(words, code=1)
    # A worker may finish its video after the driver was killed.
    assert int(re.search(r"(\d+) of them before", said)[1]) >= len(first)
    assert all(path.stat().st_mtime_ns == changed for path, changed in first.items())
    check(out, expected)


# The manifest


def test_json_lines_are_read_like_csv(tmp_path):
    (tmp_path / "a.csv").write_text("video,labels,name\nx/a.mp4,0=m.png 4=n.png,\ns3://b/c.mp4,m.png,second\n")
    (tmp_path / "a.jsonl").write_text(
        '{"video": "x/a.mp4", "labels": ["0=m.png", "4=n.png"]}\n\n'
        '{"video": "s3://b/c.mp4", "labels": ["m.png"], "name": "second"}\n'
    )
    items = read_manifest(tmp_path / "a.csv")
    assert items == read_manifest(tmp_path / "a.jsonl")
    assert items[0] == Item("a", str(tmp_path / "x/a.mp4"), (f"0={tmp_path}/m.png", f"4={tmp_path}/n.png"))
    assert items[1] == Item("second", "s3://b/c.mp4", (str(tmp_path / "m.png"),))


RESERVED = ("records", "dead", "bulk.json", "summary.json", "summary-0-of-3.json", "dead.jsonl", "Dead-0-of-3.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "video,labels\na/x.mp4,m.png\nb/x.mp4,m.png\n",
            "lines 2 and 3 would both write to x; give them different names",
        ),
        ("video,labels\n", "lists no videos"),
        ("film,mask\na,b\n", "the first line of .* is film,mask; begin it with: video,labels,name"),
        ("video,labels\n,m.png\n", "line 2 names no video"),
        ("video,labels\na.mp4,\n", "line 2 has no labels"),
        ("video,labels,name\na.mp4,m.png,../up\n", r"line 2 has the name '\.\./up'"),
        ("video,labels,name\na.mp4,m.png,.hidden\n", "line 2 has the name"),
        *((f"video,labels\n{name}.mp4,m.png\n", f"line 2 has the name '{name}'; give another") for name in RESERVED),
        ("video,labels\nx.mp4,m.png\nb/X.mp4,m.png\n", "lines 2 and 3 would both write to X"),
        ("video,labels\na\u0308.mp4,m.png\n\u00e4.mp4,m.png\n", "lines 2 and 3 would both write to"),
        (f"video,labels\n{'x' * 201}.mp4,m.png\n", "line 2 has the name .*; give one of at most 200 bytes"),
        (f"video,labels,name\n{'x' * 300}.mp4,m.png,a\n", "line 2 names a file that cannot exist"),
        ("video,labels,name\na\0b.mp4,m.png,a\n", "line 2 names a file|cannot be read"),
        ('video,labels,name\na.mp4,m.png,"a\tb"\n', "line 2 has the name"),
        (f"video,labels\n{'x' * 200_000},m.png\n", "line 2 cannot be read: field larger"),
    ],
)
def test_invalid_manifest_is_refused(text, message, tmp_path):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_manifest(tmp_path / "m.csv")


def test_manifest_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "m.csv").write_bytes("video,labels\nä.mp4,m.png\n".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"m\.csv is not UTF-8 text: .*; save it as UTF-8"):
        read_manifest(tmp_path / "m.csv")


NESTED = "[" * 100_000
LONG_NUMBER = '{"video": ' + "1" * 5000 + "}"


@pytest.mark.parametrize("text", ['{"video": 3', "[1]", '{"video": "a", "label": "b"}', NESTED, LONG_NUMBER])
def test_invalid_json_line_is_refused(text, tmp_path):
    (tmp_path / "m.jsonl").write_text(text + "\n")
    with pytest.raises(SettingsError, match=r"m\.jsonl line 1 cannot be used"):
        read_manifest(tmp_path / "m.jsonl")


def test_shards_partition_the_manifest(tmp_path):
    (tmp_path / "m.csv").write_text("video,labels\n" + "".join(f"{n}.mp4,m.png\n" for n in range(10)))
    shards = [read_manifest(tmp_path / "m.csv", Shard.parse(f"{index}/3")) for index in range(3)]
    assert sorted(item.name for shard in shards for item in shard) == sorted(str(n) for n in range(10))
    for text, message in (("3/3", "no shard 3 of 3"), ("x", "is not a shard")):
        with pytest.raises(SettingsError, match=message):
            Shard.parse(text)
