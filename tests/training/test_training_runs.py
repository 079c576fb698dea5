"""Whole runs: they train, can be killed anywhere, and give the same weights when resumed."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from small_runs import without_times
from timecycle.config import preset_names, train_config
from timecycle.errors import OutputError, SettingsError, VideoError
from timecycle.model.registry import load_encoder
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.model.weights import hash_state, load_weights, read_card
from timecycle.training import record, trainer
from timecycle.training.record import load_newest, read_journal, read_settings
from timecycle.training.step import State
from timecycle.training.trainer import TrainingResult, train

# For laws of settings, records and folders, which know nothing of the objective.
one_objective = pytest.mark.parametrize("config", ["walks"], indirect=True)


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Undisturbed runs, by objective."""
    done = {}

    def run(videos, config):
        if config.objective not in done:
            folder = tmp_path_factory.mktemp(f"whole-{config.objective}")
            done[config.objective] = train(videos, folder, config)
        return done[config.objective]

    return run


def test_run_writes_usable_weights_a_journal_and_pictures(videos, config, whole):
    done = whole(videos, config)
    assert isinstance(done, TrainingResult)
    encoder = load_encoder(str(done.weights))
    assert encoder.encode(torch.zeros(64, 64, 3, dtype=torch.uint8).numpy()).cells.shape == (8, 8, 256)
    journal = read_journal(done.folder)
    assert [line["step"] for line in journal] == [1, 2, 3, 4, 5, 6]
    names = {"walks": {"walk", "same_frame"}, "cycles": {"long", "skip", "inlier", "similarity"}}[config.objective]
    assert all({"total", "gradient_norm"} | names <= set(line) for line in journal)
    assert "held_out_warp_accuracy" in journal[3]
    assert (done.folder / "pictures" / "00000004.png").stat().st_size > 1000
    record = json.loads((done.folder / "train.json").read_text())
    assert record["config"]["objective"] == config.objective
    card = json.loads((done.folder / "weights.json").read_text())
    assert "unlabelled videos, 6 steps" in card["trained_on"]


class Killed(BaseException):
    """Stands for a kill of the process at any point."""


@pytest.mark.parametrize("point", ["computing", "inside a save", "after a save"])
def test_killed_and_resumed_run_gives_the_same_bytes(videos, config, whole, tmp_path, monkeypatch, point):
    calls = {"steps": 0, "saves": 0}
    advance, write = State.advance, record.atomic_write

    def stop_while_computing(self, model, micro_batches):
        calls["steps"] += 1
        if point == "computing" and calls["steps"] == 4:
            raise Killed
        return advance(self, model, micro_batches)

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

    saved = record.save_checkpoint
    with monkeypatch.context() as patched:
        patched.setattr(State, "advance", stop_while_computing)
        patched.setattr(record, "atomic_write", stop_while_saving)
        if point == "after a save":
            patched.setattr(trainer, "save_checkpoint", stop_after_saving)
        with pytest.raises(Killed):
            train(videos, tmp_path, config)
    assert not (tmp_path / "weights.safetensors").exists()
    train(videos, tmp_path, config, resume=True)
    undisturbed = whole(videos, config).folder
    assert weights(tmp_path) == weights(undisturbed)
    assert without_times(tmp_path) == without_times(undisturbed)


