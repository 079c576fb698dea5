"""Files that `check` writes: pictures of frames, labels to edit, and the command to correct them."""

import csv
import json
import re
import shlex
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clips import small_world
from timecycle.cli.main import main
from timecycle.labels import Keypoints, Masks
from timecycle.labels.drawing import palette
from timecycle.review.check import check
from timecycle.video import Size, VideoWriter, open_video

FAST = ("--encoder", "rgb", "--preset", "fast", "--set", "past_frames=2")


@pytest.fixture(scope="module")
def world():
    return small_world(frames=12)


@pytest.fixture(scope="module")
def clip(world, tmp_path_factory) -> Path:
    """A folder, whose name needs quotes, with a video and its first annotation."""
    folder = tmp_path_factory.mktemp("people") / "my shots & 'takes'"
    folder.mkdir()
    arrays = open_video(world.video(), fps=12)
    with VideoWriter(folder / "clip.mp4", Size(*world.mask(0).shape), arrays.time_base) as writer:
        for frame in arrays:
            writer.write(frame.image, frame.pts)
    Masks(world.mask(0)).write(folder / "first.png")
    ground_truth = world.keypoints(0)
    Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible).write(folder / "0.csv")
    return folder


@pytest.fixture(scope="module")
def finished(clip) -> Path:
    (clip / "names.json").write_text(json.dumps({"1": "camel", "2": "dog", "9": "elsewhere"}))
    arguments = [str(clip / "clip.mp4"), str(clip / "first.png"), "-o", str(clip / "out")]
    assert main(["propagate", *arguments, *FAST, "--names", "2=<rider>"]) == 0
    return clip / "out"


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "a run"))


def command_of(page: str) -> list[str]:
    (command,) = re.findall(r"<code>(timecycle correct .*?)</code>", page)
    return shlex.split(unescape(command))


def test_suggested_frames_are_written_as_pictures_with_labels_to_edit(run, clip):
    checked = check(run, count=2)
    for one in checked.queue:
        picture = Image.open(run / "review" / f"{one.index:05d}.jpg")
        with open_video(clip / "clip.mp4") as video:
            off = np.abs(np.asarray(picture).astype(int) - video[one.index].image)
        assert off.mean() < 4  # JPEG
        name = f"{one.index:05d}.png"
        assert (run / "review" / name).read_bytes() == (run / "labels" / name).read_bytes()


def test_printed_command_names_the_folder_as_the_user_did(run, monkeypatch, capsys):
    monkeypatch.chdir(run.parent)
    assert main(["check", run.name, "-n", "1"]) == 0
    frame, printed = re.findall(r"to fix frame (\d+): .*\n  (timecycle correct .*)\n", capsys.readouterr().out)[0]
    edited = f"{run.name}/review/{int(frame):05d}.png"
    assert shlex.split(printed) == ["timecycle", "correct", run.name, f"{frame}={edited}"]


def test_command_on_the_page_works_from_any_folder(run, tmp_path, monkeypatch):
    checked = check(run, count=1)
    _, verb, folder, argument = command_of(checked.report.read_text())
    number, _, file = argument.partition("=")
    edited = Masks.read(Path(file)).ids.copy()
    edited[:6, :6] = 1
    Masks(edited).write(Path(file))
    monkeypatch.chdir(tmp_path)
    assert main([verb, folder, argument]) == 0
    assert (Masks.read(run / "labels" / f"{int(number):05d}.png").ids[:6, :6] == 1).all()


