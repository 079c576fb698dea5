"""Measure the time of propagation relative to the bare encoder on the same frames.

    python benchmarks/speed.py DATA [--encoder NAME|WEIGHTS] [--only PART ...] [--rounds N]

Parts: whole, agreement, command, fast, threads, growth, confidence; results: benchmarks/results/speed_PART.json. Every
result is a ratio of two things timed in turns in one process, so that a busy machine slows both; medians over the
rounds. The bare encoder is the network with folded batch norm, channels last, called on prepared frames one by one with
all threads. Whole runs are timed between two frames in the middle, where the memory bank is full and the same number of
frames is prefetched at both ends.
"""

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from record import write_record
from timecycle import Masks, PropagateConfig, Propagator, load_encoder, open_video, propagate
from timecycle.cli import main as command_line
from timecycle.concurrency import supports_bf16
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.config import propagate_config
from timecycle.kernel.library import KERNEL_VARIABLE, find_kernel
from timecycle.model.encoder import FeatureMap
from timecycle.model.inference import Precision, ResNetEncoder
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.propagation.frame_encoder import resize
from timecycle.synthetic import tiled_mask
from timecycle.video import Size, Video, VideoWriter

SEQUENCE = "blackswan"
_PREFETCHED = 6  # frames at the end that may already be encoded when the clock stops

Seconds = Callable[[], float]


@dataclass(frozen=True, eq=False)
class Scene:
    """Frames, the mask of the first one, and the encoder to propagate it with."""

    encoder: ResNetEncoder
    frames: Sequence[np.ndarray]
    masks: Masks

    @property
    def video(self) -> Video:
        return open_video(np.stack(self.frames), fps=24)


def davis_scene(data: Path, encoder: ResNetEncoder, frames: int) -> Scene:
    """Load a DAVIS sequence, repeated forwards and backwards where it is shorter."""
    images = [frame.image for frame in open_video(str(data / "davis2016" / "JPEGImages" / "480p" / SEQUENCE))]
    loop = [*images, *images[-2:0:-1]]
    mask = Masks.read(data / "davis2016" / "Annotations" / "480p" / SEQUENCE / "00000.png")
    return Scene(encoder, [loop[t % len(loop)] for t in range(frames)], mask)


@torch.inference_mode()
def bare(encoder: ResNetEncoder, prepared: Sequence[Tensor]) -> float:
    """Return the seconds per frame of the network alone."""
    began = time.perf_counter()
    for frame in prepared:
        encoder._model.activations(frame)
    return (time.perf_counter() - began) / len(prepared)


def whole(
    scene: Scene, config: PropagateConfig, masks: Masks | None = None, confidence: ConfidenceConfig | None = None
) -> float:
    """Return the seconds per frame from decoded frames to labels, once the memory bank is full."""
    first, last = full_at(config), len(scene.frames) - _PREFETCHED
    began = 0.0
    labels = {0: masks or scene.masks}
    for labelled in propagate(scene.video, labels, encoder=scene.encoder, config=config, confidence=confidence):
        if labelled.index == first:
            began = time.perf_counter()
        if labelled.index == last:
            break
    return (time.perf_counter() - began) / (last - first)


def full_at(config: PropagateConfig) -> int:
    """Return the first frame with a full memory bank."""
    return config.past_frames + config.older_frames * config.older_interval + 1


def stepwise(scene: Scene, config: PropagateConfig) -> float:
    """Return the seconds per frame where the next frame is not available yet, as with a camera."""
    propagator = Propagator(scene.encoder, config)
    began, first = 0.0, full_at(config)
    for t, image in enumerate(scene.frames):
        if t == first:
            began = time.perf_counter()
        propagator.step(image, scene.masks if t == 0 else None)
    return (time.perf_counter() - began) / (len(scene.frames) - first)


