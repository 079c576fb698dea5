"""Usable cores, bf16 support and the background writer: order, bounded queue and failures."""

import os
import threading
import time

import pytest

from timecycle import concurrency
from timecycle.concurrency import BackgroundWriter


@pytest.mark.parametrize(
    ("files", "expected"),
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
def test_usable_cores_respect_the_quota_of_the_container(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(concurrency, "_CGROUPS", tmp_path)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert concurrency.usable_cores() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16\n", True),
        ("flags\t\t: fpu amx_tile amx_bf16\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("flags\t\t: fpu avx512f\n", False),
        ("", False),
    ],
)
def test_bf16_support_is_read_from_the_cpu_flags(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(concurrency, "_CPU_INFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(text)
    assert concurrency.supports_bf16() is expected


def test_bf16_is_unsupported_where_cpu_flags_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(concurrency, "_CPU_INFO", tmp_path / "missing")
    assert not concurrency.supports_bf16()


# The background writer


def test_calls_run_in_order_on_one_other_thread():
    done = []
    with BackgroundWriter(2) as writer:
        for i in range(50):
            writer(lambda i=i: done.append((i, threading.get_ident())))
    assert [i for i, _ in done] == list(range(50))
    assert len({thread for _, thread in done} - {threading.get_ident()}) == 1


def test_the_caller_waits_while_the_queue_is_full():
    gate, done = threading.Event(), []
    with BackgroundWriter(2) as writer:
        writer(gate.wait)
        threading.Timer(0.2, gate.set).start()
        began = time.monotonic()
        for i in range(4):
            writer(lambda i=i: done.append(i))
        assert time.monotonic() - began > 0.1
    assert done == [0, 1, 2, 3]


def test_flush_waits_for_all_calls():
    done = []
    with BackgroundWriter(8) as writer:
        writer(lambda: time.sleep(0.1))
        writer(lambda: done.append(1))
        writer.flush()
        assert done == [1]


def fail():
    raise OSError("the disk is full")


def test_a_failure_is_raised_at_the_next_call_and_later_calls_are_skipped():
    done = []

    def continue_after_failure():
        with BackgroundWriter(8) as writer:
            writer(fail)
            writer(lambda: done.append(1))
            writer.flush()

    with pytest.raises(OSError, match="the disk is full"):
        continue_after_failure()
    assert done == []


def test_a_failure_of_the_last_call_is_raised_at_the_end():
    with pytest.raises(OSError, match="the disk is full"), BackgroundWriter(8) as writer:
        writer(fail)


def test_an_error_of_the_caller_drops_waiting_calls():
    done, gate = [], threading.Event()

    def leave_early():
        with BackgroundWriter(8) as writer:
            writer(gate.wait)
            writer(lambda: done.append(1))
            threading.Timer(0.1, gate.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        leave_early()
    assert done == []
