"""The kernel in each of its forms."""

import os

import pytest

from timecycle.kernel.library import CHOICE, FORMS, find_kernel


@pytest.fixture
def choose(monkeypatch):
    """Chooses a form, or `off`, for the rest of the test."""

    def chosen(form):
        monkeypatch.setenv(CHOICE, form)
        find_kernel.cache_clear()
        return find_kernel()

    yield chosen
    monkeypatch.undo()
    find_kernel.cache_clear()


@pytest.fixture(params=FORMS)
def form(request, choose):
    if os.environ.get(CHOICE) == "off":
        pytest.skip(f"{CHOICE} is off")
    kernel = choose(request.param)
    if kernel.reason.startswith("this processor"):
        pytest.skip(kernel.reason)
    assert kernel.functions is not None, kernel.reason
    return request.param
