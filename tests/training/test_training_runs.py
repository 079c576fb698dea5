"""Whole runs: they learn, they can be killed anywhere, and they end with the same weights."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from kills import timeless
from timecycle.errors import OutputError, SettingsError
from timecycle.model.registry import load_encoder
from timecycle.model.weights import load_weights
from timecycle.training import checkpoint, trainer
from timecycle.training.journal import read_journal
from timecycle.training.state import State
from timecycle.training.trainer import Trained, train


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that nobody interrupted, by objective."""
    done = {}

    def run(videos, config):
        if config.objective not in done:
            folder = tmp_path_factory.mktemp(f"whole-{config.objective}")
            done[config.objective] = train(videos, folder, config)
        return done[config.objective]

    return run


def test_a_run_leaves_weights_that_carry_labels_a_journal_and_pictures(videos, config, whole):
    done = whole(videos, config)
    assert isinstance(done, Trained)
    encoder = load_encoder(str(done.weights))
    assert encoder.encode(torch.zeros(64, 64, 3, dtype=torch.uint8).numpy()).cells.shape == (8, 8, 256)
    journal = read_journal(done.folder)
    assert [line["step"] for line in journal] == [1, 2, 3, 4, 5, 6]
    names = {"walks": {"walk", "still"}, "cycles": {"long", "skip", "inlier", "similarity"}}[config.objective]
    assert all({"total", "gradient_norm"} | names <= set(line) for line in journal)
    assert "held_out_warp_accuracy" in journal[3]
    assert (done.folder / "pictures" / "00000004.png").stat().st_size > 1000
    record = json.loads((done.folder / "train.json").read_text())
    assert record["config"]["objective"] == config.objective
    card = json.loads((done.folder / "weights.json").read_text())
    assert "unlabelled videos, 6 steps" in card["trained_on"]


class Killed(BaseException):
    """Stands for the end of the process at any point."""


@pytest.mark.parametrize("point", ["computing", "inside a save", "after a save"])
def test_killed_anywhere_and_resumed_a_run_ends_with_the_same_bytes(
    videos, config, whole, tmp_path, monkeypatch, point
):
    calls = {"steps": 0, "saves": 0}
    advance, write = State.advance, checkpoint.atomic_write

    def stop_while_computing(self, model, parts):
        calls["steps"] += 1
        if point == "computing" and calls["steps"] == 4:
            raise Killed
        return advance(self, model, parts)

    def stop_while_saving(path):
        calls["saves"] += 1
        if point == "inside a save" and calls["saves"] == 2:
            (path.parent / f".{path.name}.part").write_bytes(b"half")
            raise Killed
        return write(path)

    def stop_after_saving(*words):
        saved(*words)
        calls["saves"] += 1
        if calls["saves"] == 2:
            raise Killed

    saved = checkpoint.save_checkpoint
    with monkeypatch.context() as patched:
        patched.setattr(State, "advance", stop_while_computing)
        patched.setattr(checkpoint, "atomic_write", stop_while_saving)
        if point == "after a save":
            patched.setattr(trainer, "save_checkpoint", stop_after_saving)
        with pytest.raises(Killed):
            train(videos, tmp_path, config)
    assert not (tmp_path / "weights.safetensors").exists()
    train(videos, tmp_path, config, resume=True)
    undisturbed = whole(videos, config).folder
    assert weights(tmp_path) == weights(undisturbed)
    assert timeless(tmp_path) == timeless(undisturbed)


def test_a_damaged_checkpoint_is_passed_over(videos, config, whole, tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(trainer._Run, "_finish", lambda self, before: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            train(videos, tmp_path, config)
    newest = sorted((tmp_path / "checkpoints").glob("*.ckpt"))[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    train(videos, tmp_path, config, resume=True)
    assert "step-00000006.ckpt is damaged" in caplog.text
    assert weights(tmp_path) == weights(whole(videos, config).folder)


def test_two_checkpoints_are_kept(videos, config, whole):
    kept = sorted(path.name for path in (whole(videos, config).folder / "checkpoints").iterdir())
    assert kept == ["step-00000004.ckpt", "step-00000006.ckpt"]


def test_the_number_of_workers_changes_nothing(videos, config, whole, tmp_path):
    train(videos, tmp_path / "none", dataclasses.replace(config, workers=0))
    train(videos, tmp_path / "three", dataclasses.replace(config, workers=3))
    assert weights(tmp_path / "none") == weights(tmp_path / "three") == weights(whole(videos, config).folder)


def test_a_batch_in_parts_learns_from_the_same_clips(videos, config, tmp_path):
    done = train(videos, tmp_path, dataclasses.replace(config, accumulate=2, steps=2))
    assert done.weights is not None


def test_weights_to_start_from_are_judged_before_and_after(videos, config, whole, tmp_path):
    start = load_weights(whole(videos, config).weights)
    done = train(videos, tmp_path, dataclasses.replace(config, steps=2), start=start)
    assert done.before is not None
    assert done.after is not None
    told = trainer.verdict(done.before, done.after)
    assert ("keep the old weights" in told) != ("use the new weights" in told)
    worse = dataclasses.replace(done.before, warp_accuracy=0.0)
    assert "no gain on held-out clips" in trainer.verdict(done.before, worse)
    better = dataclasses.replace(done.before, warp_accuracy=done.before.warp_accuracy + 0.1)
    assert "use the new weights" in trainer.verdict(done.before, better)


def test_a_used_folder_is_refused_and_so_are_other_settings(videos, config, whole):
    folder = whole(videos, config).folder
    with pytest.raises(OutputError, match="holds a run already; pass --resume"):
        train(videos, folder, config)
    with pytest.raises(OutputError, match="was started with another config"):
        train(videos, folder, dataclasses.replace(config, seed=5), resume=True)
    with pytest.raises(OutputError, match="holds no run to go on with"):
        train(videos, folder / "empty", config, resume=True)


def test_steps_without_a_finite_gradient_are_skipped_and_then_refused(videos, config, tmp_path, monkeypatch):
    forward = trainer.State.advance

    def poisoned(self, model, parts):
        for parameter in self.learner.parameters():
            parameter.data.fill_(float("nan"))
        return forward(self, model, parts)

    monkeypatch.setattr(State, "advance", poisoned)
    with pytest.raises(SettingsError, match=r"gradients of 20 steps in a row, up to 20, were not finite; lower optim"):
        train(videos, tmp_path, dataclasses.replace(config, steps=30))
    assert not list((tmp_path / "checkpoints").glob("*")) if (tmp_path / "checkpoints").exists() else True


PROGRAM = """
import sys
from pathlib import Path
from timecycle.config import train_config
from timecycle.training.trainer import train
settings = sys.argv[3].split()
done = train(Path(sys.argv[1]), Path(sys.argv[2]), train_config("small", settings), resume="resume" in sys.argv)
print("weights", done.weights, "steps", done.steps, flush=True)
"""


def test_asked_to_end_a_run_saves_and_leaves(videos, tiny, tmp_path):
    words = [
        sys.executable,
        "-c",
        PROGRAM,
        str(videos),
        str(tmp_path),
        " ".join((*tiny, "steps=5000", "precision=fp32")),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}) as run:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("checkpoints/*.ckpt")) and time.monotonic() < deadline:
            time.sleep(0.2)
        run.send_signal(signal.SIGTERM)
        said, _ = run.communicate(timeout=30)
    assert run.returncode == 0
    steps = int(said.split()[-1])
    assert "weights None" in said
    assert (tmp_path / "checkpoints" / f"step-{steps:08d}.ckpt").exists()
