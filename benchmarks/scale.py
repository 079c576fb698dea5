"""Measure memory over the length of a video, and time over the number of objects.

python benchmarks/scale.py memory      peak memory and open files of whole runs, short and long
python benchmarks/scale.py course      memory and open files along one run of 20,000 frames
python benchmarks/scale.py objects     time per frame with 1 and with 100 objects, interleaved
"""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from record import write_record
from speed import full_at
from timecycle import Masks, PropagateConfig, Propagator, load_encoder, open_video
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.synthetic import WorldConfig, make_world, tiled_mask
from timecycle.video import Size, VideoWriter


@dataclass(frozen=True)
class Footprint:
    """Peak memory and open files of one run of the command."""

    frames: int
    height_px: int
    width_px: int
    peak_rss_mib: float
    open_files: int  # the highest number at once, after the first frames


def footprint(frames: int, height_px: int, width_px: int) -> Footprint:
    """Run `timecycle propagate` on a clip and monitor the process."""
    with tempfile.TemporaryDirectory() as folder:
        clip, mask = _write_inputs(Path(folder), frames, height_px, width_px)
        command = [sys.executable, "-m", "timecycle", "propagate", str(clip), str(mask), "-o", f"{folder}/out"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        monitor = _Monitor(process.pid, Path(folder) / "out" / "labels" / "00010.png")
        monitor.start()
        if process.wait() != 0:
            raise RuntimeError(f"the run of {frames} frames failed")
        monitor.join()
    return Footprint(frames, height_px, width_px, round(monitor.peak_kib / 1024, 1), monitor.files)


@dataclass(frozen=True)
class Sample:
    """The state of a run: the last frame it wrote, its memory, and its open files."""

    frame: int
    rss_mib: float
    open_files: int


def follow(frames: int, height_px: int, width_px: int) -> list[Sample]:
    """Run `timecycle propagate` on a clip and look at the process twice a second, from its tenth frame on."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder:
        clip, mask = _write_inputs(Path(folder), frames, height_px, width_px)
        command = [sys.executable, "-m", "timecycle", "propagate", str(clip), str(mask), "-o", f"{folder}/out"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        frame, labels = 0, Path(folder) / "out" / "labels"
        while process.poll() is None:
            while (labels / f"{frame + 1:05d}.png").exists():
                frame += 1
            if 10 <= frame < frames - 10:  # later files are those of the end of a run
                samples.append(_sample(process.pid, frame))
            time.sleep(0.5)
        if process.returncode != 0:
            raise RuntimeError(f"the run of {frames} frames failed")
    return samples


def _sample(pid: int, frame: int) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib = int(status.partition("VmRSS:")[2].split()[0])
    return Sample(frame, round(rss_kib / 1024, 1), len(list(Path(f"/proc/{pid}/fd").iterdir())))


def growth(samples: Sequence[Sample], after: int, rows: int = 20) -> dict[str, object]:
    """Return how far memory and open files rise after a frame, above what they are around it."""
    around = [one for one in samples if 0.9 * after <= one.frame <= 1.1 * after]
    later = [one for one in samples if one.frame > after]
    base_mib = statistics.median(one.rss_mib for one in around)
    return {
        f"rss_mib_at_frame_{after}": base_mib,
        "highest_rss_mib_later": max(one.rss_mib for one in later),
        "growth": round(max(one.rss_mib for one in later) / base_mib - 1, 4),
        "open_files_around": sorted({one.open_files for one in around}),
        "open_files_later": sorted({one.open_files for one in later}),
        "samples": len(samples),
        "course": [asdict(one) for one in samples[:: max(1, len(samples) // rows)]],
    }


def object_ratio(steps: int, height_px: int = 480, width_px: int = 854) -> dict[str, float]:
    """Return the mean seconds per frame with 1 and with 100 objects, timed in turns, and their ratio.

    The mean, because the target model is fitted on some frames only.
    """
    config = PropagateConfig()
    full = full_at(config)
    world = make_world(WorldConfig(height_px=height_px, width_px=width_px, frames=steps + full))
    encoder = load_encoder()
    propagators = {count: Propagator(encoder, config) for count in (1, 100)}
    seconds: dict[int, list[float]] = {count: [] for count in propagators}
    for t in range(len(world)):
        image = world.frame(t)
        for count, propagator in propagators.items():
            labels = Masks(tiled_mask(height_px, width_px, count)) if t == 0 else None
            began = time.perf_counter()
            propagator.step(image, labels)
            if t >= full:
                seconds[count].append(time.perf_counter() - began)
    one, hundred = (statistics.fmean(seconds[count]) for count in (1, 100))
    return {
        "seconds_1_object": round(one, 4),
        "seconds_100_objects": round(hundred, 4),
        "ratio_100_over_1": round(hundred / one, 3),
    }


class _Monitor(threading.Thread):
    """Monitors the peak memory of a process, and its open files once the file `started` exists."""

    def __init__(self, pid: int, started: Path) -> None:
        super().__init__(daemon=True)
        self.pid, self.started = pid, started
        self.peak_kib, self.files = 0, 0

    def run(self) -> None:
        folder = Path(f"/proc/{self.pid}")
        while True:
            try:
                status = (folder / "status").read_text()
                if "VmHWM" not in status:  # the process has ended
                    return
                self.peak_kib = int(status.partition("VmHWM:")[2].split()[0])
                if self.started.exists():
                    self.files = max(self.files, len(list((folder / "fd").iterdir())))
            except OSError:
                return
            time.sleep(0.02)


def _write_inputs(folder: Path, frames: int, height_px: int, width_px: int) -> tuple[Path, Path]:
    """Write a clip that repeats the same hundred frames, and the mask of its first frame."""
    world = make_world(WorldConfig(height_px=height_px, width_px=width_px, frames=100))
    images = world.video()
    timing = open_video(np.zeros((1, 2, 2, 3), np.uint8), fps=24)
    with VideoWriter(folder / "clip.mp4", Size(height_px, width_px), timing.time_base) as writer:
        for t in range(frames):
            writer.write(images[t % 100], t)
    Masks(world.mask(0)).write(folder / "first.png")
    return folder / "clip.mp4", folder / "first.png"


def main() -> None:
    began = time.monotonic()
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "memory":
        runs = [footprint(200, 64, 96), footprint(4000, 64, 96), footprint(200, 240, 320), footprint(1000, 240, 320)]
        measured: dict[str, object] = {"runs": [asdict(run) for run in runs]}
        measured["peak_4000_over_200_frames"] = round(runs[1].peak_rss_mib / runs[0].peak_rss_mib, 3)
        measured["peak_1000_over_200_frames_240p"] = round(runs[3].peak_rss_mib / runs[2].peak_rss_mib, 3)
        settings: dict[str, object] = {"preset": "default", "encoder": DEFAULT_ENCODER}
    elif what == "course":
        samples = follow(20_000, 64, 96)
        measured = {"frames": 20_000, "height_px": 64, "width_px": 96, **growth(samples, after=1000)}
        settings = {"preset": "default", "encoder": DEFAULT_ENCODER}
    elif what == "objects":
        measured = dict(object_ratio(24))
        settings = {"preset": "default", "encoder": DEFAULT_ENCODER, "size": "854x480", "frames": 24}
    else:
        sys.exit(__doc__)
    settings["weights_sha256"] = load_encoder().sha256
    path = write_record(f"scale_{what}", settings=settings, measured=measured, seconds=time.monotonic() - began)
    print(path.read_text())


if __name__ == "__main__":
    main()
