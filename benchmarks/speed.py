"""What carrying labels costs beside the bare encoder on the same frames.

    python benchmarks/speed.py DATA [--encoder NAME|WEIGHTS] [--only PART ...] [--rounds N]

Parts: whole, agreement, command, fast, threads, growth, judged; each is kept as benchmarks/results/speed_PART.json.
Everything is a ratio of two things timed in turns in one process, so that a busy machine slows both; medians over the
rounds. The bare encoder is the folded network, channels last, called on prepared frames one after the other with all
threads. Whole runs are timed between two frames in the middle, where the memory is full and as much is encoded ahead at
the end as at the beginning.
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
from timecycle import Masks, PropagateConfig, Propagation, load_encoder, open_video, propagate
from timecycle.cli import main as command_line
from timecycle.config import propagate_config
from timecycle.cores import multiplies_bf16
from timecycle.kernel.library import CHOICE, find_kernel
from timecycle.model.encoder import FeatureMap
from timecycle.model.inference import Precision, ResNetEncoder
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.state import resize
from timecycle.synthetic import tiled_mask
from timecycle.video import Size, Video, VideoWriter

SEQUENCE = "blackswan"
_AHEAD = 6  # frames at the end that may have been encoded before a clock stops

Seconds = Callable[[], float]


@dataclass(frozen=True, eq=False)
class Scene:
    """What is carried through what, by which encoder."""

    encoder: ResNetEncoder
    frames: Sequence[np.ndarray]
    masks: Masks

    @property
    def video(self) -> Video:
        return open_video(np.stack(self.frames), fps=24)


def davis_scene(data: Path, encoder: ResNetEncoder, frames: int) -> Scene:
    """A DAVIS sequence, played forwards and backwards where it is shorter."""
    images = [frame.image for frame in open_video(str(data / "davis2016" / "JPEGImages" / "480p" / SEQUENCE))]
    there_and_back = [*images, *images[-2:0:-1]]
    mask = Masks.read(data / "davis2016" / "Annotations" / "480p" / SEQUENCE / "00000.png")
    return Scene(encoder, [there_and_back[t % len(there_and_back)] for t in range(frames)], mask)


@torch.inference_mode()
def bare(encoder: ResNetEncoder, prepared: Sequence[Tensor]) -> float:
    """Seconds a frame for the network alone."""
    began = time.perf_counter()
    for frame in prepared:
        encoder._model.activations(frame)
    return (time.perf_counter() - began) / len(prepared)


def whole(scene: Scene, config: PropagateConfig, masks: Masks | None = None, trust: TrustConfig | None = None) -> float:
    """Seconds a frame of a propagation from frames in memory to labels, once the memory is full."""
    first, last = config.past_frames + 1, len(scene.frames) - _AHEAD
    began = 0.0
    labels = {0: masks or scene.masks}
    for labelled in propagate(scene.video, labels, encoder=scene.encoder, config=config, trust=trust):
        if labelled.index == first:
            began = time.perf_counter()
        if labelled.index == last:
            break
    return (time.perf_counter() - began) / (last - first)


def stepwise(scene: Scene, config: PropagateConfig) -> float:
    """Seconds a frame where the next frame is not known yet, as from a camera."""
    state = Propagation(scene.encoder, config)
    began, first = 0.0, config.past_frames + 1
    for t, image in enumerate(scene.frames):
        if t == first:
            began = time.perf_counter()
        state.step(image, scene.masks if t == 0 else None)
    return (time.perf_counter() - began) / (len(scene.frames) - first)


def in_turns(timed: Mapping[str, Seconds], against: Seconds, rounds: int) -> dict[str, Any]:
    """Every one of `timed` between two of `against`, and the medians of their ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    ratios: dict[str, list[float]] = {name: [] for name in timed}
    against()  # what comes first also prepares
    base = [against()]
    for _ in range(rounds):
        for name, measure in timed.items():
            seconds[name].append(measure())
            base.append(against())
            ratios[name].append(seconds[name][-1] / statistics.fmean(base[-2:]))
    return {
        "ratios": {name: round(statistics.median(values), 3) for name, values in ratios.items()},
        "spread": {name: [round(min(values), 3), round(max(values), 3)] for name, values in ratios.items()},
        "seconds": {name: round(statistics.median(values), 4) for name, values in seconds.items()},
        "seconds_bare": round(statistics.median(base), 4),
    }


