"""--json, --quiet and --verbose: what every command prints for programs, and what it keeps to itself."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import small_runs
import timecycle
from clips import small_world, write_clip, write_mask
from made_videos import make_video
from test_cli_page import commands, table
from timecycle.cli import main
from timecycle.data.augment.composites import CompositesConfig
from timecycle.labels import Masks
from timecycle.model.resnet import ResNetConfig, random_resnet
from trees import davis_tree

RGB = "--encoder rgb --set image_size_px=64"
TINY = " ".join(small_runs.TINY)

# In a folder of small inputs, and to a folder `new` that does not exist.
SUCCEEDS = {
    "demo": "demo --encoder rgb -o new",
    "propagate": f"propagate clip.mp4 first.png -o new {RGB}",
    "check": "check out",
    "correct": "correct out 3=late.png",
    "audit": f"audit clip.mp4 wrong {RGB}",
    "tune": "tune clip.mp4 first.png --encoders rgb --presets fast --frames 2",
    "convert": "convert out new",
    "frames": "frames clip.mp4 0 3 -o new",
    "flow": f"flow clip.mp4@0 clip.mp4@2 -o new {RGB}",
    "train": f"train videos -o new --steps 1 --set {TINY}",
    "evaluate davis": f"evaluate davis davis --sequences clip00 -o new {RGB}",
    "evaluate reconstruction": f"evaluate reconstruction davis --gaps 1 --sequences clip00 -o new {RGB}",
    "evaluate composites": f"evaluate composites videos --sequences composite-00 -o new {RGB}",
    "evaluate compare": "evaluate compare report report",
    "weights list": "weights list",
    "weights verify": "weights verify",
    "weights show": "weights show timecycle-v2",
    "weights convert": "weights convert resnet.pth.tar -o new.safetensors",
    "presets": "presets",
    "pack": "pack videos new --short-side 48 --workers 1",
    "bulk": f"bulk videos.csv -o new {RGB}",
    "benchmark": "benchmark --encoder rgb --only encode match --seconds 0.01",
    "doctor": "doctor",
}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name == "demo" else name for name in SUCCEEDS]  # all label kinds
FAILS = {
    "ui": "ui nothing.mp4",
    "demo": "demo -o .",
    "propagate": "propagate nothing.mp4 first.png",
    "check": "check nothing",
    "correct": "correct out",
    "audit": "audit clip.mp4",
    "tune": "tune clip.mp4 nothing.png",
    "convert": "convert nothing.json new",
    "frames": "frames clip.mp4 99 -o new",
    "flow": "flow nothing.png first.png -o new",
    "train": "train nothing -o new",
    **{f"evaluate {name}": f"evaluate {name} nothing -o new" for name in ("davis", "jhmdb", "vip", "badja")},
    **{f"evaluate {name}": f"evaluate {name} nothing -o new" for name in ("reconstruction", "composites")},
    "evaluate compare": "evaluate compare nothing nothing",
    "weights list": "weights list --device cpu",
    "weights verify": "weights verify nothing.safetensors",
    "weights show": "weights show nothing",
    "weights convert": "weights convert nothing.pth",
    "presets": "presets nothing",
    "pack": "pack nothing new",
    "bulk": "bulk nothing.csv -o new",
    "benchmark": "benchmark --seconds 0",
    "doctor": "doctor now",
}
SHOWN_WHEN_QUIET = {  # their result is what they print
    *("check", "audit", "tune", "presets", "benchmark", "doctor", "weights list", "weights verify", "weights show"),
    *(name for name in SUCCEEDS if name.startswith("evaluate ")),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    world = small_world(frames=6)
    write_clip(folder / "clip.mp4", world)
    write_mask(folder / "first.png", world)
    write_mask(folder / "late.png", world, 3)
    (folder / "wrong").mkdir()
    for number in range(6):
        Masks(world.mask(number)[:, :: -1 if number == 3 else 1]).write(folder / "wrong" / f"{number:05d}.png")
    for number in range(3):
        make_video(folder / "videos" / f"{number}.mp4", number)
    (folder / "videos.csv").write_text("video,labels\nclip.mp4,first.png\n")
    torch.save({"state_dict": random_resnet(ResNetConfig(), seed=5).state_dict()}, folder / "resnet.pth.tar")
    davis_tree(folder / "davis", clips=2)
    words = ["propagate", str(folder / "clip.mp4"), str(folder / "first.png"), "-o", str(folder / "out")]
    assert main([*words, *RGB.split()]) == 0
    sequences = ["--encoder", "identity", "--sequences", "clip00", "clip01"]
    assert main(["evaluate", "davis", str(folder / "davis"), *sequences, "-o", str(folder / "report")]) == 0
    return folder


@pytest.fixture
def here(inputs, tmp_path, monkeypatch):
    """A copy of the inputs in the current folder; composites as small as their videos."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    small = CompositesConfig(frames=6, side_px=64)
    monkeypatch.setattr("timecycle.cli.evaluate.CompositesConfig", lambda seed: small)
    return tmp_path


