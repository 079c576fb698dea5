"""Measure how fast this machine encodes, matches and trains."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch

from timecycle.device import Device, pick_device
from timecycle.errors import SettingsError
from timecycle.inputs import EncoderLike
from timecycle.kernel.library import find_kernel
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.progress import ProgressLike, bars_for
from timecycle.runs.provenance import commit, machine
from timecycle.speed.table import TASKS, SpeedRow, SpeedTable
from timecycle.speed.tasks import measure_encoding, measure_matching, measure_training
from timecycle.speed.timing import peak_process_bytes
from timecycle.training.settings import pick_precision
from timecycle.version import __version__

_HEIGHTS_PX = (240, 480)
_PRESETS = ("small", "small-cycles")
# An accelerator is fast enough for these.
_LARGER_HEIGHTS_PX = (720,)
_LARGER_PRESETS = ("bundled", "full")


def benchmark(
    *,
    encoder: EncoderLike = DEFAULT_ENCODER,
    device: Device = "auto",
    only: Sequence[str] = TASKS,
    seconds: float = 2.0,
    progress: ProgressLike = None,
) -> SpeedTable:
    """Measure encoding, matching and training on a device, with synthetic clips: nothing is read or downloaded.

    encoder: what `load_encoder` takes.
    device: auto, cpu, cuda or mps.
    only: measure only these of encode, match and train.
    seconds: how long each measurement is repeated; at least three times, however long it takes.
    progress: True for a bar on standard error, or a function that is called with (done, total) measurements.

    The result has `rows`, and prints as a Markdown table with the device and the versions.
    """
    if not 0 < seconds < math.inf:
        raise SettingsError(f"seconds is {seconds:g}", remedy="give more than 0")
    for task in only:
        if task not in TASKS:
            raise SettingsError(f"there is no task {task!r} to measure", remedy=f"choose from {', '.join(TASKS)}")
    if not only:
        raise SettingsError("nothing is to be measured", remedy=f"choose from {', '.join(TASKS)}")
    chosen, exact = pick_device(device), load_encoder(encoder, device=device)
    planned: dict[str, list[Callable[[], SpeedRow]]] = {
        "encode": _encoding(encoder, exact, device, seconds),
        "match": [partial(measure_matching, exact, "fp32", budget_seconds=seconds)],
        "train": _training(chosen, seconds),
    }
    measurements = [measure for task in TASKS if task in only for measure in planned[task]]
    rows = []
    with bars_for(progress) as bar:
        move = bar("measuring")
        move(0, len(measurements))
        for measure in measurements:
            rows.append(measure())
            move(len(rows), len(measurements), rows[-1].name)
    facts = machine()
    return SpeedTable(
        device=chosen.type,
        device_name=torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else facts["processor"],
        processor=facts["processor"],
        threads=facts["threads"],
        torch=facts["torch"],
        timecycle=__version__,
        commit=commit(),
        kernel=find_kernel().variant,
        encoder=exact.name,
        tf32=chosen.type == "cuda" and torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        peak_process_bytes=peak_process_bytes(),
        rows=rows,
    )


def _encoding(encoder: EncoderLike, exact: Encoder, device: Device, seconds: float) -> list[Callable[[], SpeedRow]]:
    """List the sizes to encode: in fp32, and in bf16 where the device multiplies it."""
    encoders = {"fp32": exact}
    chosen = pick_device(device)
    if pick_precision("auto", chosen) == "bf16":
        fast = load_encoder(encoder, device=device, precision="bf16")
        if fast.description != exact.description:  # hand-crafted features have one precision
            encoders["bf16"] = fast
    heights = _HEIGHTS_PX if chosen.type == "cpu" else (*_HEIGHTS_PX, *_LARGER_HEIGHTS_PX)
    return [
        partial(measure_encoding, one, height_px, precision, budget_seconds=seconds)
        for precision, one in encoders.items()
        for height_px in heights
    ]


def _training(device: torch.device, seconds: float) -> list[Callable[[], SpeedRow]]:
    """List the presets to train: in fp32, and in the precision that the device chooses by itself."""
    presets = _PRESETS if device.type == "cpu" else (*_PRESETS, *_LARGER_PRESETS)
    return [
        partial(measure_training, preset, precision, device, budget_seconds=seconds)
        for preset in presets
        for precision in dict.fromkeys(("fp32", pick_precision("auto", device)))
    ]
