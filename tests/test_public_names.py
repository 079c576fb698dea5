"""The public names: exactly this list, typed and documented, and importing them changes no global state.

Removing a name breaks programs of users, so every change of the list is deliberate.
"""

import importlib.metadata
import importlib.resources
import inspect
import os
import re
import subprocess
import sys
import types as types_module
from functools import cached_property
from pathlib import Path

import pytest

import timecycle

PUBLIC = [
    "Audit",
    "AuditConfig",
    "BulkSummary",
    "CheckResult",
    "Comparison",
    "Confidence",
    "ConfidenceConfig",
    "Conversion",
    "Coordinates",
    "CorrectedInterval",
    "Correspondence",
    "Encoder",
    "FeatureMap",
    "Frame",
    "Grid",
    "Keypoints",
    "LabelledFrame",
    "Labels",
    "Masks",
    "Pack",
    "PackConfig",
    "Parts",
    "PropagateConfig",
    "Propagator",
    "Report",
    "Run",
    "SpeedTable",
    "Texture",
    "TimecycleError",
    "TrainConfig",
    "TrainingResult",
    "TunedCandidate",
    "Video",
    "__version__",
    "audit",
    "benchmark",
    "bulk",
    "check",
    "compare",
    "convert",
    "correct",
    "correspond",
    "evaluate",
    "from_detections",
    "from_pretrained",
    "grid_over",
    "label_batch",
    "load_encoder",
    "open_video",
    "pack",
    "propagate",
    "propagate_config",
    "propagate_to_folder",
    "save_pretrained",
    "to_detections",
    "train",
    "train_config",
    "tune",
    "undo",
    "write_sample",
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
    """Run a fresh interpreter with this package on its path."""
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


def test_public_names_are_exactly_this_list() -> None:
    assert sorted(timecycle.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_documented(name: str) -> None:
    value = getattr(timecycle, name)
    if name == "__version__":
        assert isinstance(value, str)
        return
    text = inspect.getdoc(value) or ""
    # A dataclass without a docstring has its signature as one.
    assert len(text.split()) >= 4
    assert not text.startswith(f"{name}(")
    if inspect.isfunction(value):
        unnamed = [one for one in inspect.signature(value).parameters if not re.search(rf"\b{one}\b", text)]
        assert not unnamed, f"{name} does not say what {', '.join(unnamed)} is"


def test_public_methods_are_documented() -> None:
    types = [value for name in PUBLIC if inspect.isclass(value := getattr(timecycle, name))]
    assert len(types) >= 25
    methods = [(kind, name) for kind in types for name in vars(kind) if not name.startswith("_")]
    documented = (property, cached_property, classmethod, types_module.FunctionType)
    undocumented = [
        f"{kind.__name__}.{name}"
        for kind, name in methods
        if isinstance(inspect.getattr_static(kind, name), documented) and not inspect.getdoc(getattr(kind, name))
    ]
    assert not undocumented


def test_verbs_are_functions_whatever_was_imported_before() -> None:
    done = python("-c", "import timecycle as tc; from timecycle.bulk.manifest import Item; print(tc.bulk.__module__)")
    assert done.stdout.split() == ["timecycle.api.many"], done.stderr


def test_importing_takes_less_than_50_ms() -> None:
    """The least of five times, of the processor: other work on the machine only adds to it."""
    script = "import time; t = time.process_time(); import timecycle; print(time.process_time() - t)"
    assert min(float(python("-c", script).stdout) for _ in range(5)) < 0.05


def test_names_are_listed_without_importing_torch() -> None:
    done = python(
        "-c", "import sys, timecycle; print(set(timecycle.__all__) <= set(dir(timecycle)), 'torch' in sys.modules)"
    )
    assert done.stdout.split() == ["True", "False"], done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'propagated'"):
        getattr(timecycle, "propagated")  # noqa: B009


def test_package_is_typed() -> None:
    assert importlib.resources.files("timecycle").joinpath("py.typed").is_file()


def test_importing_changes_no_global_state() -> None:
    done = python("-c", GLOBALS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_command_line_prints_the_version() -> None:
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
