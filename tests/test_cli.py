"""The command line: results, exit codes, and errors in one line with a remedy."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from PIL import Image, ImageDraw

from clips import small_world, write_clip, write_mask
from timecycle.cli import main
from timecycle.config import preset_names, read_preset
from timecycle.labels import Coordinates, Masks, Texture
from timecycle.version import __version__


@pytest.fixture(scope="module")
def world():
    return small_world(frames=6)


@pytest.fixture(scope="module")
def inputs(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_clip(folder / "clip.mp4", world)
    write_mask(folder / "first.png", world)
    write_mask(folder / "late.png", world, 4)
    (folder / "frames").mkdir()
    for t in range(6):
        Image.fromarray(world.frame(t)).save(folder / "frames" / f"{t:05d}.png")
    (folder / "points.csv").write_text("frame,name,x,y,visible\n0,nose,20,30,1\n0,tail,50,40,1\n3,tail,52,40,1\n")
    return folder


def test_propagate_writes_labels_for_every_frame(inputs, tmp_path, capsys):
    assert main(["propagate", str(inputs / "clip.mp4"), str(inputs / "first.png"), "-o", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out" / "labels").glob("*.png"))) == 6
    assert "6 frames in" in capsys.readouterr().out


def test_folder_of_images_with_two_annotated_frames(inputs, tmp_path):
    words = ["propagate", str(inputs / "frames"), f"0={inputs / 'first.png'}", f"4={inputs / 'late.png'}"]
    assert (
        main([*words, "-o", str(tmp_path / "out"), "--preset", "fast", "--set", "neighbours=3", "window_px=none"]) == 0
    )
    rows = (tmp_path / "out" / "frames.csv").read_text().splitlines()
    assert [row.split(",")[4] for row in rows[1:]] == [
        "annotated",
        "blended",
        "blended",
        "blended",
        "annotated",
        "propagated",
    ]


def test_glob_is_a_video(inputs, tmp_path):
    assert (
        main(["propagate", str(inputs / "frames" / "*.png"), str(inputs / "first.png"), "-o", str(tmp_path / "o")]) == 0
    )


def test_points_are_propagated(inputs, tmp_path):
    assert main(["propagate", str(inputs / "clip.mp4"), str(inputs / "points.csv"), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "keypoints.csv").read_text()
    assert "0,nose,20.0,30.0,1" in text
    assert "3,tail,52.0,40.0,1" in text


def test_damaged_video_is_refused_unless_allowed(data, tmp_path, capsys):
    """The damage is recorded, and corrections read the same frames."""
    video, first, folder = data / "damaged" / "oneflip.avi", tmp_path / "first.png", tmp_path / "out"
    mask = np.zeros((64, 96), np.uint8)
    mask[20:40, 30:60] = 1
    Image.fromarray(mask).save(first)
    words = ["propagate", str(video), str(first), "-o", str(folder), "--encoder", "rgb"]
    assert "oneflip.avi is damaged: only 23 of its 24 frames are there" in refused(capsys, *words)
    assert main([*words, "--allow-damaged"]) == 0
    record = json.loads((folder / "run.json").read_text())
    assert (record["video"]["frames"], record["video"]["damage"]) == (23, "only 23 of its 24 frames are there")
    assert main(["correct", str(folder), f"12={first}"]) == 0


def test_a_run_of_a_missing_device_is_corrected_on_another(inputs, tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["propagate", str(inputs / "clip.mp4"), str(inputs / "first.png"), "-o", str(folder)]) == 0
    record = json.loads((folder / "run.json").read_text())
    record["origin"]["device"] = "mps"
    (folder / "run.json").write_text(json.dumps(record))
    words = ["correct", str(folder), f"4={inputs / 'late.png'}"]
    assert "torch finds no device 'mps' on this machine" in refused(capsys, *words)
    assert main([*words, "--device", "cpu"]) == 0


def test_box_and_stripes_need_no_mask(inputs, tmp_path):
    words = ["propagate", str(inputs / "clip.mp4"), "--box", "10,10,40,40", "--box-as-is"]
    assert main([*words, "-o", str(tmp_path / "box")]) == 0
    box = Masks.read(tmp_path / "box" / "labels" / "00000.png").ids
    assert box[10:41, 10:41].all()
    assert box.sum() == 31 * 31
    assert main([*words, "--texture", "stripes", "-o", str(tmp_path / "stripes")]) == 0
    stripes = Texture.read(tmp_path / "stripes" / "labels" / "00000.png").rgba
    assert len(np.unique(stripes[stripes[..., 3] > 0], axis=0)) == 6


def test_coordinates_are_propagated(inputs, tmp_path):
    assert main(["propagate", str(inputs / "clip.mp4"), "--coordinates", "-o", str(tmp_path / "out")]) == 0
    assert Coordinates.read(tmp_path / "out" / "labels" / "00005.npy").xy.shape == (64, 96, 2)


def test_flow_between_two_frames_of_a_video(inputs, tmp_path):
    words = [f"{inputs / 'clip.mp4'}@0", f"{inputs / 'clip.mp4'}@2"]
    assert main(["flow", *words, "-o", str(tmp_path / "flow")]) == 0
    names = sorted(path.name for path in (tmp_path / "flow").iterdir())
    assert names == ["arrows.png", "flow.npy", "matches.png", "warp.png"]
    assert np.load(tmp_path / "flow" / "flow.npy").shape == (64, 96, 2)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"timecycle {__version__}\n"


def test_doctor_names_the_versions_and_the_device(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"timecycle       {__version__}" in out
    assert "device auto" in out
    assert "ok  weights         timecycle-v2-" in out


def test_doctor_lists_missing_extras_in_one_column(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "-   ui              no starlette  (pip install 'timecycle[ui]', if you want it)" in lines
    assert "-   COCO files      no pycocotools  (pip install 'timecycle[coco]', if you want it)" in lines
    assert all(line[19] == " " and line[20] != " " for line in lines)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]  # without extras everything else works


def refused(capsys, *words) -> str:
    """Run a command that fails with exit code 2; return its error text."""
    assert main([str(word) for word in words]) == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


def test_mask_of_another_size_is_refused(inputs, tmp_path, capsys):
    Masks(np.ones((10, 12), np.uint16)).write(tmp_path / "small.png")
    text = refused(capsys, "propagate", inputs / "clip.mp4", tmp_path / "small.png", "-o", tmp_path / "out")
    assert "error: the labels of frame 0 are 12x10 but the frame is 96x64" in text
    assert "try: draw them on the frame itself, or resize them with nearest neighbour" in text
    assert not (tmp_path / "out").exists()


def test_mask_with_soft_edges_is_refused(inputs, tmp_path, capsys):
    large = Image.new("RGB", (96 * 8, 64 * 8))
    ImageDraw.Draw(large).ellipse((100, 100, 400, 400), fill=(255, 0, 0))
    ImageDraw.Draw(large).ellipse((300, 100, 600, 400), fill=(0, 200, 0))
    large.resize((96, 64), Image.Resampling.LANCZOS).save(tmp_path / "soft.png")
    text = refused(capsys, "propagate", inputs / "clip.mp4", tmp_path / "soft.png", "-o", tmp_path / "out")
    assert "soft.png has soft edges" in text
    assert "try: draw with a hard brush" in text


def test_missing_frame_file_is_refused(inputs, tmp_path, capsys):
    (tmp_path / "frames").mkdir()
    for t in (0, 1, 2, 4, 5):
        Image.open(inputs / "frames" / f"{t:05d}.png").save(tmp_path / "frames" / f"{t:05d}.png")
    text = refused(capsys, "propagate", tmp_path / "frames", inputs / "first.png", "-o", tmp_path / "out")
    assert "frame 3" in text
    assert "is missing" in text
    assert "try: " in text


def test_empty_folder_is_refused(inputs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    text = refused(capsys, "propagate", tmp_path / "empty", inputs / "first.png", "-o", tmp_path / "out")
    assert "empty" in text
    assert "try: " in text


def test_text_file_named_mp4_is_refused(inputs, tmp_path, capsys):
    (tmp_path / "fake.mp4").write_text("not a video\n" * 50)
    text = refused(capsys, "propagate", tmp_path / "fake.mp4", inputs / "first.png", "-o", tmp_path / "out")
    assert "fake.mp4" in text
    assert "try: " in text


def test_unwritable_output_is_refused(inputs, tmp_path, capsys):
    (tmp_path / "file").write_text("")  # a folder cannot be made below a file, even by an administrator
    text = refused(capsys, "propagate", inputs / "clip.mp4", inputs / "first.png", "-o", tmp_path / "file" / "out")
    assert "error: cannot write" in text
    assert "try: choose a folder you may write to, with free space, with -o" in text


def test_missing_labels_are_refused(inputs, tmp_path, capsys):
    text = refused(capsys, "propagate", inputs / "clip.mp4", "-o", tmp_path / "out")
    assert "no labels were given" in text
    assert "--box x0,y0,x1,y1" in text


def test_labels_for_a_missing_frame_are_refused(inputs, tmp_path, capsys):
    words = ("propagate", inputs / "clip.mp4", f"77={inputs / 'first.png'}", "-o", tmp_path / "out")
    assert "labels were given for frame 77 but" in refused(capsys, *words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--box", "1,2,3"], "'1,2,3' is not a box"),
        (["--box", "200,200,300,300"], "holds no pixel of the 96x64 frame"),
        (["--preset", "fats"], "there is no propagate preset 'fats'"),
        (["--set", "neighbors=5"], "unknown setting 'neighbors' for PropagateConfig"),
        (["--set", "temperature=0"], "temperature is 0"),
        (["--encoder", "nothing.safetensors"], "there is no file of weights nothing.safetensors"),
        (["--encoder", "weights.pth"], "is a pickle checkpoint"),
        (["--fps", "10"], "fps"),
    ],
)
def test_wrong_value_of_an_option_is_one_line(inputs, tmp_path, capsys, words, problem):
    base = ["propagate", inputs / "clip.mp4", "-o", tmp_path / "out"]
    if "--box" not in words:
        base.insert(2, inputs / "first.png")
    assert problem in refused(capsys, *base, *words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["first.png", "--box", "1,2,30,40"], "LABELS and --box were both given"),
        (["first.png", "--coordinates"], "LABELS and --coordinates were both given"),
        (["--coordinates", "--texture", "stripes"], "--coordinates and --texture stripes were both given"),
        (["--box", "1,2,30,40", "--exhaustive"], "--box and --exhaustive were both given"),
        (["points.csv", "--texture", "stripes"], "stripes are painted on the mask of one frame"),
        (["0=first.png", "4=late.png", "--texture", "stripes"], "stripes are painted on the mask of one frame"),
        (["first.png", "--resume", "--overwrite"], "--resume and --overwrite cannot be combined"),
    ],
)
def test_contradictory_options_are_refused(inputs, tmp_path, capsys, monkeypatch, words, problem):
    monkeypatch.chdir(inputs)
    assert problem in refused(capsys, "propagate", "clip.mp4", *words, "-o", tmp_path / "out")


def test_inputs_inside_the_output_folder_are_refused(world, tmp_path, capsys):
    clip = write_clip(tmp_path / "clip.mp4", world)
    (tmp_path / "out" / "labels").mkdir(parents=True)
    mask = write_mask(tmp_path / "out" / "labels" / "00000.png", world)
    text = refused(capsys, "propagate", clip, mask.parent, "-o", tmp_path / "out", "--overwrite")
    assert "lies in the output folder" in text
    assert mask.exists()


def test_flow_and_demo_overwrite_nothing_unasked(inputs, tmp_path, capsys):
    frames = [inputs / "frames" / f"{t:05d}.png" for t in (0, 2)]
    assert main(["flow", *map(str, frames), "-o", str(tmp_path / "flow"), "--set", "image_size_px=48"]) == 0
    assert "flow.npy already exists" in refused(capsys, "flow", *frames, "-o", tmp_path / "flow")
    assert "holds other things than a demo" in refused(capsys, "demo", "-o", tmp_path)


def test_mistyped_command_exits_with_code_2_in_the_shell(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "timecycle", "propagat"], capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (["propagat"], "there is no command `timecycle propagat`", "did you mean propagate?"),
        (["weights", "lst"], "there is no command `timecycle weights lst`", "did you mean list?"),
        (["teleport"], "there is no command `timecycle teleport`", "timecycle --help lists what there is"),
        (
            ["propagate", "v", "--overwrit"],
            "`timecycle propagate` has no option --overwrit",
            "did you mean --overwrite?",
        ),
        (
            ["weights", "convert", "c", "--licens=x"],
            "`timecycle weights convert` has no option",
            "did you mean --licens",
        ),
        (
            ["check", "out", "--precision", "fp32"],
            "`timecycle check` has no option --precision",
            "timecycle check --help",
        ),
    ],
)
def test_mistyped_words_get_the_closest_one_of_that_command(capsys, words, problem, remedy):
    text = refused(capsys, *words)
    assert f"error: {problem}" in text
    assert f"try: {remedy}" in text
    assert len(text.splitlines()) == 2


def test_no_confidence_is_a_flag(inputs, tmp_path, capsys):
    words = ["propagate", str(inputs / "clip.mp4"), str(inputs / "first.png"), "--encoder", "rgb", "--no-confidence"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    assert "review" not in capsys.readouterr().out
    rows = (tmp_path / "out" / "frames.csv").read_text().splitlines()
    assert all(row.endswith(",,") for row in rows[1:])
    text = refused(capsys, *words, "--min-confidence", "0.5", "-o", tmp_path / "other")
    assert "--min-confidence needs the confidence that --no-confidence leaves out" in text


def test_propagate_ends_with_the_number_of_frames_to_review(inputs, tmp_path, capsys):
    out = tmp_path / "my out"
    words = ["propagate", str(inputs / "clip.mp4"), str(inputs / "first.png"), "--encoder", "rgb", "-o", str(out)]
    assert main(words) == 0
    states = [row.rpartition(",")[2] for row in (out / "frames.csv").read_text().splitlines()[1:]]
    count = sum(state in ("uncertain", "lost") for state in states)
    assert count > 1
    assert f" -> {out}; {count} need review: timecycle check '{out}'" in capsys.readouterr().out
    assert main([*words, "--resume"]) == 0
    assert f"this run is finished: 6 frames -> {out}; {count} need review" in capsys.readouterr().out


@pytest.mark.parametrize(("video", "folder"), [("clip.mp4", "clip"), ("frames", "frames"), ("frames/*.png", "frames")])
def test_output_folder_is_named_after_the_video_by_default(inputs, tmp_path, monkeypatch, capsys, video, folder):
    monkeypatch.chdir(tmp_path)
    words = ["propagate", str(inputs / video), str(inputs / "first.png"), "--encoder", "rgb", "--no-confidence"]
    assert main(words) == 0
    assert f"-> {folder}_timecycle" in capsys.readouterr().out
    assert (tmp_path / f"{folder}_timecycle" / "labels" / "00005.png").is_file()


def test_frames_are_saved_by_number(inputs, world, tmp_path, capsys):
    out = tmp_path / "frames"
    assert main(["frames", str(inputs / "frames"), "0", "4", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"2 frames -> {out}\n"
    assert sorted(path.name for path in out.iterdir()) == ["00000.png", "00004.png"]
    assert np.array_equal(np.array(Image.open(out / "00004.png")), world.frame(4))
    assert "00004.png already exists" in refused(capsys, "frames", inputs / "frames", "4", "5", "-o", out)
    assert not (out / "00005.png").exists()
    assert main(["frames", str(inputs / "frames"), "4", "5", "-o", str(out), "--overwrite"]) == 0
    assert (out / "00005.png").is_file()


@pytest.mark.parametrize("frames", [["6"], ["0", "6"], []])
def test_frames_that_do_not_exist_are_refused_before_anything_is_written(inputs, tmp_path, capsys, frames):
    text = refused(capsys, "frames", inputs / "clip.mp4", *frames, "-o", tmp_path / "out")
    assert "no frame number was given" in text if not frames else "6" in text
    assert not (tmp_path / "out").exists()


def test_presets_are_listed_with_a_line_each_or_printed(capsys):
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names == [*preset_names("propagate"), *preset_names("train")]
    assert max(map(len, lines)) < 80
    assert main(["presets", "fast"]) == 0
    assert tomllib.loads(capsys.readouterr().out) == read_preset("propagate", "fast")
    assert "there is no preset 'fats'" in refused(capsys, "presets", "fats")
