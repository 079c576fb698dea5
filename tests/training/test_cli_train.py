"""`timecycle train` as a person meets it."""

import shutil

import pytest

from timecycle.cli import main


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
    assert run("train", videos, "-o", tmp_path / "run", "--resume") == 0  # nothing is left to do


def test_going_on_from_weights_ends_with_a_verdict(videos, tiny, tmp_path, capsys):
    common = ("--steps", 1, "--set", *tiny)
    assert run("train", videos, "-o", tmp_path / "first", *common) == 0
    first = tmp_path / "first" / "weights.safetensors"
    assert run("train", videos, "-o", tmp_path / "second", "--from", first, *common) == 0
    assert "on held-out clips" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "2", "--minutes", "1"), "--steps and --minutes were both given"),
        (("--resume",), "holds no run to go on with"),
        (("--resume", "--steps", "3"), "--steps and --resume were both given"),
        (("--set", "walk.dropout=0"), "did you mean 'walks'"),
        (("--preset", "tiny"), "there is no train preset 'tiny'"),
    ],
)
def test_mistakes_are_told_in_one_line(videos, tmp_path, capsys, words, message):
    assert run("train", videos, "-o", tmp_path / "run", *words) == 2
    assert message in capsys.readouterr().err


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
