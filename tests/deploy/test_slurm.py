"""The scripts for Slurm: options that sbatch knows, and their real commands; only Slurm and Apptainer have stand-ins.

The stand-in of srun starts a command once for every node of the job, all on this machine; that of apptainer runs it
without a container.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from images import DEPLOY, IMAGES, free_port, images_of

from made_videos import make_manifest
from timecycle.training.record import read_journal

SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sbatch"))

# What sbatch takes, and which values; only options that the scripts use.
OPTIONS = {
    "array": r"\d+-\d+",
    "cpus-per-task": r"[1-9]\d*",
    "dependency": r"singleton",
    "gpus-per-node": r"[1-9]\d*",
    "job-name": r"[\w-]+",
    "mem": r"\d+[KMGT]",
    "nodes": r"[1-9]\d*",
    "ntasks": r"[1-9]\d*",
    "ntasks-per-node": r"[1-9]\d*",
    "open-mode": r"append|truncate",
    "output": r"(%[xjAa]|[\w.-])+",
    "requeue": r"",
    "signal": r"(B:)?[A-Z0-9]+@\d+",
    "time": r"(\d+-)?\d+:\d\d:\d\d",
}

SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
if [ "$1" != apptainer ]; then echo "srun was to start $1" >&2; exit 2; fi
node=0
pids=
while [ $node -lt "${SLURM_JOB_NUM_NODES:-1}" ]; do
  SLURM_NODEID=$node "$@" &
  pids="$pids $!"
  node=$((node + 1))
done
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
"""
APPTAINER = """#!/bin/sh
[ "$1" = exec ] || exit 2
shift
[ "$1" = --nv ] && shift
echo "image $1"
shift
exec "$@"
"""
PROGRAMS = {
    "srun": SRUN,
    "apptainer": APPTAINER,
    "scontrol": '#!/bin/sh\n[ "$1 $2" = "show hostnames" ] && echo localhost\n',
    "timecycle": f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m timecycle "$@"\n',
    "torchrun": f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"\n',
}


def options(path: Path) -> dict[str, str]:
    """The options in the #SBATCH lines, which sbatch reads up to the first line of shell."""
    found = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            assert name not in found, name
            found[name] = value
    return found


@pytest.fixture
def programs(tmp_path) -> Path:
    """A folder with the stand-ins, and with our programs as they are in the image."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def start(script: str, words: list[object], programs: Path, **variables: object) -> subprocess.Popen[str]:
    """Start a script as a job of Slurm would, in the parent of the stand-ins' folder; it leads a process group."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    environment |= {name: str(value) for name, value in variables.items()}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        ["bash", str(DEPLOY / "slurm" / script), *map(str, words)],
        cwd=programs.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def submit(script: str, words: list[object], programs: Path, **variables: object) -> tuple[int, str, str]:
    """Run a script to its end; return its exit code and what it printed."""
    job = start(script, words, programs, **variables)
    out, err = job.communicate(timeout=280)
    return job.returncode, out, err


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_sbatch_knows_every_option(path):
    text = path.read_text()
    found = options(path)
    assert len(found) == text.count("\n#SBATCH"), "an option stands below the first command, where sbatch ignores it"
    for name, value in found.items():
        assert re.fullmatch(OPTIONS[name], value), f"--{name}={value}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_is_faultless_shell_and_names_our_image(path):
    assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    variant = "cuda" if "gpus-per-node" in options(path) else "cpu"
    assert images_of(path.read_text()) == {IMAGES[variant]}


def test_array_labels_every_video_once(programs, tmp_path):
    make_manifest(tmp_path, 3, frames=3)
    words = ["videos.csv", "out", "--preset", "fast", "--set", "image_size_px=64", "--encoder", "rgb"]
    array = {"SLURM_ARRAY_TASK_MIN": 0, "SLURM_ARRAY_TASK_MAX": 1, "SLURM_ARRAY_TASK_COUNT": 2}
    for task in (0, 1):
        code, out, err = submit("bulk.sbatch", words, programs, **array, SLURM_ARRAY_TASK_ID=task)
        assert code == 0, err
        assert f"image docker://{IMAGES['cpu']}" in out
    counts = [json.loads((tmp_path / "out" / f"summary-{task}-of-2.json").read_text())["videos"] for task in (0, 1)]
    assert counts == [2, 1]
    assert {path.stem for path in (tmp_path / "out" / "records").iterdir()} == {"v0", "v1", "v2"}


def test_array_with_gaps_is_refused(programs):
    array = {"SLURM_ARRAY_TASK_MIN": 1, "SLURM_ARRAY_TASK_MAX": 4, "SLURM_ARRAY_TASK_COUNT": 4}
    code, _, err = submit("bulk.sbatch", ["videos.csv", "out"], programs, **array, SLURM_ARRAY_TASK_ID=1)
    assert code == 2
    assert "must be 0-N" in err


@pytest.mark.slow  # two nodes under torchrun, twice: each process imports torch and trains
def test_preempted_training_on_two_nodes_is_resumed_by_submitting_it_again(programs, tmp_path, videos, tiny):
    settings = ["--device", "cpu", "--set", *tiny, "objective=walks", "precision=fp32", "workers=0", "steps=24"]
    words = [videos, "run", *settings]
    nodes = {"SLURM_JOB_NUM_NODES": 2, "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_PER_TASK": 1}
    journal = tmp_path / "run" / "journal.jsonl"

    job = start("train.sbatch", words, programs, **nodes, SLURM_JOB_ID=7, RENDEZVOUS_PORT=free_port())
    wait_until(lambda: job.poll() is not None or (journal.exists() and journal.read_text().count("\n") >= 2))
    assert job.poll() is None, job.communicate()
    os.killpg(job.pid, signal.SIGTERM)  # as Slurm does, 120 seconds before the end
    wait_until(lambda: not group_lives(job.pid))
    job.communicate()
    before = [line["step"] for line in read_journal(tmp_path / "run")]
    assert before == list(range(1, len(before) + 1))
    assert len(before) < 24
    assert not (tmp_path / "run" / "weights.safetensors").exists()

    code, out, err = submit("train.sbatch", words, programs, **nodes, SLURM_JOB_ID=8, RENDEZVOUS_PORT=free_port())
    assert code == 0, err[-3000:]
    assert f"image docker://{IMAGES['cuda']}" in out
    assert [line["step"] for line in read_journal(tmp_path / "run")] == list(range(1, 25))
    assert (tmp_path / "run" / "weights.safetensors").exists()


def wait_until(holds: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def group_lives(group: int) -> bool:
    """Whether a process of the group has not ended yet."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            state, _, its_group, *_ = path.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state != "Z":
                return True
    return False