def prepared_frames(scene: Scene, config: PropagateConfig, count: int = 10) -> list[Tensor]:
    """Frames as the network takes them; not part of any time."""
    return [scene.encoder._normalised(resize(image, config)) for image in scene.frames[:count]]


def measure_whole(scene: Scene, encoder: str, rounds: int) -> dict[str, Any]:
    """Everything from frames to labels, over the bare fp32 encoder."""
    config = PropagateConfig()
    some, few = (replace(scene, frames=scene.frames[: config.past_frames + count + _AHEAD]) for count in (16, 6))
    anywhere = PropagateConfig(window_px=None, anchor_window_px=None)
    timed: dict[str, Seconds] = {
        "whole_over_bare_fp32": partial(whole, some, config),
        "whole_20_over_bare_fp32": partial(whole, scene, PropagateConfig(past_frames=20)),
        "stepwise_over_bare_fp32": partial(stepwise, some, config),
        "without_kernel_over_bare_fp32": partial(_without_kernel, partial(whole, few, config)),
        "global_over_bare_fp32": partial(whole, few, anywhere),
    }
    inputs = prepared_frames(scene, config)
    measured = in_turns(timed, partial(bare, scene.encoder, inputs), rounds)
    if multiplies_bf16():
        fast = replace(some, encoder=_load(encoder, "bf16"))
        network = partial(bare, fast.encoder, prepared_frames(fast, config))
        in_bf16 = in_turns({"whole_bf16_over_bare_bf16": partial(whole, fast, config)}, network, rounds)
        measured["ratios"] |= in_bf16["ratios"]
        measured["bf16"] = in_bf16
    return measured


def measure_agreement(scene: Scene) -> dict[str, Any]:
    """Pixels with the label that matching and voting in float64 give, on the same fp32 features, over a whole clip."""
    config, space = PropagateConfig(), Masks.space([scene.masks])
    ours = Propagation(scene.encoder, config, space)
    exact = Propagation(_Double(scene.encoder), config, space)
    shares = []
    for t, image in enumerate(scene.frames):
        given = scene.masks if t == 0 else None
        reference = exact.advance(t, image, given)
        labels = ours.decide(ours.advance(t, image, given), given)
        wanted = exact.decide(replace(reference, soft=reference.soft.float()), given)
        shares.append(float((labels.ids == wanted.ids).mean()))  # type: ignore[attr-defined]
    return {"frames": len(shares), "same_pixels": statistics.fmean(shares), "same_pixels_worst_frame": min(shares)}


def measure_command(scene: Scene, encoder: str, rounds: int) -> dict[str, Any]:
    """`timecycle propagate` from an mp4 to label files, table, film and contact sheet; and its memory."""
    with tempfile.TemporaryDirectory() as folder:
        clip, mask = Path(folder) / "clip.mp4", Path(folder) / "first.png"
        size = Size(*scene.frames[0].shape[:2])
        with VideoWriter(clip, size, open_video(scene.frames[0][None], fps=24).time_base) as writer:
            for t, image in enumerate(scene.frames):
                writer.write(image, t)
        scene.masks.write(mask)
        words = ["propagate", str(clip), str(mask), "-o", f"{folder}/out", "--overwrite", "--encoder", encoder]

        def run() -> float:
            began = time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                if command_line(words) != 0:
                    raise RuntimeError("the command failed")
            return (time.perf_counter() - began) / len(scene.frames)

        network = partial(bare, scene.encoder, prepared_frames(scene, PropagateConfig()))
        measured = in_turns({"command_over_bare_fp32": run}, network, rounds)
        measured["peak_rss_mib"] = round(_peak_rss_mib([sys.executable, "-m", "timecycle", *words]), 1)
    return measured


def measure_fast(scene: Scene, rounds: int) -> dict[str, Any]:
    """The preset for a quick look: the same frames at 240 pixels."""
    config = propagate_config("fast")
    network = partial(bare, scene.encoder, prepared_frames(scene, config, 30))
    measured = in_turns({"fast_over_bare_fp32": partial(whole, scene, config)}, network, rounds)
    measured["frames_per_second"] = round(1 / measured["seconds"]["fast_over_bare_fp32"], 2)
    return measured


def measure_threads(scene: Scene, rounds: int) -> dict[str, Any]:
    """One thread against all of them."""
    threads = torch.get_num_threads()

    def alone() -> float:
        torch.set_num_threads(1)
        try:
            return whole(scene, PropagateConfig())
        finally:
            torch.set_num_threads(threads)

    measured = in_turns({"one_thread_over_all": alone}, partial(whole, scene, PropagateConfig()), rounds)
    measured["threads"] = threads
    measured["efficiency"] = round(measured["ratios"]["one_thread_over_all"] / threads, 3)
    return measured


