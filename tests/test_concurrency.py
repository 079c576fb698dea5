"""Usable cores, bf16 support, workers in advance and the background writer: order, bounded queues and failures."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle import concurrency
from timecycle.concurrency import BackgroundWriter, ordered, read_ahead, write_behind


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


# Results in order


def worker_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ordered")]


def pool(workers: int) -> ThreadPoolExecutor | None:
    return ThreadPoolExecutor(workers, "ordered") if workers else None


def square_slowly_at_first(number: int) -> int:
    time.sleep(0.002 if number % 3 == 0 else 0)
    return number**2


@given(items=st.lists(st.integers(0, 9), max_size=20), workers=st.integers(0, 3), ahead=st.integers(0, 30))
def test_results_are_those_of_map_in_order(items, workers, ahead):
    results = ordered(pool(workers), square_slowly_at_first, items, ahead=ahead)
    assert list(results) == [item**2 for item in items]
    assert worker_threads() == []


def test_files_are_read_in_order_by_several_threads():
    readers = set()
    together = threading.Barrier(2)

    def read(number: int) -> int:
        readers.add(threading.get_ident())
        if number < 2:
            together.wait(10)  # the first two are read at the same time
        return number

    assert list(read_ahead(read, range(100))) == list(range(100))
    assert len(readers - {threading.get_ident()}) > 1


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_items_are_taken_only_so_far_ahead(ahead):
    taken = []

    def items():
        for number in count():
            taken.append(number)
            yield number

    results = ordered(pool(2), str, items(), ahead=ahead)
    assert taken == []
    for given_before in range(4):
        assert next(results) == str(given_before)
        assert len(taken) == given_before + 1 + ahead
    results.close()


def test_workers_compute_while_the_caller_does_something_else():
    done = [threading.Event() for _ in range(4)]
    results = ordered(pool(1), lambda number: done[number].set(), range(4), ahead=3)
    next(results)
    assert all(event.wait(10) for event in done)
    results.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_error_is_raised_at_its_item_and_ends_the_threads(workers):
    def inverse(number: int) -> float:
        return 1 / (3 - number)

    results = ordered(pool(workers), inverse, count(), ahead=5)
    assert [next(results) for _ in range(3)] == [1 / 3, 1 / 2, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert worker_threads() == []
    assert list(results) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_taking_an_item_comes_after_the_results_before_it(workers):
    def items():
        yield from range(3)
        raise OSError("the file ends here")

    results = ordered(pool(workers), square_slowly_at_first, items(), ahead=5)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(OSError, match="the file ends here"):
        next(results)


def test_closing_early_cancels_what_was_not_started_and_ends_the_threads():
    started, gate = [], threading.Event()

    def wait(number: int) -> None:
        started.append(number)
        if number:
            gate.wait(10)

    results = ordered(pool(1), wait, count(), ahead=50)
    next(results)
    while len(started) < 2:
        time.sleep(0.001)
    threading.Timer(0.05, gate.set).start()  # closing waits for the one that runs
    results.close()
    assert started == [0, 1]
    assert worker_threads() == []


def test_ctrl_c_while_waiting_ends_the_threads():
    def items():
        yield 1
        raise KeyboardInterrupt

    results = ordered(pool(2), str, items(), ahead=5)
    with pytest.raises(KeyboardInterrupt):
        next(results)
    assert worker_threads() == []


# Worker processes


WORKERS = """
import os, signal, sys, types
sys.modules["timecycle"] = types.ModuleType("timecycle")  # without its start-up, which takes longer than the test
sys.modules["timecycle"].__path__ = [{package!r}]
from timecycle.concurrency import worker_processes

def pid(_):
    return os.getpid()

if __name__ == "__main__":
    pool = worker_processes(2)
    print(*set(pool.map(pid, range(50))), flush=True)
    pool.submit(signal.pause)
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_exit_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WORKERS.format(package=str(Path(concurrency.__file__).parent)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        workers = [Path("/proc") / pid for pid in parent.stdout.readline().split()]
        assert workers
        assert all(worker.exists() for worker in workers)
        parent.kill()
        ends = time.monotonic() + 20
        while any(_is_running(worker) for worker in workers):
            assert time.monotonic() < ends, "they outlive their parent"
            time.sleep(0.02)


def _is_running(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


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


def test_items_are_written_by_threads_and_a_failure_is_raised(tmp_path):
    write_behind(lambda name: (tmp_path / name).write_text(name), (f"{i}" for i in range(100)))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {f"{i}": f"{i}" for i in range(100)}

    taken = []

    def items():
        for i in range(1000):
            taken.append(i)
            yield i

    with pytest.raises(ZeroDivisionError):
        write_behind(lambda i: 1 / (i - 3), items())
    assert len(taken) < 100  # the rest is not computed for nothing
