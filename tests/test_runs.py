"""A run and its folder: what is written, what is refused, and going on after a kill."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clips import small_world, write_clip, write_mask
from oracle import OracleEncoder
from timecycle import runs
from timecycle.errors import LabelError, OutputError
from timecycle.kernel.library import Kernel
from timecycle.labels import Keypoints, Masks
from timecycle.propagation.evidence import SIGNALS
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs import Task, run
from timecycle.video import VideoWriter, open_video

CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


def task(world, labels=None, config=CONFIG):
    video = open_video(world.video(), fps=12.5)
    return Task(
        video=video,
        labels=labels or {0: Masks(world.mask(0))},
        encoder=OracleEncoder(world, stride_px=4),
        config=config,
    )


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture
def finished(world, tmp_path):
    run(task(world), tmp_path / "out")
    return tmp_path / "out"


def test_a_run_writes_one_label_per_frame_and_what_people_look_at(finished, world):
    assert sorted(path.name for path in finished.iterdir()) == [
        ".passes",
        "confidence",
        "contact.png",
        "frames.csv",
        "labels",
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
    assert [row["source"] for row in rows] == ["given"] + ["carried"] * 11
    assert (rows[0]["confidence"], rows[0]["state"]) == ("1.0000", "visible")
    assert all(0 <= float(row["confidence"]) < 1 for row in rows[1:])


def test_objects_csv_has_the_signals_of_every_object_on_every_frame(finished, world):
    rows = list(csv.DictReader((finished / "objects.csv").open()))
    drawn = sorted(set(np.unique(world.mask(0)).tolist()) - {0})
    assert [(int(row["index"]), int(row["object"])) for row in rows] == [(t, i) for t in range(12) for i in drawn]
    assert all(0 <= float(row[signal]) <= 1 for row in rows for signal in SIGNALS)


def test_confidence_is_kept_cell_by_cell(finished):
    pictures = sorted((finished / "confidence").iterdir())
    assert [path.name for path in pictures] == [f"{t:05d}.png" for t in range(12)]
    assert np.asarray(Image.open(pictures[0])).min() == 255  # drawn
    assert np.asarray(Image.open(pictures[5])).shape == (16, 24)


def test_nothing_is_judged_if_nobody_asks(world, tmp_path):
    run(dataclasses.replace(task(world), trust=None), tmp_path / "out")
    assert not (tmp_path / "out" / "confidence").exists()
    assert {row["confidence"] for row in csv.DictReader((tmp_path / "out" / "frames.csv").open())} == {""}


def test_the_overlay_keeps_the_sources_frames_and_times(finished):
    overlay = open_video(finished / "overlay.mp4")
    assert len(overlay) == 12
    assert overlay[5].time_seconds == pytest.approx(5 / 12.5, abs=1e-3)


def test_run_json_says_what_was_done(finished, world):
    record = json.loads((finished / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["video"]["frames"] == 12
    assert record["video"]["damage"] is None
    assert record["config"]["window_px"] == 32
    assert len(record["video"]["sha256"]) == len(record["encoder"]["sha256"]) == 64


def test_a_finished_folder_is_never_overwritten_unasked(finished, world):
    before = contents(finished)
    with pytest.raises(OutputError, match="holds a finished run; choose another folder with -o, or pass --overwrite"):
        run(task(world), finished)
    assert run(task(world), finished, resume=True).already
    assert contents(finished) == before
    run(task(world), finished, overwrite=True)


def test_a_folder_with_other_things_in_it_is_left_alone(world, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="is not empty and holds no run; choose an empty or new folder"):
            run(task(world), tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_overwriting_removes_only_what_a_run_made(finished, world):
    (finished / "notes.txt").write_text("mine")
    run(task(world), finished, overwrite=True)
    assert (finished / "notes.txt").read_text() == "mine"


def test_a_failure_before_the_first_frame_leaves_the_finished_run_alone(finished, world):
    """Labels of two kinds are refused before anything is cleared."""
    truth = world.keypoints(1)
    mixed = {0: Masks(world.mask(0)), 1: Keypoints(truth.names, truth.xy, truth.visible)}
    with pytest.raises(LabelError, match="labels of different kinds were given"):
        run(task(world, mixed), finished, overwrite=True)
    assert len(list((finished / "labels").iterdir())) == 12


def test_a_kill_while_clearing_does_not_leave_a_folder_that_looks_finished(finished, world, monkeypatch):
    monkeypatch.setattr("timecycle.runs.shutil.rmtree", lambda *_: (_ for _ in ()).throw(Interruption))
    with pytest.raises(Interruption):
        run(task(world), finished, overwrite=True)
    monkeypatch.undo()
    assert json.loads((finished / "run.json").read_text())["status"] == "running"
    run(task(world), finished, resume=True)
    assert json.loads((finished / "run.json").read_text())["status"] == "finished"


def test_a_record_of_another_program_does_not_license_clearing(world, tmp_path):
    (tmp_path / "run.json").write_text('{"status": "finished"}')
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "mine.png").write_text("")
    with pytest.raises(OutputError, match="is not empty and holds no run"):
        run(task(world), tmp_path, overwrite=True)
    assert (tmp_path / "labels" / "mine.png").exists()


def test_one_run_writes_one_kind_of_label_file(world, tmp_path):
    """An id above 255 makes every file 16 bits deep, also those of frames without it."""
    labels = {0: Masks(world.mask(0)), 8: Masks(np.where(world.mask(8) == 2, 300, 0).astype(np.uint16))}
    run(task(world, labels, dataclasses.replace(CONFIG, direction="forward")), tmp_path)
    assert {Image.open(path).mode for path in (tmp_path / "labels").iterdir()} == {"I;16"}


class Interruption(Exception):
    pass


def interrupted(world, folder, *, after, labels=None, config=CONFIG):
    """A run that stops in the middle as an exception would stop it."""

    def progress(done, total):
        if done == after:
            raise Interruption

    with pytest.raises(Interruption):
        run(task(world, labels, config), folder, progress=progress)


def test_an_unfinished_run_asks_what_to_do(world, tmp_path):
    interrupted(world, tmp_path, after=5)
    with pytest.raises(OutputError, match="holds an unfinished run; pass --resume to go on with it, or --overwrite"):
        run(task(world), tmp_path)


def test_going_on_with_other_settings_is_refused(world, tmp_path):
    interrupted(world, tmp_path, after=5)
    with pytest.raises(OutputError, match=r"was begun with config neighbours = 10, now it is 3; resume with the same"):
        run(task(world, config=PropagateConfig(window_px=32, anchor_window_px=32, neighbours=3)), tmp_path, resume=True)


def test_going_on_with_scores_rounded_otherwise_is_refused(world, tmp_path, monkeypatch):
    interrupted(world, tmp_path, after=5)
    monkeypatch.setattr(runs, "find_kernel", lambda: Kernel(None, "another"))
    with pytest.raises(OutputError, match=r"was begun with matching rounding = \w+, now it is another"):
        run(task(world), tmp_path, resume=True)


def contents(folder: Path) -> dict[str, bytes]:
    """Everything a run writes but its film, whose encoder does not promise the same bytes."""
    tables = [folder / "frames.csv", folder / "objects.csv", folder / "contact.png"]
    files = [*sorted((folder / "labels").iterdir()), *sorted((folder / "confidence").iterdir()), *tables]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_going_on_gives_the_same_film_of_points(world, tmp_path, monkeypatch):
    """Points on disk are the points that were drawn, to the last digit.

    What the encoder is given is compared: of pictures this small, libx264 does not make the same bytes twice.
    """
    monkeypatch.setattr("timecycle.propagation.propagate._SNAPSHOT_FRAMES", 4)
    films: dict[str, list[bytes]] = {}
    monkeypatch.setattr(runs, "VideoWriter", watched(films))
    truth = world.keypoints(0)
    labels = {0: Keypoints(truth.names, truth.xy + np.float32(1 / 3), truth.visible)}
    run(task(world, labels), tmp_path / "whole")
    interrupted(world, tmp_path / "parts", after=9, labels=labels)
    run(task(world, labels), tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert len(films["whole"]) == 12
    assert films["parts"] == films["whole"]


def watched(films: dict[str, list[bytes]]) -> type[VideoWriter]:
    """A writer that also keeps the newest film of every folder, by the folder's name."""

    class Watched(VideoWriter):
        def __init__(self, path, size, time_base):
            super().__init__(path, size, time_base)
            self._film = films[path.parent.name] = []

        def write(self, image, pts, **named):
            self._film.append(image.tobytes())
            super().write(image, pts, **named)

    return Watched


