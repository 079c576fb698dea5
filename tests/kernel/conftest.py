"""Fixtures that choose a variant of the kernel."""

import os

import pytest

from timecycle.kernel.library import KERNEL_VARIABLE, VARIANTS, find_kernel


@pytest.fixture
def choose(monkeypatch):
    """Choose a variant, or `off`, for the rest of the test."""

    def select(variant):
        monkeypatch.setenv(KERNEL_VARIABLE, variant)
        find_kernel.cache_clear()
        return find_kernel()

    yield select
    monkeypatch.undo()
    find_kernel.cache_clear()


@pytest.fixture(params=VARIANTS)
def variant(request, choose):
    if os.environ.get(KERNEL_VARIABLE) == "off":
        pytest.skip(f"{KERNEL_VARIABLE} is off")
    kernel = choose(request.param)
    if kernel.reason.startswith("this processor"):
        pytest.skip(kernel.reason)
    assert kernel.functions is not None, kernel.reason
    return request.param