def test_damaged_checkpoint_is_skipped(videos, config, whole, tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(trainer._Run, "_finish", lambda self, before: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            train(videos, tmp_path, config)
    newest = sorted((tmp_path / "checkpoints").glob("*.ckpt"))[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    train(videos, tmp_path, config, resume=True)
    assert "step-00000006.ckpt is damaged" in caplog.text
    assert weights(tmp_path) == weights(whole(videos, config).folder)


@pytest.mark.parametrize(
    "change",
    [{"ema": None}, {"learner": {}}, {"optimizer": {}}, {"step": "two"}, {"step": -1}, {"skipped": None}],
    ids=lambda change: next(iter(change)),
)
def test_checkpoint_with_other_content_is_refused(videos, config, whole, change):
    """The checksum is right: torch itself raises nearly anything."""
    saved = load_newest(whole(videos, config).folder / "checkpoints")
    settings = dataclasses.replace(config, precision=saved["config"]["precision"])
    state = State.fresh(random_resnet(config.encoder, seed=0), settings)
    with pytest.raises(OutputError, match=r"the checkpoint does not fit this run: .*; start a new run"):
        state.restore(saved | change)
    with pytest.raises(OutputError, match="other settings"):
        state.restore({})


def test_checkpoint_with_a_strange_head_is_skipped(tmp_path):
    for head in ("[1]", "[" * 100_000, '{"bytes": {}}'):
        (tmp_path / "step-00000001.ckpt").write_text(f"{head}\n")
        with pytest.raises(OutputError, match=r"no checkpoint in .* can be read"):
            load_newest(tmp_path)


def test_strange_lines_of_a_journal_are_skipped(tmp_path):
    lines = [
        b'{"step": 1, "total": 2.0}',
        b"\xff\xfe",
        b"[1]",
        b'{"step": "x"}',
        b"[" * 100_000,
        b'{"step": 2}',
        b'{"st',
    ]
    (tmp_path / "journal.jsonl").write_bytes(b"\n".join(lines))
    assert [line["step"] for line in read_journal(tmp_path)] == [1, 2]


@pytest.mark.parametrize("record", ['{"config": [], "from_sha256": null}', "[" * 100_000, "[]", "1"])
def test_strange_record_of_a_run_is_refused(tmp_path, record):
    (tmp_path / "train.json").write_text(record)
    with pytest.raises(OutputError, match="holds no run to resume"):
        read_settings(tmp_path)


@one_objective
def test_run_and_checkpoint_of_another_version_are_refused(videos, config, tmp_path):
    train(videos, tmp_path, dataclasses.replace(config, steps=1))
    record, checkpoints = tmp_path / "train.json", tmp_path / "checkpoints"
    fields = json.loads(record.read_text())
    (path,) = checkpoints.iterdir()
    head, _, content = path.read_bytes().partition(b"\n")
    for version in (None, 0, 2):
        other = {} if version is None else {"timecycle_training": version}
        record.write_text(json.dumps({name: fields[name] for name in fields if name != "timecycle_training"} | other))
        with pytest.raises(OutputError, match=r"the run in .* is of another version of timecycle; train again"):
            train(videos, tmp_path, config, resume=True)
        about = json.loads(head)
        del about["timecycle_checkpoint"]
        other = {} if version is None else {"timecycle_checkpoint": version}
        path.write_bytes(json.dumps(about | other).encode() + b"\n" + content)
        with pytest.raises(OutputError, match=r"the checkpoint .* is of another version of timecycle; train again"):
            load_newest(checkpoints)


def test_two_checkpoints_are_kept(videos, config, whole):
    kept = sorted(path.name for path in (whole(videos, config).folder / "checkpoints").iterdir())
    assert kept == ["step-00000004.ckpt", "step-00000006.ckpt"]


def test_numbers_of_workers_and_of_frames_in_memory_do_not_change_the_weights(videos, config, whole, tmp_path):
    train(videos, tmp_path / "none", dataclasses.replace(config, workers=0, frame_cache_gb=0))
    train(videos, tmp_path / "three", dataclasses.replace(config, workers=3))
    assert weights(tmp_path / "none") == weights(tmp_path / "three") == weights(whole(videos, config).folder)


def test_batch_in_micro_batches_trains(videos, config, tmp_path):
    done = train(videos, tmp_path, dataclasses.replace(config, accumulate=2, steps=2))
    assert done.weights is not None


def test_initial_weights_are_scored_before_and_after(videos, config, whole, tmp_path):
    start = load_weights(whole(videos, config).weights)
    done = train(videos, tmp_path, dataclasses.replace(config, steps=2), start=start)
    assert done.before is not None
    assert done.after is not None


@one_objective
def test_card_has_the_settings_of_the_trained_model(videos, config, tmp_path):
    request = ResNetConfig(architecture="resnet50", padding="zeros")
    start = random_resnet(ResNetConfig(padding="reflect", head_channels=32), seed=1)
    old = hash_state(start.state_dict())
    done = train(videos, tmp_path, dataclasses.replace(config, encoder=request, steps=1), start=start)
    assert read_card(done.weights).encoder == start.config
    assert load_weights(done.weights).config == start.config
    assert trainer.read_settings(tmp_path)["encoder"] == dataclasses.asdict(start.config)
    assert hash_state(start.state_dict()) == old, "the given model is not changed"


def test_run_from_weights_is_resumed_without_them(videos, config, tmp_path, monkeypatch):
    start = random_resnet(config.encoder, seed=1)
    train(videos, tmp_path / "whole", config, start=start)
    stop_after(monkeypatch, 3)
    with pytest.raises(Killed):
        train(videos, tmp_path / "cut", config, start=start)
    monkeypatch.undo()
    done = train(videos, tmp_path / "cut", config, resume=True)
    assert done.before is not None
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    with pytest.raises(OutputError, match="started with another from_sha256"):
        train(videos, tmp_path / "cut", config, start=random_resnet(config.encoder, seed=2), resume=True)


def stop_after(monkeypatch, steps):
    """Kill a run before the step after `steps`."""
    advance = State.advance

    def stopping(self, model, micro_batches):
        if self.step == steps:
            raise Killed
        return advance(self, model, micro_batches)

    monkeypatch.setattr(State, "advance", stopping)


@one_objective
def test_new_videos_do_not_change_a_resumed_run(videos, config, whole, tmp_path, monkeypatch):
    corpus, warnings = tmp_path / "corpus", []
    shutil.copytree(videos, corpus)
    stop_after(monkeypatch, 3)
    with pytest.raises(Killed):
        train(corpus, tmp_path / "run", config)
    monkeypatch.undo()
    index = (tmp_path / "run" / "index.jsonl").read_bytes()
    for name in ("a_new_one.mp4", "world3b.mp4", "zebra.mp4"):
        shutil.copy(videos / "world0.mp4", corpus / name)
    (corpus / "torn.mp4").write_bytes(b"not a video")
    train(corpus, tmp_path / "run", config, resume=True, callbacks=trainer.Callbacks(warning=warnings.append))
    assert (tmp_path / "run" / "index.jsonl").read_bytes() == index
    assert "4 videos added after the run began" in warnings[0]
    undisturbed = whole(videos, config).folder
    assert weights(tmp_path / "run") == weights(undisturbed)
    assert without_times(tmp_path / "run") == without_times(undisturbed)


@one_objective
def test_changed_and_removed_videos_are_named_when_a_run_is_resumed(videos, config, tmp_path, monkeypatch):
    corpus, warnings = tmp_path / "corpus", []
    shutil.copytree(videos, corpus)
    stop_after(monkeypatch, 1)
    with pytest.raises(Killed):
        train(corpus, tmp_path / "run", config)
    monkeypatch.undo()
    (corpus / "world5.mp4").unlink()
    train(corpus, tmp_path / "run", config, resume=True, callbacks=trainer.Callbacks(warning=warnings.append))
    assert "1 video changed or removed since the run began, for example world5.mp4" in warnings[0]


@one_objective
@pytest.mark.parametrize(("native", "picked"), [(True, "bf16"), (False, "fp32")])
def test_auto_precision_is_bf16_only_if_native_and_a_run_keeps_its_choice(
    videos, config, tmp_path, monkeypatch, native, picked
):
    config = dataclasses.replace(config, precision="auto", steps=2)
    monkeypatch.setattr("timecycle.training.settings.supports_bf16", lambda: native)
    train(videos, tmp_path / "auto", config)
    assert trainer.read_settings(tmp_path / "auto")["precision"] == picked
    train(videos, tmp_path / "given", dataclasses.replace(config, precision=picked))
    assert weights(tmp_path / "auto") == weights(tmp_path / "given")
    monkeypatch.setattr("timecycle.training.settings.supports_bf16", lambda: not native)
    (tmp_path / "auto" / "weights.safetensors").unlink()
    for path in (tmp_path / "auto" / "checkpoints").iterdir():
        path.unlink()
    train(videos, tmp_path / "auto", config, resume=True)  # perhaps on another machine
    assert weights(tmp_path / "auto") == weights(tmp_path / "given")


@pytest.mark.parametrize("name", preset_names("train"))
def test_no_preset_sets_a_precision_that_may_be_emulated(name):
    assert train_config(name).precision in ("auto", "fp32")


@one_objective
def test_run_that_failed_before_saving_does_not_block_its_folder(videos, config, whole, tmp_path, monkeypatch):
    stop_after(monkeypatch, 1)
    with pytest.raises(Killed):
        train(videos, tmp_path, dataclasses.replace(config, seed=4))
    monkeypatch.undo()
    train(videos, tmp_path, config)
    assert weights(tmp_path) == weights(whole(videos, config).folder)


@one_objective
def test_missing_videos_leave_an_earlier_run_untouched(videos, config, tmp_path):
    train(videos, tmp_path / "run", dataclasses.replace(config, steps=1))
    before = weights(tmp_path / "run")
    with pytest.raises(VideoError, match="there is no folder or video"):
        train(tmp_path / "none", tmp_path / "run", config, overwrite=True)
    assert weights(tmp_path / "run") == before
    assert train(videos, tmp_path / "run", dataclasses.replace(config, steps=1), resume=True).steps == 1


def test_used_folder_and_other_settings_are_refused(videos, config, whole):
    folder = whole(videos, config).folder
    with pytest.raises(OutputError, match="already holds a run; pass --resume"):
        train(videos, folder, config)
    with pytest.raises(OutputError, match="was started with another config"):
        train(videos, folder, dataclasses.replace(config, seed=5), resume=True)
    with pytest.raises(OutputError, match="holds no run to resume"):
        train(videos, folder / "empty", config, resume=True)


def test_steps_without_a_finite_gradient_are_skipped_and_then_refused(videos, config, tmp_path, monkeypatch):
    forward = trainer.State.advance

    def poisoned(self, model, micro_batches):
        for parameter in self.learner.parameters():
            parameter.data.fill_(float("nan"))
        return forward(self, model, micro_batches)

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


def test_sigterm_saves_and_stops_the_run(videos, tiny, tmp_path):
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
        output, _ = run.communicate(timeout=30)
    assert run.returncode == 0
    steps = int(output.split()[-1])
    assert "weights None" in output
    assert (tmp_path / "checkpoints" / f"step-{steps:08d}.ckpt").exists()


def test_settings_that_the_device_does_not_have_are_refused(videos, config, tmp_path):
    with pytest.raises(SettingsError, match=r"precision is fp16, .* CUDA devices only.*bf16 or fp32"):
        train(videos, tmp_path / "fp16", dataclasses.replace(config, precision="fp16"), device="cpu")
    with pytest.raises(SettingsError, match="torch finds no device 'mps'"):
        train(videos, tmp_path / "mps", config, device="mps")
    assert not (tmp_path / "fp16").exists()