def in_turns(timed: Mapping[str, Seconds], baseline: Seconds, rounds: int) -> dict[str, Any]:
    """Run each of `timed` between two runs of the baseline, and return the medians of the ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    ratios: dict[str, list[float]] = {name: [] for name in timed}
    baseline()  # warm-up
    base = [baseline()]
    for _ in range(rounds):
        for name, measure in timed.items():
            seconds[name].append(measure())
            base.append(baseline())
            ratios[name].append(seconds[name][-1] / statistics.fmean(base[-2:]))
    return {
        "ratios": {name: round(statistics.median(values), 3) for name, values in ratios.items()},
        "spread": {name: [round(min(values), 3), round(max(values), 3)] for name, values in ratios.items()},
        "seconds": {name: round(statistics.median(values), 4) for name, values in seconds.items()},
        "seconds_bare": round(statistics.median(base), 4),
    }


def prepared_frames(scene: Scene, config: PropagateConfig, count: int = 10) -> list[Tensor]:
    """Prepare frames as the input of the network; this is not timed."""
    return [scene.encoder._normalised(resize(image, config)) for image in scene.frames[:count]]


def measure_whole(scene: Scene, encoder: str, rounds: int) -> dict[str, Any]:
    """Measure the whole way from frames to labels, relative to the bare fp32 encoder."""
    config = PropagateConfig()
    some, few = (replace(scene, frames=scene.frames[: full_at(config) + count + _PREFETCHED]) for count in (16, 6))
    anywhere = PropagateConfig(window_px=None, anchor_window_px=None)
    timed: dict[str, Seconds] = {
        "whole_over_bare_fp32": partial(whole, some, config),
        "plain_over_bare_fp32": partial(whole, some, propagate_config("plain")),
        "best_over_bare_fp32": partial(whole, few, propagate_config("best")),
        "stepwise_over_bare_fp32": partial(stepwise, some, config),
        "without_kernel_over_bare_fp32": partial(_without_kernel, partial(whole, few, config)),
        "global_over_bare_fp32": partial(whole, few, anywhere),
    }
    inputs = prepared_frames(scene, config)
    measured = in_turns(timed, partial(bare, scene.encoder, inputs), rounds)
    if supports_bf16():
        fast = replace(some, encoder=_load(encoder, "bf16"))
        network = partial(bare, fast.encoder, prepared_frames(fast, config))
        in_bf16 = in_turns({"whole_bf16_over_bare_bf16": partial(whole, fast, config)}, network, rounds)
        measured["ratios"] |= in_bf16["ratios"]
        measured["bf16"] = in_bf16
    return measured


def measure_agreement(scene: Scene) -> dict[str, Any]:
    """Measure the share of pixels whose label equals that of float64 matching on the same fp32 features."""
    config, space = PropagateConfig(), Masks.space([scene.masks])
    ours = Propagator(scene.encoder, config, space)
    exact = Propagator(_Float64Encoder(scene.encoder), config, space)
    shares = []
    for t, image in enumerate(scene.frames):
        annotation = scene.masks if t == 0 else None
        reference = exact.advance(t, image, annotation)
        labels = ours.decode(ours.advance(t, image, annotation), annotation, image)
        expected = exact.decode(replace(reference, values=reference.values.float()), annotation, image)
        shares.append(float((labels.ids == expected.ids).mean()))  # type: ignore[attr-defined]
    return {"frames": len(shares), "same_pixels": statistics.fmean(shares), "same_pixels_worst_frame": min(shares)}


def measure_command(scene: Scene, encoder: str, rounds: int) -> dict[str, Any]:
    """Measure time and memory of `timecycle propagate`, from an mp4 to labels, tables, overlay video, contact sheet."""
    with tempfile.TemporaryDirectory() as folder:
        clip, mask = Path(folder) / "clip.mp4", Path(folder) / "first.png"
        size = Size(*scene.frames[0].shape[:2])
        with VideoWriter(clip, size, open_video(scene.frames[0][None], fps=24).time_base) as writer:
            for t, image in enumerate(scene.frames):
                writer.write(image, t)
        scene.masks.write(mask)
        command = ["propagate", str(clip), str(mask), "-o", f"{folder}/out", "--overwrite", "--encoder", encoder]

        def run() -> float:
            began = time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                if command_line(command) != 0:
                    raise RuntimeError("the command failed")
            return (time.perf_counter() - began) / len(scene.frames)

        network = partial(bare, scene.encoder, prepared_frames(scene, PropagateConfig()))
        measured = in_turns({"command_over_bare_fp32": run}, network, rounds)
        measured["peak_rss_mib"] = round(peak_rss_mib([sys.executable, "-m", "timecycle", *command]), 1)
    return measured


def measure_fast(scene: Scene, rounds: int) -> dict[str, Any]:
    """Measure the preset `fast`: the same frames at 240 pixels."""
    config = propagate_config("fast")
    network = partial(bare, scene.encoder, prepared_frames(scene, config, 30))
    measured = in_turns({"fast_over_bare_fp32": partial(whole, scene, config)}, network, rounds)
    measured["frames_per_second"] = round(1 / measured["seconds"]["fast_over_bare_fp32"], 2)
    return measured


def measure_threads(scene: Scene, rounds: int) -> dict[str, Any]:
    """Measure one thread relative to all of them."""
    threads = torch.get_num_threads()

    def one_thread() -> float:
        torch.set_num_threads(1)
        try:
            return whole(scene, PropagateConfig())
        finally:
            torch.set_num_threads(threads)

    measured = in_turns({"one_thread_over_all": one_thread}, partial(whole, scene, PropagateConfig()), rounds)
    measured["threads"] = threads
    measured["efficiency"] = round(measured["ratios"]["one_thread_over_all"] / threads, 3)
    return measured


def measure_confidence(scene: Scene, rounds: int) -> dict[str, Any]:
    """Measure propagation with confidence relative to propagation without it, with two presets."""
    measured = {}
    for preset in ("default", "fast"):
        config = propagate_config(preset)
        timed = {f"with_over_without_{preset}": partial(whole, scene, config, confidence=ConfidenceConfig())}
        turns = in_turns(timed, partial(whole, scene, config), rounds)
        measured[preset] = {"seconds_without": turns.pop("seconds_bare"), **turns}
    return measured


def measure_growth(scene: Scene, rounds: int) -> dict[str, Any]:
    """Measure the time over pixels, references and objects, relative to the bare encoder at 480 pixels."""
    height, width = scene.frames[0].shape[:2]
    sizes = {px: PropagateConfig(image_size_px=px) for px in (120, 240, 360, 480)}
    references = {past + 1: PropagateConfig(past_frames=past, older_frames=0) for past in (1, 3, 7, 20)}
    objects = {count: Masks(tiled_mask(height, width, count)) for count in (1, 10, 100)}
    timed: dict[str, Seconds] = {
        **{f"pixels_{px}": partial(whole, scene, config) for px, config in sizes.items()},
        **{f"references_{count}": partial(whole, scene, config) for count, config in references.items()},
        **{f"objects_{count}": partial(whole, scene, PropagateConfig(), masks) for count, masks in objects.items()},
    }
    measured = in_turns(timed, partial(bare, scene.encoder, prepared_frames(scene, PropagateConfig())), rounds)
    ratios = measured["ratios"]
    measured["curves"] = {
        # Pixels in units of those at 480; the window has the same size in pixels everywhere.
        "pixels": [[(px / 480) ** 2, ratios[f"pixels_{px}"]] for px in sizes],
        "references": [[count, ratios[f"references_{count}"]] for count in references],
        "objects": [[count, ratios[f"objects_{count}"]] for count in objects],
    }
    return measured


class _Float64Encoder:
    """Converts the features of another encoder to float64, so that all later computations are in float64."""

    def __init__(self, encoder: ResNetEncoder) -> None:
        self.encoder, self.description = encoder, encoder.description
        self.name, self.sha256 = encoder.name, encoder.sha256

    def encode(self, image: np.ndarray) -> FeatureMap:
        features = self.encoder.encode(image)
        return FeatureMap(features.cells.double(), features.grid)


def _without_kernel(measure: Seconds) -> float:
    before = os.environ.get(KERNEL_VARIABLE)
    os.environ[KERNEL_VARIABLE] = "off"
    find_kernel.cache_clear()
    try:
        return measure()
    finally:
        os.environ.pop(KERNEL_VARIABLE) if before is None else os.environ.update({KERNEL_VARIABLE: before})
        find_kernel.cache_clear()


def peak_rss_mib(command: Sequence[str]) -> float:
    """Run a command and return the peak of its resident memory.

    It is read from /proc while the command runs: the peak that `wait4` returns begins with the memory of this process.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak_kib = 0
    while process.poll() is None:
        with contextlib.suppress(OSError):  # it has just ended
            _, found, rest = Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")
            peak_kib = max(peak_kib, int(rest.split()[0]) if found else 0)
        time.sleep(0.02)
    if process.returncode != 0:
        raise RuntimeError("the command failed")
    return peak_kib / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with davis2016/")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="only these parts")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    for part, measure in _parts(chosen.encoder, chosen.rounds).items():
        if chosen.only and part not in chosen.only:
            continue
        scene = davis_scene(chosen.data, _load(chosen.encoder), _FRAMES[part])
        began = time.monotonic()
        measured = measure(scene)
        settings = {
            "size": "x".join(map(str, scene.frames[0].shape[1::-1])),
            "sequence": SEQUENCE,
            "frames": len(scene.frames),
            "rounds": chosen.rounds,
            "encoder": Path(scene.encoder.name).stem,
            "weights_sha256": scene.encoder.sha256,
            "kernel": find_kernel().variant,
        }
        path = write_record(f"speed_{part}", settings=settings, measured=measured, seconds=time.monotonic() - began)
        print(path.read_text(), flush=True)
    return 0


# Enough frames to fill the memory bank; few where a frame takes long.
_FRAMES = {"whole": 70, "agreement": 20, "command": 60, "fast": 90, "threads": 60, "growth": 60, "confidence": 70}


def _parts(encoder: str, rounds: int) -> dict[str, Callable[[Scene], dict[str, Any]]]:
    return {
        "whole": partial(measure_whole, encoder=encoder, rounds=rounds),
        "agreement": measure_agreement,
        "command": partial(measure_command, encoder=encoder, rounds=rounds),
        "fast": partial(measure_fast, rounds=rounds),
        "threads": partial(measure_threads, rounds=rounds),
        "growth": partial(measure_growth, rounds=rounds),
        "confidence": partial(measure_confidence, rounds=rounds),
    }


def _load(name: str, precision: Precision = "fp32") -> ResNetEncoder:
    encoder = load_encoder(name, device="cpu", precision=precision)
    if not isinstance(encoder, ResNetEncoder):
        raise SystemExit(f"error: {name} is no ResNet\n  try: give weights that timecycle trained")
    return encoder


if __name__ == "__main__":
    sys.exit(main())
