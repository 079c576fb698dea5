"""`timecycle train` as a person meets it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len

from clips import write_clip
from timecycle.cli import main
from timecycle.cli.train import _shown_on
from timecycle.synthetic import WorldConfig, make_world
from timecycle.training.heldout import Verdict, verdict
from timecycle.training.journal import read_journal
from timecycle.training.trainer import Progress


def run(*words) -> int:
    return main([str(word) for word in words])


def test_a_run_is_started_finished_and_not_started_twice(videos, tiny, tmp_path, capsys):
    words = ("train", videos, "-o", tmp_path / "run", "--steps", 2, "--set", *tiny)
    assert run(*words) == 0
    said = capsys.readouterr().out
    assert "warp_accuracy" in said
    assert "weights.safetensors" in said
    assert run(*words) == 2
    assert "holds a run already" in capsys.readouterr().err


def test_resuming_a_finished_run_says_so_and_succeeds(videos, tiny, tmp_path, capsys):
    words = ("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny)
    assert run(*words) == 0
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    capsys.readouterr()
    for again in (words, ("train", tmp_path / "gone", "-o", tmp_path / "run")):
        assert run(*again, "--resume") == 0
        said = capsys.readouterr().out
        assert "this run is finished: 1 of 1 steps" in said
        assert str(tmp_path / "run" / "weights.safetensors") in said.replace("\n", "")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_the_same_command_resumes_and_other_settings_are_named(videos, tiny, tmp_path, capsys):
    words = ("train", videos, "-o", tmp_path / "run", "--minutes", 0.01, "--set", *tiny)
    assert run(*words) == 0
    assert run(*words, "--resume") == 0
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 777, "--set", "seed=3", *tiny, "--resume") == 2
    assert "was started with another setting of steps, seed" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_folder_of_one_to_five_videos_trains(videos, tiny, tmp_path, capsys, count):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in sorted(videos.iterdir())[:count]:
        shutil.copy(path, corpus)
    settings = (*tiny, "held_out=0.001")  # a share so small that the hash holds nothing out
    assert run("train", corpus, "-o", tmp_path / "run", "--steps", 1, "--set", *settings) == 0
    said = capsys.readouterr().err
    assert ("one video: frames 0 to " if count == 1 else "to train on, 1 held out") in said
    card = json.loads((tmp_path / "run" / "weights.json").read_text())
    assert card["trained_on"].startswith("1 unlabelled video," if count < 3 else f"{count - 1} unlabelled videos,")


def test_a_single_file_trains(videos, tiny, tmp_path, capsys):
    assert run("train", videos / "world0.mp4", "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0
    assert "one video: frames 0 to " in capsys.readouterr().err
    (entry,) = (tmp_path / "run" / "index.jsonl").read_text().splitlines()[1:]
    assert json.loads(entry)["path"] == "world0.mp4"


def test_videos_in_which_nothing_moves_are_named_as_such_and_do_not_block_the_folder(videos, tiny, tmp_path, capsys):
    still = tmp_path / "still"
    still.mkdir()
    write_clip(still / "a.mp4", make_world(WorldConfig(height_px=80, width_px=96, frames=14, still=True)))
    words = ("-o", tmp_path / "run", "--steps", 1, "--set", *tiny)
    assert run("train", still, *words) == 2
    assert "none of 1 video in" in (said := capsys.readouterr().err.replace("\n", " "))
    assert "in 1 nothing moves" in said
    assert run("train", videos, *words) == 0


def test_a_missing_folder_leaves_no_folder_behind(tmp_path, capsys):
    for more in ((), ("--minutes", 1)):
        assert run("train", tmp_path / "none", "-o", tmp_path / "rn", *more) == 2
        assert f"there is no folder or video {tmp_path / 'none'}" in capsys.readouterr().err.replace("\n", "")
        assert not (tmp_path / "rn").exists()


@pytest.mark.parametrize("words", [(), ("--licence", "CC0-1.0"), ("--license", "CC0-1.0")])
def test_weights_have_the_licence_that_was_stated_and_no_other(videos, tiny, tmp_path, words):
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 1, *words, "--set", *tiny) == 0
    card = json.loads((tmp_path / "run" / "weights.json").read_text())
    assert card["licence"] == ("CC0-1.0" if words else "not stated")


def test_the_card_says_what_the_weights_began_with_and_on_what_terms(videos, tiny, tmp_path, capsys):
    words = ["--steps", 1, "--set", *tiny]
    assert run("train", videos, "-o", tmp_path / "first", "--licence", "CC-BY-NC-4.0", *words) == 0
    weights = tmp_path / "first" / "weights.safetensors"
    capsys.readouterr()
    assert run("train", videos, "-o", tmp_path / "next", "--from", weights, "--licence", "MIT", *words) == 0
    assert "the weights this run begins with are under CC-BY-NC-4.0" in " ".join(capsys.readouterr().err.split())
    card = json.loads((tmp_path / "next" / "weights.json").read_text())
    assert card["licence"] == "MIT; the weights it began with: CC-BY-NC-4.0"
    assert card["trained_on"].endswith("1 step of walks")
    assert ", from weights trained on " in card["trained_on"]


def test_bundled_weights_can_be_named_to_begin_with(videos, tiny, tmp_path):
    assert run("train", videos, "-o", tmp_path / "run", "--from", "timecycle-v1", "--steps", 1, "--set", *tiny) == 0
    card = json.loads((tmp_path / "run" / "weights.json").read_text())
    assert card["licence"].startswith("not stated; the weights it began with: CC-BY-NC-4.0")


def interrupted(words, folder) -> subprocess.CompletedProcess[str]:
    """A command that gets Ctrl-C once it has made its third step."""
    command = [sys.executable, "-m", "timecycle", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + 120
        while len(read_journal(folder)) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, said, told)


@pytest.mark.slow  # starts a process that trains, and trains two more runs
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGINT for a single process")
def test_ctrl_c_saves_at_once_and_resume_loses_nothing(videos, tiny, tmp_path):
    settings = (*tiny, "checkpoint_every=1000", "validate_every=1000", "precision=fp32")
    words = ("train", videos, "--steps", 30, "--set", *settings, "-o")
    ended = interrupted((*words, tmp_path / "cut"), tmp_path / "cut")
    assert ended.returncode == 130, ended.stderr
    assert "stopping after this step" in ended.stderr
    made = len(read_journal(tmp_path / "cut"))
    assert 3 <= made < 30
    assert f"stopped after {made} steps, all saved; to go on: timecycle train" in ended.stdout
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()] == [f"step-{made:08d}.ckpt"]
    assert run("train", videos, "-o", tmp_path / "cut", "--resume") == 0
    assert run(*words, tmp_path / "whole") == 0
    assert [line["step"] for line in read_journal(tmp_path / "cut")] == list(range(1, 31))
    results = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("cut", "whole")]
    assert results[0] == results[1]


def test_ctrl_c_before_the_first_step_says_to_give_the_command_again(videos, tiny, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("timecycle.training.trainer.examine_videos", interrupt)
    with pytest.raises(SystemExit, match="130"):
        run("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny)
    assert "give the same command again" in capsys.readouterr().err
    monkeypatch.undo()
    assert run("train", videos, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0


def test_the_verdict_says_when_too_few_steps_were_made_to_learn_anything():
    old = Verdict(0.3, 0.2, 0.5, 20.0, 0.1, 0.1)
    new = Verdict(0.5, 0.4, 0.5, 20.0, 0.1, 0.1)
    few = "30 steps of 8 clips are too few to learn anything"
    assert verdict(None, new, steps=30, batch=8) == f"{few}: train for 250 or more"
    assert verdict(old, new, steps=30, batch=8).startswith(few)
    assert verdict(None, new, steps=1000, batch=8) == ""
    assert "use the new weights" in verdict(old, new, steps=1000, batch=8)
    assert "keep the old weights" in verdict(new, old, steps=1000, batch=8)


def test_the_note_beside_the_bar_is_short():
    notes = []

    def bar(done, total, note=""):
        notes.append(note)

    losses = {"total": 12.345678, "walk": 6.1, "still": 6.2, "things": 0.1}
    for share in (0.0, 0.03, 0.5):
        _shown_on(bar)(Progress(3, 4000, losses, share))
    assert notes == ["loss 12.346", "loss 12.346", "loss 12.346 · 50% waiting"]
    assert max(map(cell_len, notes)) <= 26


def test_going_on_from_weights_ends_with_a_verdict(videos, tiny, tmp_path, capsys):
    common = ("--steps", 1, "--set", *tiny)
    assert run("train", videos, "-o", tmp_path / "first", *common) == 0
    first = tmp_path / "first" / "weights.safetensors"
    assert run("train", videos, "-o", tmp_path / "second", "--from", first, *common) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "1 step of 2 clips are too few to learn anything" in said
    assert "on held-out clips): keep the old weights" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "2", "--minutes", "1"), "--steps and --minutes were both given"),
        (("--resume",), "holds no run to go on with"),
        (("--resume", "--steps", "3"), "holds no run to go on with"),
        (("--minutes", "0"), "--minutes is 0"),
        (("--minutes", "-5"), "--minutes is -5"),
        (("--minutes", "nan"), "--minutes is nan"),
        (("--steps", "0"), "steps is 0"),
        (("--set", "steps.x=3"), "steps has no part 'x'"),
        (("--set", "view_px=400"), "view_px is 400 and clips.crop_px 168"),
        (("--set", "walk.dropout=0"), "did you mean 'walks'"),
        (("--preset", "tiny"), "there is no train preset 'tiny'"),
    ],
)
def test_mistakes_are_told_in_one_line(videos, tmp_path, capsys, words, message):
    assert run("train", videos, "-o", tmp_path / "run", *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_without_videos_is_refused(tmp_path, capsys):
    assert run("train", tmp_path, "-o", tmp_path / "run", "--steps", "1") == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_minutes_become_steps(videos, tiny, tmp_path, capsys):
    assert run("train", videos, "-o", tmp_path / "run", "--minutes", 0.02, "--set", *tiny) == 0
    assert "steps take about 0.02 minutes here" in capsys.readouterr().out


def test_minutes_are_refused_to_several_processes(videos, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("train", videos, "-o", tmp_path / "run", "--minutes", 1) == 2
    assert "give the number of steps with --steps" in capsys.readouterr().err


def test_videos_that_cannot_be_used_are_named(videos, tiny, tmp_path, capsys):
    corpus = tmp_path / "corpus"
    shutil.copytree(videos, corpus)
    (corpus / "torn.mp4").write_bytes(b"not a film")
    assert run("train", corpus, "-o", tmp_path / "run", "--steps", 1, "--set", *tiny) == 0
    assert "1 of 9 videos cannot be used and are left out" in capsys.readouterr().err
    assert "torn.mp4" in (tmp_path / "run" / "index.jsonl").read_text()
