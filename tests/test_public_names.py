"""The public face: exactly these names, typed and documented, and importing them changes nothing.

A name that vanishes breaks other people's programs, so the list is written down here and changed on purpose.
"""

import importlib.metadata
import importlib.resources
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import timecycle

PUBLIC = [
    "Coordinates",
    "Keypoints",
    "Masks",
    "Parts",
    "PropagateConfig",
    "Propagation",
    "Texture",
    "TimecycleError",
    "TrustConfig",
    "__version__",
    "correspond",
    "from_pretrained",
    "load_encoder",
    "open_video",
    "propagate",
    "propagate_config",
    "propagate_to_folder",
    "save_pretrained",
]

GLOBALS = """
import json, logging, os, random, signal
import numpy, torch

def state():
    return {
        "threads": torch.get_num_threads(),
        "threads between operators": torch.get_num_interop_threads(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cudnn": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": repr(numpy.random.get_state()),
        "python random": repr(random.getstate()),
        "environment": dict(os.environ),
        "log": [logging.getLogger().level, len(logging.getLogger().handlers)],
        "interrupt": repr(signal.getsignal(signal.SIGINT)),
    }

before = state()
from timecycle import *
after = state()
print(json.dumps([name for name in before if before[name] != after[name]]))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that finds the package these tests test."""
    source = str(Path(timecycle.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_public_names_are_these() -> None:
    assert sorted(timecycle.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_can_be_had_and_says_what_it_is(name: str) -> None:
    thing = getattr(timecycle, name)
    if name == "__version__":
        assert isinstance(thing, str)
        return
    text = inspect.getdoc(thing) or ""
    # A dataclass without a docstring is given its signature as one.
    assert text.strip()
    assert not text.startswith(f"{name}(")


def test_names_are_listed_before_they_are_imported_and_others_are_refused() -> None:
    done = python(
        "-c", "import sys, timecycle; print(set(timecycle.__all__) <= set(dir(timecycle)), 'torch' in sys.modules)"
    )
    assert done.stdout.split() == ["True", "False"], done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'propagated'"):
        getattr(timecycle, "propagated")  # noqa: B009


def test_types_are_shipped() -> None:
    assert importlib.resources.files("timecycle").joinpath("py.typed").is_file()


def test_importing_changes_nothing_global() -> None:
    done = python("-c", GLOBALS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_version_is_told_by_the_command_line() -> None:
    done = python("-m", "timecycle", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["timecycle", timecycle.__version__]
    assert done.stderr == ""


def test_version_is_the_installed_one() -> None:
    try:
        installed = importlib.metadata.version("timecycle")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("timecycle is not installed here, only on the path")
    assert installed == timecycle.__version__
