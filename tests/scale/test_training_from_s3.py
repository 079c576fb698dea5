"""Training from shards on a real S3 server: killed, with changing world sizes, and during a server outage."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import logged_training
from logged_training import samples
from small_runs import TINY
from timecycle.data.packing.pack import PackConfig, pack
from timecycle.data.packing.transcode import ClipFormat
from timecycle.training.record import read_journal

STEPS = 10
SETTINGS = (*TINY, "objective=walks", f"steps={STEPS}", "precision=fp32", "workers=1", "checkpoint_every=2")
SETTINGS = (*SETTINGS, "mixed_shards=2", "validate_every=100")
PROGRAM = Path(logged_training.__file__)


@pytest.fixture
def run(short_videos, bucket, tmp_path):
    """Start a training process; its first argument names its folder, cache and log of samples."""
    pack(short_videos, bucket, tmp_path / "work", PackConfig(clips=ClipFormat(short_side_px=48), shard_mb=0.005))

    def start(name: str, *, world_size: int = 1, last: int = 0) -> subprocess.Popen[str]:
        launcher = (
            ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"] if world_size > 1 else []
        )
        words = [bucket.name, tmp_path / name, tmp_path / "cache", tmp_path / f"{name}.txt", 10, last, 0.001]
        return subprocess.Popen(
            [sys.executable, *launcher, *map(str, (PROGRAM, *words, *SETTINGS))],
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors[-3000:]


def until(process: subprocess.Popen[str], step: int) -> None:
    for line in process.stdout:
        if int(line) >= step:
            return
    raise AssertionError(process.stderr.read()[-3000:])


@pytest.mark.slow  # seven training processes, one after the other
def test_kills_world_sizes_and_server_outage_do_not_change_the_run(run, server, tmp_path):
    finish(run("whole"))
    expected = samples(tmp_path / "whole.txt")

    for step in (3, 7):
        process = run("killed")
        until(process, step)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    finish(run("killed"))

    for world_size, last in ((2, 4), (1, 6), (2, STEPS)):
        finish(run("worlds", world_size=world_size, last=last))

    shutil.rmtree(tmp_path / "cache")
    process = run("alone")
    until(process, 1)
    os.kill(process.pid, signal.SIGSTOP)  # before it has fetched everything
    server.stop()
    os.kill(process.pid, signal.SIGCONT)
    threading.Timer(6, server.start).start()
    finish(process)
    assert max(line["seconds"] for line in read_journal(tmp_path / "alone")) > 3  # it waited

    batch = 2
    count = 1 + max(position for _, position in expected)
    taken = {divmod(key, count) for key in range(STEPS * batch)}
    for name in ("killed", "worlds", "alone"):
        assert [line["step"] for line in read_journal(tmp_path / name)] == list(range(1, STEPS + 1))
        seen = samples(tmp_path / f"{name}.txt")
        assert {key: seen[key] for key in taken} == {key: expected[key] for key in taken}
    for name in ("killed", "alone"):
        whole, other = ((tmp_path / run / "weights.safetensors").read_bytes() for run in ("whole", name))
        assert other == whole
    assert len({expected[key] for key in taken if key[0] == 0}) == min(count, STEPS * batch)
