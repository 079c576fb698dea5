"""Shapes written in signatures are checked while the tests run, and real footage is found or its tests are skipped."""

import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Whoever started the tests in the background made them deaf to Ctrl-C, and with them every process they start.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine may be busy with other things: how long one example takes says nothing.
settings.register_profile("timecycle", deadline=None)
settings.load_profile("timecycle")

# Must come before anything imports the package.
install_import_hook("timecycle", "shapecheck.check")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real footage; without TIMECYCLE_DATA, tests that need it are skipped."""
    folder = os.environ.get("TIMECYCLE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set TIMECYCLE_DATA to the folder with davis2016/ to run this test")
    return Path(folder)


@pytest.fixture(autouse=True)
def _the_same_chance_in_every_run() -> None:
    """Networks that a test makes without a seed begin alike whatever ran before, in this order or another."""
    torch.manual_seed(0)