def measure_judged(scene: Scene, rounds: int) -> dict[str, Any]:
    """Labels that say how far to trust them over labels that do not, at both image sizes."""
    measured = {}
    for preset in ("default", "fast"):
        config = propagate_config(preset)
        judged = partial(whole, scene, config, trust=TrustConfig())
        turns = in_turns({f"judged_over_unjudged_{preset}": judged}, partial(whole, scene, config), rounds)
        measured[preset] = {"seconds_unjudged": turns.pop("seconds_bare"), **turns}
    return measured


def measure_growth(scene: Scene, rounds: int) -> dict[str, Any]:
    """What more pixels, references and objects cost, over the bare encoder at 480 pixels."""
    height, width = scene.frames[0].shape[:2]
    sizes = {px: PropagateConfig(image_size_px=px) for px in (120, 240, 360, 480)}
    references = {past + 1: PropagateConfig(past_frames=past) for past in (1, 3, 7, 20)}
    objects = {count: Masks(tiled_mask(height, width, count)) for count in (1, 10, 100)}
    timed: dict[str, Seconds] = {
        **{f"pixels_{px}": partial(whole, scene, config) for px, config in sizes.items()},
        **{f"references_{count}": partial(whole, scene, config) for count, config in references.items()},
        **{f"objects_{count}": partial(whole, scene, PropagateConfig(), masks) for count, masks in objects.items()},
    }
    measured = in_turns(timed, partial(bare, scene.encoder, prepared_frames(scene, PropagateConfig())), rounds)
    ratios = measured["ratios"]
    measured["curves"] = {
        # Pixels in units of those at 480; the window is the same number of them at every size.
        "pixels": [[(px / 480) ** 2, ratios[f"pixels_{px}"]] for px in sizes],
        "references": [[count, ratios[f"references_{count}"]] for count in references],
        "objects": [[count, ratios[f"objects_{count}"]] for count in objects],
    }
    return measured


class _Double:
    """An encoder whose descriptors are those of another, in float64: everything after it then is too."""

    def __init__(self, encoder: ResNetEncoder) -> None:
        self.encoder, self.name, self.sha256, self.form = encoder, encoder.name, encoder.sha256, encoder.form

    def encode(self, image: np.ndarray) -> FeatureMap:
        features = self.encoder.encode(image)
        return FeatureMap(features.cells.double(), features.grid)


def _without_kernel(measure: Seconds) -> float:
    before = os.environ.get(CHOICE)
    os.environ[CHOICE] = "off"
    find_kernel.cache_clear()
    try:
        return measure()
    finally:
        os.environ.pop(CHOICE) if before is None else os.environ.update({CHOICE: before})
        find_kernel.cache_clear()


def _peak_rss_mib(words: Sequence[str]) -> float:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError("the command failed")
    return usage.ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with davis2016/")
    parser.add_argument("--encoder", default="random-resnet18")
    parser.add_argument("--only", nargs="*", default=[], help="parts")
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
            "kernel": find_kernel().form,
        }
        path = write_record(f"speed_{part}", settings=settings, measured=measured, seconds=time.monotonic() - began)
        print(path.read_text(), flush=True)
    return 0


# Long enough for the memory to fill; short where a frame takes long.
_FRAMES = {"whole": 40, "agreement": 20, "command": 60, "fast": 90, "threads": 30, "growth": 34, "judged": 40}


def _parts(encoder: str, rounds: int) -> dict[str, Callable[[Scene], dict[str, Any]]]:
    return {
        "whole": partial(measure_whole, encoder=encoder, rounds=rounds),
        "agreement": measure_agreement,
        "command": partial(measure_command, encoder=encoder, rounds=rounds),
        "fast": partial(measure_fast, rounds=rounds),
        "threads": partial(measure_threads, rounds=rounds),
        "growth": partial(measure_growth, rounds=rounds),
        "judged": partial(measure_judged, rounds=rounds),
    }


def _load(name: str, precision: Precision = "fp32") -> ResNetEncoder:
    encoder = load_encoder(name, device="cpu", precision=precision)
    if not isinstance(encoder, ResNetEncoder):
        raise SystemExit(f"error: {name} is no ResNet\n  try: give weights of this package's own")
    return encoder


if __name__ == "__main__":
    sys.exit(main())
