"""`timecycle train` on the command line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len

from made_videos import make_video
from timecycle.api.learning import show_steps
from timecycle.cli import main
from timecycle.training.heldout import HeldOutScores, recommendation
from timecycle.training.record import read_journal
from timecycle.training.trainer import Progress


def run(*words) -> int:
    return main([str(word) for word in words])


def test_finished_run_is_not_started_twice_and_resuming_it_reports_it(videos, tiny, tmp_path, capsys):
    words = ("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny)
    assert run(*words) == 0
    output = capsys.readouterr().out
    assert "warp_accuracy" in output
    assert "weights.safetensors" in output
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert run(*words) == 2
    assert "already holds a run" in capsys.readouterr().err
    for again in (words, ("train", tmp_path / "gone", "-o", tmp_path / "run")):
        assert run(*again, "--resume") == 0
        output = capsys.readouterr().out
        assert "this run is finished: 1 of 1 steps" in output
        assert str(tmp_path / "run" / "weights.safetensors") in output.replace("\n", "")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_same_command_resumes_and_changed_settings_are_named(videos, tiny, tmp_path, capsys):
    words = ("train", videos, "-o", tmp_path / "run", "--minutes", 0.01, "--set", *tiny)
    assert run(*words) == 0
    assert run(*words, "--resume") == 0
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 777, "--set", "seed=3", *tiny, "--resume") == 2
    assert "was started with another setting of steps, seed" in capsys.readouterr().err


def test_resuming_with_another_preset_is_refused(videos, tiny, tmp_path, capsys):
    words = ("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny)
    assert run(*words) == 0
    assert run("train", videos, "-o", tmp_path / "run", "--preset", "full", "--resume") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "was started with another setting of" in told
    assert "a resumed run keeps its settings: leave preset, settings and steps out" in told


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_folder_of_one_to_five_videos_trains(videos, tiny, tmp_path, capsys, count):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in sorted(videos.iterdir())[:count]:
        shutil.copy(path, corpus)
    settings = (*tiny, "held_out=0.001")  # a share so small that the hash holds nothing out
    assert run("train", corpus, "-o", tmp_path / "run", "--steps", 1, "--set", *settings) == 0
    output = capsys.readouterr().err
    assert ("one video: frames 0 to " if count == 1 else "to train on, 1 held out") in output
    card = json.loads((tmp_path / "run" / "weights.json").read_text())
    assert card["trained_on"].startswith("1 unlabelled video," if count < 3 else f"{count - 1} unlabelled videos,")


def test_single_file_trains(videos, tiny, tmp_path, capsys):
    assert run("train", videos / "world0.mp4", "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0
    assert "one video: frames 0 to " in capsys.readouterr().err
    (entry,) = (tmp_path / "run" / "index.jsonl").read_text().splitlines()[1:]
    assert json.loads(entry)["path"] == "world0.mp4"


def test_static_videos_are_refused_and_do_not_block_the_folder(videos, tiny, tmp_path, capsys):
    static = tmp_path / "static"
    make_video(static / "a.mp4", 0, static=True)
    words = ("-o", tmp_path / "run", "--steps", 1, "--set", *tiny)
    assert run("train", static, *words) == 2
    assert "none of 1 video in" in (output := capsys.readouterr().err.replace("\n", " "))
    assert "clip of 3 frames, 1 static" in output
    assert run("train", videos, *words) == 0


def test_missing_folder_of_videos_creates_no_output_folder(tmp_path, capsys):
    for more in ((), ("--minutes", 1)):
        assert run("train", tmp_path / "none", "-o", tmp_path / "rn", *more) == 2
        assert f"there is no folder or video {tmp_path / 'none'}" in capsys.readouterr().err.replace("\n", "")
        assert not (tmp_path / "rn").exists()


def licence(folder) -> str:
    return json.loads((folder / "weights.json").read_text())["licence"]


def test_card_without_a_stated_licence_says_so(videos, tiny, tmp_path):
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0
    assert licence(tmp_path / "run") == "not stated"


def test_training_from_weights_keeps_their_data_and_licence_and_ends_with_a_recommendation(
    videos, tiny, tmp_path, capsys
):
    words = ["--steps", 1, "--set", *tiny]
    assert run("train", videos, "-o", tmp_path / "first", "--license", "CC-BY-NC-4.0", *words) == 0
    assert licence(tmp_path / "first") == "CC-BY-NC-4.0"
    weights = tmp_path / "first" / "weights.safetensors"
    capsys.readouterr()
    assert run("train", videos, "-o", tmp_path / "next", "--from", weights, "--licence", "MIT", *words) == 0
    printed = capsys.readouterr()
    assert "the initial weights are under CC-BY-NC-4.0" in " ".join(printed.err.split())
    output = printed.out.replace("\n", " ")
    assert "1 step of 2 clips are too few to learn anything" in output
    assert "on held-out clips): keep the old weights" in output
    assert licence(tmp_path / "next") == "MIT; the initial weights: CC-BY-NC-4.0"
    card = json.loads((tmp_path / "next" / "weights.json").read_text())
    assert card["trained_on"].endswith("1 step of walks")
    assert ", from weights trained on " in card["trained_on"]


def test_bundled_weights_can_be_given_by_name_as_initial_weights(videos, tiny, tmp_path):
    assert run("train", videos, "-o", tmp_path / "run", "--from", "timecycle-v2", "--steps", 1, "--set", *tiny) == 0
    card = json.loads((tmp_path / "run" / "weights.json").read_text())
    assert card["licence"].startswith("not stated; the initial weights: Apache-2.0")


def interrupted(words, folder) -> subprocess.CompletedProcess[str]:
    """Run a command and send it SIGINT after its third step."""
    command = [sys.executable, "-m", "timecycle", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + 120
        while len(read_journal(folder)) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@pytest.mark.slow  # starts a process that trains, and trains two more runs
@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_ctrl_c_saves_and_resume_loses_nothing(videos, tiny, tmp_path):
    settings = (*tiny, "checkpoint_every=1000", "validate_every=1000", "precision=fp32")
    words = ("train", videos, "--steps", 12, "--set", *settings, "-o")
    ended = interrupted((*words, tmp_path / "cut"), tmp_path / "cut")
    assert ended.returncode == 130, ended.stderr
    assert "stopping after this step" in ended.stderr
    made = len(read_journal(tmp_path / "cut"))
    assert 3 <= made < 12
    assert f"stopped after {made} steps, all saved; to resume: timecycle train" in ended.stdout
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()] == [f"step-{made:08d}.ckpt"]
    assert run("train", videos, "-o", tmp_path / "cut", "--resume") == 0
    assert run(*words, tmp_path / "whole") == 0
    assert [line["step"] for line in read_journal(tmp_path / "cut")] == list(range(1, 13))
    results = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("cut", "whole")]
    assert results[0] == results[1]


def test_ctrl_c_before_the_first_step_advises_to_run_the_command_again(videos, tiny, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("timecycle.training.trainer.index_videos", interrupt)
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 130
    assert "run the same command again" in capsys.readouterr().err
    monkeypatch.undo()
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0


def test_recommendation_warns_of_too_few_steps():
    old = HeldOutScores(0.3, 0.2, 0.5, 20.0, 0.1, 0.1)
    new = HeldOutScores(0.5, 0.4, 0.5, 20.0, 0.1, 0.1)
    few = "30 steps of 8 clips are too few to learn anything"
    assert recommendation(None, new, steps=30, batch=8) == f"{few}: train for 250 or more"
    assert recommendation(old, new, steps=30, batch=8).startswith(few)
    assert recommendation(None, new, steps=1000, batch=8) == ""
    assert "use the new weights" in recommendation(old, new, steps=1000, batch=8)
    assert "keep the old weights" in recommendation(new, old, steps=1000, batch=8)


def test_note_beside_the_progress_bar_is_short():
    notes = []

    def bar(done, total, info=""):
        notes.append(info)

    losses = {"total": 12.345678, "walk": 6.1, "same_frame": 6.2, "pasted": 0.1}
    for share in (0.0, 0.03, 0.5):
        show_steps(bar)(Progress(3, 4000, losses, share))
    assert notes == ["loss 12.346", "loss 12.346", "loss 12.346 · 50% waiting"]
    assert max(map(cell_len, notes)) <= 26


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "2", "--minutes", "1"), "steps and minutes were both given"),
        (("--resume",), "holds no run to resume"),
        (("--resume", "--steps", "3"), "holds no run to resume"),
        (("--minutes", "0"), "minutes is 0"),
        (("--minutes", "-5"), "minutes is -5"),
        (("--minutes", "nan"), "minutes is nan"),
        (("--steps", "0"), "steps is 0"),
        (("--set", "steps.x=3"), "steps has no setting 'x'"),
        (("--set", "view_px=400"), "view_px is 400 and clips.crop_px 168"),
        (("--set", "walk.dropout=0"), "did you mean 'walks'"),
        (("--preset", "tiny"), "there is no train preset 'tiny'"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(videos, tmp_path, capsys, words, message):
    assert run("train", videos, "-o", tmp_path / "run", *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_folder_without_videos_is_refused(tmp_path, capsys):
    assert run("train", tmp_path, "-o", tmp_path / "run", "--steps", "1") == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_minutes_are_converted_to_steps(videos, tiny, tmp_path, capsys):
    assert run("train", videos, "-o", tmp_path / "run", "--minutes", 0.02, "--set", *tiny) == 0
    assert "steps take about 0.02 minutes here" in capsys.readouterr().err


def test_minutes_are_refused_with_several_processes(videos, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("train", videos, "-o", tmp_path / "run", "--minutes", 1) == 2
    assert "minutes were given to several processes" in capsys.readouterr().err


def test_unusable_videos_are_reported_and_listed(videos, tiny, tmp_path, capsys):
    corpus = tmp_path / "corpus"
    shutil.copytree(videos, corpus)
    (corpus / "torn.mp4").write_bytes(b"not a video")
    assert run("train", corpus, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0
    assert "1 of 9 videos cannot be used and are left out" in capsys.readouterr().err
    assert "torn.mp4" in (tmp_path / "run" / "index.jsonl").read_text()
