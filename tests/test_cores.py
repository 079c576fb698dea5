"""Threads are counted by what the process may use, and bf16 by what the processor says."""

import os

import pytest

from timecycle import cores


@pytest.fixture
def bound(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_a_container_is_given_as_many_threads_as_it_may_use(bound, tmp_path, monkeypatch, files, wanted):
    monkeypatch.setattr(cores, "_CGROUPS", tmp_path)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores.usable_cores() == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16\n", True),
        ("flags\t\t: fpu amx_tile amx_bf16\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("flags\t\t: fpu avx512f\n", False),
        ("", False),
    ],
)
def test_bf16_is_what_the_processor_says(tmp_path, monkeypatch, text, wanted):
    monkeypatch.setattr(cores, "_PROCESSOR", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(text)
    assert cores.multiplies_bf16() is wanted


def test_where_nothing_is_said_of_the_processor_bf16_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "_PROCESSOR", tmp_path / "missing")
    assert not cores.multiplies_bf16()