def documented(name: str) -> set[str]:
    keys = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table("command", "keys")}
    return keys.get(name) or keys["evaluate PROTOCOL"]


def test_every_command_is_tested():
    data = {"evaluate jhmdb", "evaluate vip", "evaluate badja"}  # other datasets for the code of `evaluate davis`
    until_stopped = {"ui"}  # tests/ui
    assert set(SUCCEEDS) | data | until_stopped == set(FAILS) == set(commands())


@pytest.mark.parametrize("name", NAMES)
def test_json_is_one_object_with_the_documented_keys(here, capsys, name):
    assert main([*shlex.split(SUCCEEDS[name]), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    result = json.loads(printed.out)
    assert result.keys() == documented(name) | {"command", "seconds", "exit_code"}
    assert (result["command"], result["exit_code"]) == (name, 0)
    assert printed.err  # what is for people
    assert "\x1b" not in printed.err
    assert not re.search(r"\d/\d", printed.err)  # progress


@pytest.mark.parametrize("name", FAILS)
def test_json_of_an_error_is_one_object(here, capsys, name):
    assert main(["--json", *shlex.split(FAILS[name])]) == 2
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert printed.err == f"error: {error['message']}\n  try: {error['remedy']}\n"
    assert error.keys() == {"kind", "message", "remedy", "exit_code"}
    assert error["exit_code"] == 2
    assert error["kind"] in {row[0].strip("`") for row in table("kind")}


@pytest.mark.parametrize("name", NAMES)
def test_quiet_command_that_succeeds_writes_no_errors_and_only_results(here, capsys, name):
    assert main([*shlex.split(SUCCEEDS[name]), "-q"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert bool(printed.out) == (name in SHOWN_WHEN_QUIET)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("propagat", "there is no command `timecycle propagat`"),
        ("weights", "`timecycle weights` needs a command"),
        ("propagate", "`timecycle propagate` needs VIDEO"),
        ("check out --coutn 3", "`timecycle check` has no option --coutn"),
        ("check out -n three", "-n/--count cannot be 'three'"),
        ("check out -n", "-n/--count needs a value"),
        ("check out -z", "unknown arguments: -z"),
        ("demo --device gpu", "--device cannot be 'gpu'; choose one of 'auto', 'cpu', 'cuda', 'mps'"),
        ("doctor -q -v", "--quiet and --verbose were both given"),
    ],
)
def test_wrong_arguments_are_an_error_like_any_other(here, capsys, words, message):
    assert main([*words.split(), "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["message"] == message
    assert printed.err.splitlines()[0] == f"error: {message}"


def test_quiet_keeps_errors(here, capsys):
    assert main(["check", "nothing", "-q"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_verbose_prints_what_was_chosen_and_changes_no_result(here, capsys):
    words = shlex.split(SUCCEEDS["propagate"])
    assert main([*words, "-q", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*words, "--overwrite", "-v", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) | {"seconds": 0} == plain | {"seconds": 0}
    lines = printed.err.splitlines()
    for start in (
        "preset default with image_size_px=64: image_size_px 64, ",
        "video clip.mp4: 6 frames of 96x64, encoded with a shorter side of 64 px",
        "encoder rgb: mean RGB of 8x8 pixels",
        "matching on the CPU: ",
        "device ",
    ):
        assert any(line.startswith(start) for line in lines), start


def test_videos_that_fail_are_counted_with_exit_code_1(here, capsys):
    (here / "broken.mp4").write_text("no video")
    (here / "videos.csv").write_text("video,labels\nclip.mp4,first.png\nbroken.mp4,first.png\n")
    assert main([*shlex.split(SUCCEEDS["bulk"]), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert [result[name] for name in ("videos", "done", "failed", "exit_code")] == [2, 1, 1, 1]


def test_frames_to_review_are_those_of_the_table(here, capsys):
    assert main(shlex.split(f"propagate clip.mp4 first.png -o new {RGB} --json")) == 0
    rows = [row.split(",") for row in (here / "new" / "frames.csv").read_text().splitlines()[1:]]
    review = [int(row[0]) for row in rows if row[-1] in ("uncertain", "lost")]
    assert review
    assert json.loads(capsys.readouterr().out)["frames_to_review"] == review


def test_words_after_two_dashes_are_not_options(here, capsys):
    (here / "-q").mkdir()
    assert main(["--json", "check", "--", "-q"]) == 2
    assert "-q" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_ctrl_c_is_an_error_in_json(tmp_path):
    (tmp_path / "torch.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)")
    path = os.pathsep.join([str(tmp_path), str(Path(timecycle.__file__).parents[1])])
    words = [sys.executable, "-m", "timecycle", "propagate", "--json", "a.mp4", "b.png"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert json.loads(done.stdout)["error"]["kind"] == "Interrupted"