@pytest.mark.parametrize("after", [1, 6, 9, 14, 20])
def test_going_on_gives_the_same_bytes_in_either_pass(world, tmp_path, monkeypatch, after):
    monkeypatch.setattr("timecycle.propagation.propagate._SNAPSHOT_FRAMES", 4)
    labels = {0: Masks(world.mask(0)), 8: Masks(np.where(world.mask(8) == 2, 2, 0).astype(np.uint16))}
    run(task(world, labels), tmp_path / "whole")
    interrupted(world, tmp_path / "parts", after=after, labels=labels)
    run(task(world, labels), tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert not (tmp_path / "parts" / ".work").exists()
    assert len(open_video(tmp_path / "parts" / "overlay.mp4")) == 12


def test_keypoints_are_also_gathered_in_one_file(world, tmp_path):
    truth = world.keypoints(0)
    run(task(world, {0: Keypoints(truth.names, truth.xy, truth.visible)}), tmp_path)
    rows = list(csv.DictReader((tmp_path / "keypoints.csv").open()))
    assert len(rows) == 12 * len(truth.names)
    assert {row["frame"] for row in rows} == {str(t) for t in range(12)}


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "timecycle", *map(str, words)]


@pytest.mark.slow  # two whole processes and one killed one, each importing torch
def test_killed_in_the_middle_and_resumed_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # so that frames are encoded side by side
    world = small_world(frames=140)
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    late = tmp_path / "late.png"
    Masks(np.where(world.mask(60) == 1, 1, 0).astype(np.uint16)).write(late)
    words = ("propagate", clip, mask, f"60={late}", "-o")
    subprocess.run(command(*words, tmp_path / "whole"), check=True, capture_output=True)
    running = subprocess.Popen(
        command(*words, tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(tmp_path / "killed" / "labels" / "00083.png", running)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "killed" / "overlay.mp4").exists()
    again = subprocess.run(command(*words, tmp_path / "killed", "--resume"), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert [path.name for path in (tmp_path / "killed").rglob(".*")] == [".passes"]  # and nothing else is left over


@pytest.mark.slow  # a second process that holds the folder
def test_two_runs_in_one_folder_are_refused(tmp_path):
    world = small_world(frames=200)
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    words = ("propagate", clip, mask, "-o", tmp_path / "out")
    first = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(tmp_path / "out" / "labels" / "00001.png", first)
    first.send_signal(signal.SIGSTOP)  # it might be done before the other has begun
    second = subprocess.run(command(*words, "--resume"), capture_output=True, text=True)
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
