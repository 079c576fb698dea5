"""Work behind the caller is done in order, waits are bounded, and failures come back."""

import threading
import time

import pytest

from timecycle.behind import Behind


def test_everything_is_done_in_order_on_one_other_thread():
    done = []
    with Behind(2) as behind:
        for i in range(50):
            behind(lambda i=i: done.append((i, threading.get_ident())))
    assert [i for i, _ in done] == list(range(50))
    assert {thread for _, thread in done} != {threading.get_ident()}


def test_the_caller_waits_when_too_much_does():
    gate, done = threading.Event(), []
    with Behind(2) as behind:
        behind(gate.wait)
        threading.Timer(0.2, gate.set).start()
        began = time.monotonic()
        for i in range(4):
            behind(lambda i=i: done.append(i))
        assert time.monotonic() - began > 0.1
    assert done == [0, 1, 2, 3]


def test_catching_up_waits_for_everything():
    done = []
    with Behind(8) as behind:
        behind(lambda: time.sleep(0.1))
        behind(lambda: done.append(1))
        behind.catch_up()
        assert done == [1]


def fail():
    raise OSError("the disk is full")


def test_a_failure_is_raised_at_the_next_call_and_nothing_after_it_is_done():
    done = []

    def fail_then_go_on():
        with Behind(8) as behind:
            behind(fail)
            behind(lambda: done.append(1))
            behind.catch_up()

    with pytest.raises(OSError, match="the disk is full"):
        fail_then_go_on()
    assert done == []


def test_a_failure_of_the_last_work_is_raised_at_the_end():
    with pytest.raises(OSError, match="the disk is full"), Behind(8) as behind:
        behind(fail)


def test_an_error_of_the_caller_drops_what_waits():
    done, gate = [], threading.Event()

    def leave_early():
        with Behind(8) as behind:
            behind(gate.wait)
            behind(lambda: done.append(1))
            threading.Timer(0.1, gate.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        leave_early()
    assert done == []
