"""`timecycle benchmark`: what it measures, the table it prints, and devices that are missing, small or simulated."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import timecycle
from fake_device import OnDevice, fake_device
from small_runs import TINY
from timecycle.cli import main
from timecycle.config import propagate_config
from timecycle.errors import SettingsError
from timecycle.labels import Masks
from timecycle.model.registry import load_encoder
from timecycle.propagation.propagator import Propagator
from timecycle.speed.table import SpeedRow, SpeedTable, row_of
from timecycle.speed.tasks import measure_matching, measure_training, memory_indices
from timecycle.speed.timing import Timing, time_repeats
from timecycle.synthetic import WorldConfig, make_world
from timecycle.training.step import State

CPU = torch.device("cpu")
TABLE = SpeedTable(
    device="cuda",
    device_name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    processor="AMD Ryzen Threadripper PRO 7995WX 96-Cores and a long name that needs a second line",
    threads=192,
    torch="2.13.0+cu130",
    timecycle="0.1.0",
    commit="de582c38ee909aeeb9099a17bdf8f861d71fa976 with changes",
    kernel="avx512",
    encoder="timecycle-v2",
    tf32=True,
    peak_process_bytes=12_345 * 2**20,
    rows=(
        row_of("encode", "720p", "bf16", Timing((0.0021, 0.002, 0.0025), 123 * 2**20), items=1),
        row_of("match", "480p", "fp32", Timing((12.34, 12.2, 13.0), 123_456 * 2**20), items=1, path="kernel"),
        row_of("train", "small-cycles", "fp32", None, items=8),
    ),
)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def printed_rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(set(cell) <= set("-:") for cell in cells(lines[1]))
    assert len({len(line) for line in lines}) == 1  # a table that is read without being rendered, too
    return [cells(line) for line in (lines[0], *lines[2:])]


# The table


def test_the_table_is_markdown_in_80_columns():
    text = str(TABLE)
    assert max(map(len, text.splitlines())) <= 80
    assert printed_rows(text) == [
        ["", "precision", "ms", "range", "per s", "MiB"],
        ["encode 720p", "bf16", "2.10", "2.00 to 2.50", "476", "123"],
        ["match 480p, kernel", "fp32", "12,340", "12,200 to 13,000", "0.08", "123,456"],
        ["train small-cycles", "fp32", "-", "no memory", "-", "-"],
    ]
    head = text.partition("\n\n")[0].replace("\n  ", " ").splitlines()
    assert head == [
        "- device: cuda, NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        f"- processor: {TABLE.processor}, 192 threads",
        "- timecycle 0.1.0, commit de582c38ee90 with changes, torch 2.13.0+cu130",
        "- encoder: timecycle-v2; kernel: avx512",
        "- fp32 convolutions may use TF32",
        "- peak memory of the process: 12,345 MiB",
    ]


def test_a_table_of_the_processor_names_it_once_and_has_no_memory_of_a_device():
    row = row_of("encode", "240p", "fp32", Timing((0.03, 0.02, 0.04)), items=1)
    text = str(
        dataclasses.replace(TABLE, device="cpu", device_name="X", processor="X", threads=1, tf32=False, rows=[row])
    )
    assert text.startswith("- device: cpu, X, 1 thread\n- timecycle")
    assert "TF32" not in text
    assert printed_rows(text)[0][-1] == "per s"


# What is measured


@pytest.mark.slow  # steps of the training presets as they are
def test_everything_is_measured_on_the_processor(capsys):
    assert main(["benchmark", "--device", "cpu", "--seconds", "0.05"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    rows = printed_rows(printed)
    names = [row[0].replace("kernel", "torch") for row in rows[1:] if row[1] == "fp32"]
    assert names == ["encode 240p", "encode 480p", "match 480p, torch", "train small", "train small-cycles"]
    for _, _, milliseconds, spread, per_second in rows[1:]:
        low, high = (float(end.replace(",", "")) for end in spread.split(" to "))
        assert 0 < low <= float(milliseconds.replace(",", "")) <= high
        assert float(per_second.replace(",", "")) > 0


def test_json_has_the_numbers_of_the_table(capsys):
    words = ["benchmark", "--device", "cpu", "--encoder", "rgb", "--only", "match", "encode", "--seconds", "0.02"]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert [(row["task"], row["subject"]) for row in result["rows"]] == [
        *(("encode", "240p"), ("encode", "480p"), ("match", "480p"))
    ]
    for row in result["rows"]:
        assert row.keys() == {field.name for field in dataclasses.fields(SpeedRow)}
        assert row["repeats"] >= 3
        assert row["min_seconds"] <= row["seconds"] <= row["max_seconds"]
        assert row["per_second"] == pytest.approx(1 / row["seconds"])
    assert [row[1] for row in printed_rows(printed.err)[1:]] == ["fp32"] * 3  # one precision: rgb has no other


def test_the_references_are_those_of_a_full_memory():
    config = propagate_config("default", ["image_size_px=64"])
    *earlier, last = memory_indices(config)
    world = make_world(WorldConfig(height_px=64, width_px=64, frames=last))
    propagator = Propagator(load_encoder("rgb"), config)
    for t, image in enumerate(world.frames()):
        propagator.step(image, Masks(world.mask(0)) if t == 0 else None)
    assert [frame.index for frame in propagator.memory] == earlier
    assert len(earlier) == 11


def test_a_warm_up_is_not_counted_and_three_repeats_are():
    calls = []

    def work():
        calls.append(time.sleep(0 if calls else 0.2))

    timing = time_repeats(work, CPU, budget_seconds=1e-9)
    assert len(timing.seconds) == 3
    assert len(calls) == 4
    assert max(timing.seconds) < 0.2
    assert timing.peak_bytes is None


def test_repeats_fill_the_budget():
    timing = time_repeats(lambda: time.sleep(0.01), CPU, budget_seconds=0.2)
    assert sum(timing.seconds) >= 0.2
    assert 4 <= len(timing.seconds) <= 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the figure begins with the parent's")
def test_the_peak_memory_of_a_process_is_not_that_of_the_process_that_started_it():
    here = bytearray(b"1") * (1 << 30)
    program = "from timecycle.speed.timing import peak_process_bytes; print(peak_process_bytes())"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 50 << 20 < int(told.stdout) < len(here)


def test_what_does_not_fit_into_the_memory_is_reported(monkeypatch):
    def advance(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(State, "advance", advance)
    row = measure_training("small", "fp32", CPU, budget_seconds=0.01, overrides=TINY)
    assert (row.seconds, row.per_second, row.repeats) == (None, None, 0)


@pytest.mark.parametrize("preset", ["small", "small-cycles", "bundled"])
def test_clips_per_second_are_those_of_the_batch(preset):
    row = measure_training(preset, "fp32", CPU, budget_seconds=0.01, overrides=TINY)
    assert row.per_second == pytest.approx(2 / row.seconds)
    assert (row.name, row.repeats) == (f"train {preset}", 3)


# Devices


@pytest.mark.slow  # every simulated operation takes a millisecond
def test_matching_and_training_are_measured_on_a_device():
    with fake_device() as (device, waits):
        match = measure_matching(OnDevice(device), "fp32", budget_seconds=0.01)
        train = measure_training("small", "fp32", device, budget_seconds=0.01, overrides=TINY)
    assert match.name == "match 480p, torch"
    assert train.repeats >= 3
    assert waits.keys() == {"ties", "finite gradient"}


def test_a_missing_device_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["benchmark", "--device", "cuda"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: torch finds no device 'cuda' on this machine\n  try: use --device auto")


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_budget_that_is_no_time_is_refused(seconds):
    with pytest.raises(SettingsError, match="seconds is"):
        timecycle.benchmark(seconds=seconds)


@pytest.mark.parametrize("only", [[], ["encod"]])
def test_only_what_there_is_can_be_measured(only):
    with pytest.raises(SettingsError, match="measure"):
        timecycle.benchmark(only=only)


def test_ctrl_c_ends_it_in_a_line():
    words = [sys.executable, "-m", "timecycle", "benchmark", "--encoder", "rgb", "--only", "encode", "--seconds", "99"]
    path = str(Path(timecycle.__file__).parents[1])
    started = subprocess.Popen(
        words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    first = started.stderr.readline()
    started.send_signal(signal.SIGINT)
    rest, errors = started.communicate(timeout=60)
    assert first.startswith("measuring")
    assert (started.returncode, rest) == (130, "")
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
