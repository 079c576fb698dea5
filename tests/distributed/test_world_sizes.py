"""Processes under torchrun: whatever the world size, every sample is visited once and the run is resumed."""

import os
import subprocess
import sys

import pytest
import torch

from timecycle.training.record import read_journal

PROGRAM = """
import os, signal, sys
from pathlib import Path
import torch
from timecycle.config import train_config
from timecycle.training import trainer
from timecycle.training.corpus import Examples
from timecycle.training.step import State

videos, folder, log, last, settings = sys.argv[1:6]
make = Examples.__call__

def noted(self, epoch, position):
    with open(log, "a") as file:
        file.write(f"{epoch} {position}\\n")
    return make(self, epoch, position)

Examples.__call__ = noted
advance = State.advance

def with_gradients_saved(self, model, batches):
    result = advance(self, model, batches)
    if self.step == 1 and os.environ.get("RANK", "0") == "0":
        gradients = {name: one.grad for name, one in self.learner.named_parameters() if one.grad is not None}
        torch.save(gradients, Path(folder, "gradients.pt"))
    return result

State.advance = with_gradients_saved

def show(progress):
    if progress.step == int(last):
        os.kill(os.getpid(), signal.SIGTERM)

config = train_config("small", settings.split())
begun = Path(folder, "train.json").exists()
done = trainer.train(Path(videos), Path(folder), config, resume=begun, callbacks=trainer.Callbacks(step=show))
"""


def run(world_size: int, *words) -> str:
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"] if world_size > 1 else []
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *launcher, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow  # starts five processes, each of which imports torch and trains
def test_changing_world_sizes_visit_every_sample_once(videos, tiny, tmp_path):
    program, log = tmp_path / "program.py", tmp_path / "samples.txt"
    program.write_text(PROGRAM)
    settings = " ".join((*tiny, "objective=walks", "steps=6", "precision=fp32", "workers=0"))
    for world_size, last in ((2, 2), (1, 4), (2, 6)):
        run(world_size, program, videos, tmp_path / "run", log, last, settings)
    assert (tmp_path / "run" / "weights.safetensors").exists()
    assert [line["step"] for line in read_journal(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    seen = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    count = 1 + max(position for _, position in seen)
    assert sorted(epoch * count + position for epoch, position in seen) == list(range(6 * 2))


@pytest.mark.slow  # starts three processes, each of which imports torch and trains
@pytest.mark.parametrize("objective", ["walks", "cycles"])
def test_one_process_and_two_have_the_same_gradient(videos, tiny, tmp_path, objective):
    """With frozen statistics of batch norm and without negatives from other clips, a clip depends on no other."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = (*tiny, f"objective={objective}", "steps=1", "precision=fp32", "workers=0", "batch=4", "accumulate=2")
    settings += ("batch_statistics=frozen", "walks.dropout=0.2", "walks.negatives=0", "copy_paste.most=2")
    for world_size in (1, 2):
        run(world_size, program, videos, tmp_path / str(world_size), tmp_path / "log", 1, " ".join(settings))
    one, two = (torch.load(tmp_path / str(world_size) / "gradients.pt") for world_size in (1, 2))
    assert one.keys() == two.keys()
    for name, gradient in one.items():
        assert float((gradient - two[name]).norm()) < 1e-3 * float(gradient.norm()), name  # rounding: 4e-5


@pytest.mark.slow  # starts two processes
def test_command_in_several_processes_prints_once(videos, tiny, tmp_path):
    words = ("train", videos, "-o", tmp_path / "run", "--steps", 2, "--set", *tiny)
    output = run(2, "-m", "timecycle", *words)
    assert output.count("weights:") == 1
    assert "to resume" not in output
