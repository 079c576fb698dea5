"""Runs and their output folders: what is written, what is refused, and resuming after a kill."""

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import folders
from clips import small_world, write_clip, write_mask
from oracle import OracleEncoder
from timecycle.confidence.signals import SIGNALS
from timecycle.errors import LabelError, OutputError
from timecycle.kernel.library import Kernel
from timecycle.labels import Keypoints, Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.check import check
from timecycle.review.corrections import undo
from timecycle.runs import exporting
from timecycle.runs import run as runs
from timecycle.runs.folder import OutputFolder
from timecycle.runs.run import RunSpec, run
from timecycle.video import VideoWriter, open_video

CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


def spec(world, labels=None, config=CONFIG):
    video = open_video(world.video(), fps=12.5)
    return RunSpec(
        video=video,
        labels=labels or {0: Masks(world.mask(0))},
        encoder=OracleEncoder(world, stride_px=4),
        config=config,
    )


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture(scope="module")
def finished_once(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "out"
    run(spec(world), folder)
    return folder


@pytest.fixture
def finished(finished_once, tmp_path):
    """A finished run that the test may change."""
    return shutil.copytree(finished_once, tmp_path / "out")


def test_run_writes_labels_of_every_frame_tables_and_pictures(finished, world):
    assert sorted(path.name for path in finished.iterdir()) == [
        ".passes",
        "confidence",
        "contact.png",
        "frames.csv",
        "labels",
        "measurements.csv",
        "measurements.png",
        "objects.csv",
        "overlay.mp4",
        "run.json",
    ]
    assert [p.name for p in sorted((finished / "labels").iterdir())] == [f"{t:05d}.png" for t in range(12)]
    assert (Masks.read(finished / "labels" / "00000.png").ids == world.mask(0)).all()


def test_frames_csv_has_index_time_and_confidence(finished):
    rows = list(csv.DictReader((finished / "frames.csv").open()))
    assert list(rows[0]) == ["index", "frame_number", "pts", "time_seconds", "source", "confidence", "state"]
    assert [int(row["index"]) for row in rows] == list(range(12))
    assert float(rows[5]["time_seconds"]) == pytest.approx(5 / 12.5)
    assert [row["source"] for row in rows] == ["annotated"] + ["propagated"] * 11
    assert (rows[0]["confidence"], rows[0]["state"]) == ("1.0000", "visible")
    assert all(0 <= float(row["confidence"]) < 1 for row in rows[1:])


def test_objects_csv_has_the_signals_of_every_object_on_every_frame(finished, world):
    rows = list(csv.DictReader((finished / "objects.csv").open()))
    annotated = sorted(set(np.unique(world.mask(0)).tolist()) - {0})
    assert [(int(row["index"]), int(row["object"])) for row in rows] == [(t, i) for t in range(12) for i in annotated]
    assert all(0 <= float(row[signal]) <= 1 for row in rows for signal in SIGNALS)


def test_confidence_images_have_one_pixel_per_feature_cell(finished):
    pictures = sorted((finished / "confidence").iterdir())
    assert [path.name for path in pictures] == [f"{t:05d}.png" for t in range(12)]
    assert np.asarray(Image.open(pictures[0])).min() == 255  # annotated
    assert np.asarray(Image.open(pictures[5])).shape == (16, 24)


def test_run_without_confidence_writes_none(world, tmp_path):
    run(dataclasses.replace(spec(world), confidence=None), tmp_path / "out")
    assert not (tmp_path / "out" / "confidence").exists()
    assert {row["confidence"] for row in csv.DictReader((tmp_path / "out" / "frames.csv").open())} == {""}


def test_overlay_has_the_frames_and_times_of_the_video(finished):
    overlay = open_video(finished / "overlay.mp4")
    assert len(overlay) == 12
    assert overlay[5].time_seconds == pytest.approx(5 / 12.5, abs=1e-3)


def test_run_json_records_video_encoder_and_settings(finished, world):
    record = json.loads((finished / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["format"] == 2
    assert record["confidence"] == {"min_confidence": 0.0}
    assert record["video"]["frames"] == 12
    assert record["video"]["damage"] is None
    assert record["config"]["window_px"] == 32
    assert len(record["video"]["sha256"]) == len(record["encoder"]["sha256"]) == 64


def test_finished_folder_is_not_overwritten_unless_asked(finished, world):
    before = contents(finished)
    with pytest.raises(OutputError, match="holds a finished run; choose another folder with -o, or pass --overwrite"):
        run(spec(world), finished)
    assert run(spec(world), finished, resume=True).already
    assert contents(finished) == before
    run(spec(world), finished, overwrite=True)


def test_folder_with_other_files_is_left_unchanged(world, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="is not empty and holds no run; choose an empty or new folder"):
            run(spec(world), tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_overwriting_removes_only_files_of_the_run(finished, world):
    (finished / "notes.txt").write_text("mine")
    run(spec(world), finished, overwrite=True)
    assert (finished / "notes.txt").read_text() == "mine"


def test_failure_before_the_first_frame_leaves_the_finished_run_unchanged(finished, world):
    """Labels of two kinds are refused before anything is cleared."""
    ground_truth = world.keypoints(1)
    mixed = {0: Masks(world.mask(0)), 1: Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)}
    with pytest.raises(LabelError, match="labels of different kinds were given"):
        run(spec(world, mixed), finished, overwrite=True)
    assert len(list((finished / "labels").iterdir())) == 12


def test_kill_while_clearing_leaves_an_unfinished_run(finished, world, monkeypatch):
    monkeypatch.setattr("shutil.rmtree", lambda *_: (_ for _ in ()).throw(Interruption))
    with pytest.raises(Interruption):
        run(spec(world), finished, overwrite=True)
    monkeypatch.undo()
    assert json.loads((finished / "run.json").read_text())["status"] == "running"
    run(spec(world), finished, resume=True)
    assert json.loads((finished / "run.json").read_text())["status"] == "finished"


def test_folder_with_a_record_of_another_program_is_left_unchanged(world, tmp_path):
    (tmp_path / "run.json").write_text('{"status": "finished"}')
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "mine.png").write_text("")
    with pytest.raises(OutputError, match="is not empty and holds no run"):
        run(spec(world), tmp_path, overwrite=True)
    assert (tmp_path / "labels" / "mine.png").exists()


def test_damaged_record_beside_files_of_a_run_may_be_overwritten(finished, world):
    (finished / "run.json").write_text('{"format": 2, "timecyc')
    (finished / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"run\.json cannot be read: .*; propagate again with --overwrite"):
        run(spec(world), finished)
    run(spec(world), finished, overwrite=True)
    assert OutputFolder(finished).finished_record()["video"]["frames"] == 12
    assert (finished / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("table", [None, "index,frame\n0,0\n"])
def test_damaged_record_beside_other_files_is_not_overwritten(world, tmp_path, table):
    (tmp_path / "run.json").write_text("{")
    if table is not None:
        (tmp_path / "frames.csv").write_text(table)
    before = folders.contents(tmp_path)
    with pytest.raises(OutputError, match=r"run\.json cannot be read: .*; choose another folder with -o, or remove"):
        run(spec(world), tmp_path, overwrite=True)
    assert folders.contents(tmp_path) == before


def test_record_without_values_that_may_be_missing_is_read(finished, world):
    record = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps(record | {"seconds": None}))
    done = run(spec(world), finished, resume=True)
    assert (done.already, done.seconds) == (True, 0.0)
    (finished / "run.json").write_text(json.dumps(record | {"matching": None}))
    with pytest.raises(OutputError, match="was begun with matching rounding = None"):
        run(spec(world), finished, resume=True)


def test_id_above_255_makes_all_label_files_16_bits_deep(world, tmp_path):
    labels = {0: Masks(world.mask(0)), 8: Masks(np.where(world.mask(8) == 2, 300, 0).astype(np.uint16))}
    run(spec(world, labels, dataclasses.replace(CONFIG, direction="forward")), tmp_path)
    assert {Image.open(path).mode for path in (tmp_path / "labels").iterdir()} == {"I;16"}


REFUSAL = (
    r"run\.json was written by another version of timecycle; "
    "propagate again with --overwrite, or use the version of timecycle that wrote it"
)


@pytest.mark.parametrize("version", [None, 1, 3])
def test_folder_of_another_format_is_refused_but_may_be_overwritten(finished, world, version):
    record = json.loads((finished / "run.json").read_text())
    del record["format"]
    (finished / "run.json").write_text(json.dumps(record if version is None else record | {"format": version}))
    before = contents(finished)
    for act in (
        lambda: run(spec(world), finished),
        lambda: run(spec(world), finished, resume=True),
        lambda: OutputFolder(finished).finished_record(),
        lambda: check(finished),
        lambda: undo(finished),
    ):
        with pytest.raises(OutputError, match=REFUSAL):
            act()
    assert contents(finished) == before
    run(spec(world), finished, overwrite=True)
    assert OutputFolder(finished).finished_record()["format"] == 2


class Interruption(Exception):
    pass


def interrupted(world, folder, *, after, labels=None, config=CONFIG):
    """A run that is stopped by an exception after some steps."""

    def progress(done, total):
        if done == after:
            raise Interruption

    with pytest.raises(Interruption):
        run(spec(world, labels, config), folder, progress=progress)


def test_unfinished_run_is_refused_without_resume_or_overwrite(world, tmp_path):
    interrupted(world, tmp_path, after=5)
    with pytest.raises(OutputError, match="holds an unfinished run; pass --resume to continue it, or pass --overwrite"):
        run(spec(world), tmp_path)


def test_resuming_with_other_settings_is_refused(world, tmp_path):
    interrupted(world, tmp_path, after=5)
    with pytest.raises(OutputError, match=r"was begun with config neighbours = 10, now it is 3; resume with the same"):
        run(spec(world, config=PropagateConfig(window_px=32, anchor_window_px=32, neighbours=3)), tmp_path, resume=True)


def test_resuming_with_another_frame_rate_is_refused(world, tmp_path):
    interrupted(world, tmp_path, after=5)
    slower = dataclasses.replace(spec(world), video=open_video(world.video(), fps=5))
    with pytest.raises(OutputError, match=r"was begun with video assumed_fps = 12\.5, now it is 5\.0; resume with the"):
        run(slower, tmp_path, resume=True)
    run(spec(world), tmp_path, resume=True)
    with pytest.raises(OutputError, match=r"was begun with video assumed_fps = 12\.5, now it is 5\.0; resume with the"):
        run(slower, tmp_path, resume=True)


def test_record_of_an_earlier_version_that_lacks_the_frame_rate_is_resumed(world, tmp_path):
    interrupted(world, tmp_path, after=5)
    record = json.loads((tmp_path / "run.json").read_text())
    del record["video"]["assumed_fps"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    run(spec(world), tmp_path, resume=True)
    assert OutputFolder(tmp_path).finished_record()["video"]["assumed_fps"] == 12.5


def test_resuming_with_another_kernel_rounding_is_refused(world, tmp_path, monkeypatch):
    interrupted(world, tmp_path, after=5)
    monkeypatch.setattr(runs, "find_kernel", lambda: Kernel(None, "another"))
    with pytest.raises(OutputError, match=r"was begun with matching rounding = \w+, now it is another"):
        run(spec(world), tmp_path, resume=True)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but the overlay video, whose encoder does not guarantee equal bytes."""
    tables = [folder / "frames.csv", folder / "objects.csv", folder / "contact.png"]
    files = [*sorted((folder / "labels").iterdir()), *sorted((folder / "confidence").iterdir()), *tables]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_resumed_run_of_keypoints_draws_the_same_overlay(world, tmp_path, monkeypatch):
    """The keypoints on disk are exactly those that were drawn.

    Pictures are compared before encoding: libx264 does not encode such small ones to the same bytes twice.
    """
    monkeypatch.setattr("timecycle.propagation.video._SNAPSHOT_FRAMES", 4)
    overlays: dict[str, list[bytes]] = {}
    monkeypatch.setattr(runs, "VideoWriter", recording(overlays))
    ground_truth = world.keypoints(0)
    labels = {0: Keypoints(ground_truth.names, ground_truth.xy + np.float32(1 / 3), ground_truth.visible)}
    run(spec(world, labels), tmp_path / "whole")
    interrupted(world, tmp_path / "parts", after=9, labels=labels)
    run(spec(world, labels), tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert len(overlays["whole"]) == 12
    assert overlays["parts"] == overlays["whole"]


def recording(overlays: dict[str, list[bytes]]) -> type[VideoWriter]:
    """A writer that also keeps the newest video of every folder, by the folder's name."""

    class Recording(VideoWriter):
        def __init__(self, path, size, time_base):
            super().__init__(path, size, time_base)
            self._pictures = overlays[path.parent.name] = []

        def write(self, image, pts, **named):
            self._pictures.append(image.tobytes())
            super().write(image, pts, **named)

    return Recording


@pytest.fixture(scope="module")
def whole_run(world, tmp_path_factory):
    """Labels of two frames, and the files of an uninterrupted run from them."""
    labels = {0: Masks(world.mask(0)), 8: Masks(np.where(world.mask(8) == 2, 2, 0).astype(np.uint16))}
    folder = tmp_path_factory.mktemp("whole")
    run(spec(world, labels), folder)
    return labels, contents(folder)


@pytest.mark.parametrize("after", [1, 6, 9, 14, 20])
def test_resumed_run_writes_the_same_bytes_in_either_pass(world, whole_run, tmp_path, monkeypatch, after):
    monkeypatch.setattr("timecycle.propagation.video._SNAPSHOT_FRAMES", 4)
    labels, expected = whole_run
    interrupted(world, tmp_path / "parts", after=after, labels=labels)
    run(spec(world, labels), tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == expected
    assert not (tmp_path / "parts" / ".work").exists()
    assert len(open_video(tmp_path / "parts" / "overlay.mp4")) == 12


FORMATS = ("cvat", "yolo", "png")


def exports(folder: Path) -> dict[str, bytes]:
    """The record, without times, and what was exported."""
    record = json.loads((folder / "run.json").read_text()) | {"seconds": None}
    files = [path for path in (folder / "exports").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files} | {
        "run.json": json.dumps(record).encode()
    }


@pytest.mark.parametrize("writes", range(4))
def test_interrupted_exports_are_completed(world, tmp_path, monkeypatch, writes):
    """A run is killed before it writes a format, or before it records the last one."""
    exported = dataclasses.replace(spec(world), formats=FORMATS)
    run(exported, tmp_path / "whole")
    out = shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    record = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(record | {"exports": {}}, indent=2) + "\n")
    for name in FORMATS[writes:]:
        for path in (out / "exports").glob(f"{name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (out / "exports" / f".{FORMATS[0]}.xml.0123.part").write_text("begun")
    (out / ".work").mkdir()
    assert run(exported, out, resume=True).already
    assert exports(out) == exports(tmp_path / "whole")
    assert not (out / ".work").exists()
    monkeypatch.setattr(exporting, "write_file", lambda *_, **__: pytest.fail("written twice"))
    assert run(exported, out, resume=True).already


def test_exports_of_a_run_of_an_earlier_version_stay_as_they_are(world, tmp_path, monkeypatch):
    exported = dataclasses.replace(spec(world), formats=FORMATS)
    run(exported, tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    del record["exports"]
    (tmp_path / "run.json").write_text(json.dumps(record, indent=2) + "\n")
    before = exports(tmp_path)
    monkeypatch.setattr(exporting, "write_file", lambda *_, **__: pytest.fail("written again"))
    assert run(exported, tmp_path, resume=True).already
    assert exports(tmp_path) == before


def test_keypoints_are_collected_in_one_table(world, tmp_path):
    ground_truth = world.keypoints(0)
    run(spec(world, {0: Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)}), tmp_path)
    rows = list(csv.DictReader((tmp_path / "keypoints.csv").open()))
    assert len(rows) == 12 * len(ground_truth.names)
    assert {row["frame"] for row in rows} == {str(t) for t in range(12)}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "timecycle", *map(str, arguments)]


@pytest.mark.slow  # two whole processes and one killed one, each importing torch
def test_killed_and_resumed_run_writes_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # so that frames are encoded in parallel
    world = small_world(frames=140)
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    late = tmp_path / "late.png"
    Masks(np.where(world.mask(60) == 1, 1, 0).astype(np.uint16)).write(late)
    arguments = ("propagate", clip, mask, f"60={late}", "-o")
    subprocess.run(command(*arguments, tmp_path / "whole"), check=True, capture_output=True)
    running = subprocess.Popen(
        command(*arguments, tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(tmp_path / "killed" / "labels" / "00083.png", running)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "killed" / "overlay.mp4").exists()
    again = subprocess.run(command(*arguments, tmp_path / "killed", "--resume"), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert [path.name for path in (tmp_path / "killed").rglob(".*")] == [".passes"]  # no other hidden file is left


@pytest.mark.slow  # a second process locks the folder
def test_two_runs_in_one_folder_are_refused(tmp_path):
    world = small_world(frames=200)
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    arguments = ("propagate", clip, mask, "-o", tmp_path / "out")
    first = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(tmp_path / "out" / "labels" / "00001.png", first)
    first.send_signal(signal.SIGSTOP)  # it might end before the other starts
    second = subprocess.run(command(*arguments, "--resume"), capture_output=True, text=True)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert second.returncode == 2
    assert "is in use by another run" in second.stderr


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