def test_check_prints_the_same_command(run, capsys):
    assert main(["check", str(run), "-n", "1"]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert shlex.join(command_of((run / "report.html").read_text())) in printed


def test_edited_files_are_kept_and_others_follow_the_queue(run, capsys):
    first = check(run, count=2).queue
    mine = run / "review" / f"{first[0].index:05d}.png"
    mine.write_bytes(b"being edited")
    assert main(["check", str(run), "-n", "1"]) == 0
    assert mine.read_bytes() == b"being edited"
    assert "was edited and is kept" in " ".join(capsys.readouterr().err.split())
    assert not (run / "review" / f"{first[1].index:05d}.png").exists()


def test_grey_label_files_are_edited_in_colours_and_stay_grey(clip, tmp_path):
    out = tmp_path / "out"
    arguments = [str(clip / "clip.mp4"), str(clip / "first.png"), "-o", str(out)]
    assert main(["propagate", *arguments, *FAST, "--label-files", "grey"]) == 0
    best = check(out, count=1).queue[0]
    name = f"{best.index:05d}.png"
    image = Image.open(out / "review" / name)
    assert image.mode == "P"
    assert image.getpalette()[:9] == palette()[:3].ravel().tolist()
    edited = Masks.read(out / "labels" / name).ids.copy()
    assert np.array_equal(Masks.read(out / "review" / name).ids, edited)
    edited[:6, :6] = 2
    Image.fromarray(palette()[edited]).save(out / "review" / name)  # RGB, as paint programs save it
    assert main(["correct", str(out), f"{best.index}={out / 'review' / name}"]) == 0
    assert Image.open(out / "labels" / name).mode == "L"
    assert np.array_equal(Masks.read(out / "labels" / name).ids, edited)


def dead_links(run: Path) -> list[str]:
    page = (run / "report.html").read_text() if (run / "report.html").exists() else ""
    links = re.findall(r'href="([^"#]+)', page)
    return [link for link in links if not (run / link).exists()]


def test_no_page_links_to_removed_files(run, capsys):
    best = check(run, count=1).queue[0]
    assert main(["correct", str(run), f"{best.index}={run / 'review' / f'{best.index:05d}.png'}"]) == 0
    assert not (run / "report.html").exists()
    assert check(run, count=1).queue[0].index != best.index
    mine = run / "review" / "00000.png"
    mine.write_bytes(b"being edited")
    assert main(["correct", str(run), "--undo"]) == 0
    assert dead_links(run) == []
    assert mine.exists()
    assert f"timecycle check {shlex.quote(str(run))} says what to do next" in " ".join(capsys.readouterr().out.split())


def test_keypoints_are_edited_in_a_table_with_the_frame_number(clip, tmp_path):
    arguments = [str(clip / "clip.mp4"), str(clip / "0.csv"), "-o", str(tmp_path / "out")]
    assert main(["propagate", *arguments, *FAST]) == 0
    checked = check(tmp_path / "out", count=1)
    _, verb, folder, argument = command_of(checked.report.read_text())
    assert argument.endswith(f"review/{checked.queue[0].index:05d}.csv")
    assert main([verb, folder, argument]) == 0


def test_missing_video_omits_only_the_picture(run):
    record = json.loads((run / "run.json").read_text())
    record["origin"]["video"] = str(run / "gone.mp4")
    (run / "run.json").write_text(json.dumps(record))
    checked = check(run, count=1)
    assert [path.suffix for path in sorted((run / "review").iterdir())] == [".png", ".json"]
    assert f"{checked.queue[0].index:05d}.png" in checked.report.read_text()


def test_object_names_are_shown_everywhere(run, capsys):
    assert main(["check", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "&lt;rider&gt;" in page
    assert "<rider>" not in page
    assert "camel" in page
    assert "Object" not in page.replace("Objects", "")
    rows = list(csv.DictReader((run / "objects.csv").open()))
    assert {row["object"]: row["name"] for row in rows} == {"1": "camel", "2": "<rider>"}
    assert json.loads((run / "run.json").read_text())["names"] == {"1": "camel", "2": "<rider>"}
    assert all(one["name"] in ("camel", "<rider>") for one in json.loads((run / "review.json").read_text()))
    assert re.search(r"confidence in (camel|<rider>)", capsys.readouterr().out)


def test_page_links_to_frame_labels_and_overlay_at_its_time(run):
    best = check(run, count=1).queue[0]
    page = (run / "report.html").read_text()
    for link in (f"review/{best.index:05d}.jpg", f"review/{best.index:05d}.png"):
        assert f'href="{link}"' in page
        assert (run / link).is_file()
    assert f'href="overlay.mp4#t={best.time_seconds:.3f}"' in page


def test_unchanged_correction_is_noted_as_confirmed(run, caplog):
    best = check(run, count=1).queue[0]
    file = run / "review" / f"{best.index:05d}.png"
    assert main(["correct", str(run), f"{best.index}={file}"]) == 0
    assert f"the labels given for frame {best.index} equal the propagated ones: they count as confirmed" in caplog.text


def test_run_without_the_location_of_its_video_gets_no_command(run, capsys):
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"origin": None}))
    assert main(["check", str(run), "-n", "1"]) == 0
    assert "timecycle correct" not in capsys.readouterr().out + (run / "report.html").read_text()
