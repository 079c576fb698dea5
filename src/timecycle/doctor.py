"""Checks of the installation and the machine, for `timecycle doctor`."""

import importlib.metadata
import importlib.util
import platform
from dataclasses import dataclass

import av
import torch

from timecycle.concurrency import supports_bf16, usable_cores
from timecycle.device import pick_device
from timecycle.errors import WeightsError
from timecycle.kernel.library import find_kernel
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.model.weights import find_bundled, verify_weights
from timecycle.version import __version__


@dataclass(frozen=True)
class Finding:
    """One line of the report; `remedy` says what to do where `ok` is False."""

    name: str
    value: str
    ok: bool = True
    remedy: str = ""
    optional: bool = False  # then it is no fault if it is missing


def run_checks() -> list[Finding]:
    """Return versions, devices, threads and optional parts: what helps before a run or in a bug report."""
    return [
        Finding("timecycle", __version__),
        Finding("Python", f"{platform.python_version()} on {platform.platform(terse=True)}"),
        Finding("torch", torch.__version__),
        *(Finding(name, importlib.metadata.version(name)) for name in ("numpy", "pillow", "av", "safetensors")),
        *_devices(),
        _threads(),
        _bf16(),
        _kernel(),
        _video_encoder(),
        _extra("ui", "starlette", "ui"),
        _extra("--box", "cv2", "assist"),
        _extra("COCO files", "pycocotools", "coco"),
        _extra("TIFF stacks", "tifffile", "tiff"),
        _evaluation(),
        _hub(),
        _extra("s3:// addresses", "s3fs", "s3"),
        _extra("bulk --ray", "ray", "bulk"),
        _extra("TensorBoard", "tensorboard", "train"),
        _weights(),
    ]


def _weights() -> Finding:
    try:
        path = find_bundled(DEFAULT_ENCODER)
        if path is None:
            raise WeightsError("they are not in the package", remedy="install timecycle again from its wheel")
        verify_weights(path)
    except WeightsError as error:
        return Finding("weights", f"{DEFAULT_ENCODER}: {error.problem}", False, error.remedy)
    return Finding("weights", f"{path.stem}, {path.stat().st_size / 1e6:.1f} MB, verified")


def _devices() -> list[Finding]:
    findings = [Finding("device auto", str(pick_device("auto")))]
    if torch.cuda.is_available():
        findings.append(Finding("cuda", torch.cuda.get_device_name()))
    if torch.backends.mps.is_available():
        findings.append(Finding("mps", "available"))
    return findings


def _threads() -> Finding:
    used, cores = torch.get_num_threads(), usable_cores()
    if used > cores:
        return Finding(
            "threads",
            f"{used} on {cores} usable cores",
            False,
            f"set OMP_NUM_THREADS={cores}: more threads than cores are slower",
        )
    return Finding("threads", f"{used} on {cores} usable cores")


def _kernel() -> Finding:
    kernel = find_kernel()
    if kernel.functions is None:
        return Finding("matching", f"in torch: {kernel.reason}", not kernel.remedy, kernel.remedy)
    return Finding("matching", f"compiled kernel ({kernel.variant}) for features on the CPU")


def _bf16() -> Finding:
    if supports_bf16():
        return Finding("bf16", "this processor supports it: --precision auto is faster")
    return Finding("bf16", "no known support by this processor: fp32 is faster")


def _video_encoder() -> Finding:
    if "libx264" in av.codecs_available:
        return Finding("overlay.mp4", "H.264 (libx264)")
    return Finding("overlay.mp4", "no libx264", False, "reinstall av from its wheel: pip install --force-reinstall av")


def _evaluation() -> Finding:
    missing = [module for module in ("scipy", "matplotlib", "cv2") if importlib.util.find_spec(module) is None]
    if missing:
        return _missing("evaluate", ", ".join(missing), "eval")
    return Finding("evaluate", "metrics, plots and optical flow")


def _extra(name: str, module: str, extra: str) -> Finding:
    return (
        _missing(name, module, extra) if importlib.util.find_spec(module) is None else Finding(name, f"with {module}")
    )


def _hub() -> Finding:
    if importlib.util.find_spec("transformers") is None:
        return _missing("hub", "transformers", "hub")
    return Finding("hub", f"transformers {importlib.metadata.version('transformers')}")


def _missing(name: str, modules: str, extra: str) -> Finding:
    return Finding(name, f"no {modules}", False, f"pip install 'timecycle[{extra}]', if you want it", optional=True)
