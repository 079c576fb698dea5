"""Measure packing, loading, training from S3 and bulk labelling, with a local S3 server, a Ray cluster and kills.

    python benchmarks/corpus.py RAW_VIDEO --work DIR [--only pack load train bulk] [--clips 300]

Needs the extras s3 and bulk, and rclone. Results: corpus_pack.json and so on, one per measurement.
"""

import argparse
import csv
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image

from kills import TINY
from record import write_record
from timecycle.config import train_config
from timecycle.data.augment.clips import ClipChoice, ClipConfig, choose_clip, read_clip
from timecycle.data.corpus.index import Entry, find_videos
from timecycle.data.corpus.order import generator
from timecycle.data.packing.footage import PackFootage
from timecycle.data.packing.pack import PackConfig, check_pack, pack, read_pack, read_shards
from timecycle.data.packing.shard_list import list_shards, summarise
from timecycle.data.packing.shards import Shard, ShardCache
from timecycle.files import make_folder
from timecycle.model.resnet import ResNet
from timecycle.store import FolderStore, open_store
from timecycle.training.record import save_checkpoint
from timecycle.video import VideoWriter, open_video

SHARED = Path(__file__).parents[1] / "tests" / "shared"
sys.path.append(str(SHARED))

from logged_training import samples  # noqa: E402
from s3_server import S3Server  # noqa: E402

_CONFIG = PackConfig(shard_mb=8)
_ADDRESS = "s3://bucket/pack"
_MEASUREMENTS = ("pack", "load", "train", "bulk")
_KILL_SECONDS = 30
_CORRUPT = 5  # videos
_CORRUPT_BYTES = 300  # to which they are truncated
_CLIP_FRAMES = 12
_COMPARED = 10  # videos whose output is compared with that of `timecycle propagate`


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=_MEASUREMENTS, choices=_MEASUREMENTS)
    parser.add_argument("--clips", type=int, default=300)
    chosen = parser.parse_args()
    work = make_folder(chosen.work)
    footage = some_videos(chosen.videos, work / f"videos{chosen.clips}", chosen.clips)
    server = S3Server(make_folder(work / "s3"))
    make_folder(server.root / "bucket")
    os.environ.update(server.environment)
    server.start()
    measurements: dict[str, Callable[[Path, Path, S3Server], Mapping[str, Any]]] = {
        "pack": measure_pack,
        "load": measure_load,
        "train": measure_train,
        "bulk": measure_bulk,
    }
    try:
        for name in chosen.only:
            began = time.monotonic()
            measured = measurements[name](footage, work, server)
            write_record(
                f"corpus_{name}",
                settings={"clips": chosen.clips, "shard_mb": _CONFIG.shard_mb},
                measured=dict(measured),
                seconds=time.monotonic() - began,
            )
            print(name, json.dumps(measured, indent=1), flush=True)
    finally:
        server.stop()
    return 0


def some_videos(videos: Path, folder: Path, count: int) -> Path:
    """Link `count` videos, evenly spaced in the list of all."""
    if not folder.exists():
        make_folder(folder)
        paths = list(find_videos(videos))
        for path in [paths[number * len(paths) // count] for number in range(count)]:
            (folder / path.replace("/", "_")).symlink_to((videos / path).resolve())
    return folder


# Packing


def measure_pack(footage: Path, work: Path, server: S3Server) -> dict[str, Any]:
    """Pack to a folder without interruption, to S3 with two kills, and with fewer videos."""
    for old in (server.root / "bucket" / "pack", work / "pack_folder", work / "pack_work", work / "pack_s3"):
        shutil.rmtree(old, ignore_errors=True)
    began = time.monotonic()
    whole = pack(footage, FolderStore(work / "pack_folder"), work / "pack_work", _CONFIG, workers=2)
    seconds = time.monotonic() - began
    command = ["pack", footage, _ADDRESS, "--work", work / "pack_s3", "--shard-mb", _CONFIG.shard_mb, "--workers", 2]
    shares = (1 / 3, 2 / 3)  # of the shards at each kill
    for share in shares:
        process = _start(command)
        _wait_until(lambda share=share: _tars(server) >= share * len(whole.shards), process)  # type: ignore[misc]
        _kill(process)
    _run(command)
    store = open_store(_ADDRESS)
    growth = []
    for divisor in (4, 2):
        some = some_videos(footage, work / f"part{divisor}", len(list(footage.iterdir())) // divisor)
        shutil.rmtree(work / "part_pack", ignore_errors=True)
        shutil.rmtree(work / "part_work", ignore_errors=True)
        start = time.monotonic()
        done = pack(some, FolderStore(work / "part_pack"), work / "part_work", _CONFIG, workers=2)
        growth.append({"videos": done.counts.videos, "seconds": round(time.monotonic() - start, 1)})
    growth.append({"videos": whole.counts.videos, "seconds": round(seconds, 1)})
    size = sum(shard.size for shard in whole.shards)
    return {
        "counts": vars(whole.counts),
        "shards": len(whole.shards),
        "bytes": size,
        "bytes_per_hour": size / (whole.counts.seconds / 3600),
        "kills": len(shares),
        "same_shards_after_kills": read_pack(store).shards == whole.shards,
        "differing_after_reading_back": check_pack(store),
        "core_hours_per_hour": 2 * seconds / whole.counts.seconds,
        "growth": growth,
    }


def _tars(server: S3Server) -> int:
    return len(list((server.root / "bucket" / "pack").glob("*.tar")))


# Loading


def measure_load(footage: Path, work: Path, server: S3Server) -> dict[str, Any]:
    """Compare loading clips from S3 with plain decoding and resizing of the same frames from disk, in turns."""
    store, shards = _packed(footage, work)
    entries = [entry for shard in shards for entry in shard.entries()]
    config = ClipConfig(min_motion=0)
    files = _files_on_disk(store, entries, work / "load_files")
    ratios, ours_rate = [], []
    turns = 10
    for turn in range(turns):
        shutil.rmtree(work / "load_cache", ignore_errors=True)
        cache = ShardCache(store, work / "load_cache", limit_bytes=1e9)
        summaries = (summarise(shard, is_usable=lambda _: True) for shard in shards)
        listed = list_shards(summaries, 0.0, clip_frames=config.frames)
        reader = PackFootage(cache, listed, "training", is_usable=lambda _: True, mixed_shards=4)
        order = reader.order(seed=turn)
        samples = [entries[order.sample(0, position)] for position in range(len(entries) // 2)]
        choices = [
            choose_clip(entry, config, generator(seed=turn, epoch=0, position=position))
            for position, entry in enumerate(samples)
        ]
        began = time.perf_counter()
        ours = [read_clip(reader.path(e), e, c, config) for e, c in zip(samples, choices, strict=True)]
        middle = time.perf_counter()
        plain = [_plain_read(files[e.path], e, c, config) for e, c in zip(samples, choices, strict=True)]
        end = time.perf_counter()
        if not all(np.array_equal(one, other) for one, other in zip(ours, plain, strict=True)):
            raise SystemExit("error: clips from S3 and from disk have different pixels")
        ratios.append((end - middle) / (middle - began))
        ours_rate.append(len(samples) / (middle - began))
    return {
        "throughput_over_bare": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "clips_per_second": round(statistics.median(ours_rate), 1),
        "clips_per_turn": len(entries) // 2,
        "frames_per_clip": config.frames,
    }


def _packed(footage: Path, work: Path) -> tuple[Any, Sequence[Shard]]:
    store = open_store(_ADDRESS)
    return store, list(read_shards(store, pack(footage, store, work / "pack_s3", _CONFIG, workers=2)))


def _files_on_disk(store: Any, entries: Sequence[Entry], folder: Path) -> dict[str, Path]:
    cache = ShardCache(store, folder, limit_bytes=1e12)
    return {entry.path: cache.folder(entry.path.split("/")[0]) / Path(entry.path).name for entry in entries}


def _plain_read(path: Path, entry: Entry, choice: ClipChoice, config: ClipConfig) -> np.ndarray:
    """Decode up to the last chosen frame; convert, resize and crop the chosen frames."""
    wanted, pictures = set(choice.frames), []
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "NONE"
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                pictures.append(_resized_crop(frame.to_ndarray(format="rgb24"), entry, choice, config))
            if number == choice.frames[-1]:
                break
    return np.stack(pictures)


def _resized_crop(image: np.ndarray, entry: Entry, choice: ClipChoice, config: ClipConfig) -> np.ndarray:
    box, side = entry.box, config.crop_px
    picture = Image.fromarray(image[box.top : box.bottom, box.left : box.right])
    scale = choice.short_side_px / min(box.width_px, box.height_px)
    scale_x, scale_y = picture.width / round(picture.width * scale), picture.height / round(picture.height * scale)
    left, top = choice.left_px, choice.top_px
    source = (
        left * scale_x,
        top * scale_y,
        min((left + side) * scale_x, picture.width),
        min((top + side) * scale_y, picture.height),
    )
    crop = np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR, box=source))
    return crop[:, ::-1] if choice.is_flipped else crop


# Training

_STEPS, _BATCH = 120, 4
_SETTINGS = (
    *(*TINY, "held_out=0.1", "precision=fp32", "checkpoint_every=5", "mixed_shards=4", f"batch={_BATCH}"),
    *(f"steps={_STEPS}", "validate_every=10000"),
)


def measure_train(footage: Path, work: Path, server: S3Server) -> dict[str, Any]:
    """Train with ten kills, with 2 -> 1 -> 2 processes, and with the server down for 20 s; compare the clips read."""
    _packed(footage, work)
    here = work / "train"
    shutil.rmtree(here, ignore_errors=True)
    make_folder(here)

    def start(name: str, *, world: int = 1, last: int = 0) -> subprocess.Popen[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"] if world > 1 else []
        program = SHARED / "logged_training.py"
        arguments = [_ADDRESS, here / name, here / "cache", here / f"{name}.txt", 100, last, 0.08, *_SETTINGS]
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        return subprocess.Popen(
            [sys.executable, *launcher, str(program), *map(str, arguments)],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    _wait(start("uninterrupted"))
    kills = sorted(random.Random(0).sample(range(2, _STEPS - 5), 10))
    for step in kills:
        process = start("killed")
        _read_until(process, step)
        _kill(process)
    _wait(start("killed"))
    for world, last in ((2, _STEPS // 3), (1, 2 * _STEPS // 3), (2, _STEPS)):
        _wait(start("world_sizes", world=world, last=last))
    shutil.rmtree(here / "cache")
    process = start("outage")
    _read_until(process, 2)
    server.stop()
    timer = threading.Timer(20, server.start)
    timer.start()
    _wait(process)
    timer.join()
    expected = samples(here / "uninterrupted.txt")
    count = 1 + max(position for _, position in expected)
    read = [divmod(number, count) for number in range(_STEPS * _BATCH)]  # (epoch, position)
    same = {
        name: [samples(here / f"{name}.txt").get(key) for key in read] == [expected[key] for key in read]
        for name in ("killed", "world_sizes", "outage")
    }
    weights = {
        name: hashlib.sha256((here / name / "weights.safetensors").read_bytes()).hexdigest()
        for name in ("uninterrupted", "killed", "outage")
    }
    return {
        "steps": _STEPS,
        "kills_at_steps": kills,
        "same_sequence": same,
        "clips": len(read),
        "different_clips_in_an_epoch": len({expected[key] for key in read if key[0] == 0}),
        "same_weights": {name: digest == weights["uninterrupted"] for name, digest in weights.items()},
        "server_down_seconds": 20,
        "save": _save_cost(here),
    }


def _save_cost(folder: Path) -> dict[str, float]:
    """Measure saving a checkpoint of the size of the preset `full`: weights and optimizer state."""
    weights = ResNet(train_config("full").encoder).state_dict()
    state = {name: {key: value.clone() for key, value in weights.items()} for name in ("weights", "mean", "square")}
    seconds = []
    for step in range(5):
        began = time.perf_counter()
        path = save_checkpoint(folder / "saved", step, state)
        seconds.append(time.perf_counter() - began)
    return {"bytes": path.stat().st_size, "seconds": round(statistics.median(seconds), 3)}


# Bulk labelling


def measure_bulk(footage: Path, work: Path, server: S3Server) -> dict[str, Any]:
    """Label all videos on two workers; kill a worker every 30 s and the driver once; five files are corrupt."""
    here = work / "bulk"
    shutil.rmtree(here, ignore_errors=True)
    manifest = _manifest(footage, make_folder(here))
    settings = ["--preset", "fast", "--set", "image_size_px=96"]
    on_ray = ["bulk", manifest, *settings, "--ray", "local", "--workers"]
    began = time.monotonic()
    _run([*on_ray, 1, "-o", here / "one"])
    one = time.monotonic() - began
    _run([*on_ray, 2, "-o", here / "two"])
    _run(["bulk", manifest, *settings, "-o", here / "plain"])
    command = [*on_ray, 2, "-o", here / "killed"]
    stop = threading.Event()
    killed: list[int] = []
    killer = threading.Thread(target=_kill_workers, args=(stop, killed))
    killer.start()
    process = _start(command)
    half = len(list(footage.iterdir())) // 2
    _wait_until(lambda: len(list((here / "killed" / "records").glob("*.json"))) >= half, process)
    _kill(process)
    before = {path: path.stat().st_mtime_ns for path in (here / "killed" / "records").glob("*.json")}
    _run(command)
    stop.set()
    killer.join()
    names = sorted(path.stem for path in (here / "killed" / "records").glob("*.json"))
    compared = names[:: max(1, len(names) // _COMPARED)][:_COMPARED]
    for name in compared:
        _run(["propagate", here / f"{name}.mp4", here / f"{name}.png", *settings, "-o", here / "propagate" / name])
    rates = {name: json.loads((here / name / "summary.json").read_text()) for name in ("one", "two", "plain")}
    return {
        "videos": len(list(footage.iterdir())),
        "frames": rates["one"]["frames"],
        "done": len(names),
        "dead_letters": len((here / "killed" / "dead.jsonl").read_text().splitlines()),
        "workers_killed": len(killed),
        "repeated_after_driver_kill": sum(path.stat().st_mtime_ns != changed for path, changed in before.items()),
        "outputs_equal_to_one_process": all(_same(here / "plain" / name, here / "killed" / name) for name in names),
        "outputs_equal_to_propagate": all(
            _same(here / "propagate" / name, here / "killed" / name) for name in compared
        ),
        "outputs_compared_with_propagate": len(compared),
        "efficiency_of_two_workers": rates["one"]["seconds"] / (2 * rates["two"]["seconds"]),
        "labelling_seconds": {name: rate["seconds"] for name, rate in rates.items()},
        "overhead_seconds_per_video": (rates["one"]["seconds"] - rates["plain"]["seconds"]) / len(names),
        "cluster_start_seconds": one - rates["one"]["seconds"],
    }


def _manifest(footage: Path, folder: Path) -> Path:
    """Write short clips of the videos, each with a box in the middle of its first frame; some are truncated."""
    corrupt = set(random.Random(0).sample(range(len(list(footage.iterdir()))), _CORRUPT))
    with (folder / "videos.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["video", "labels"])
        for number, path in enumerate(sorted(footage.iterdir())):
            with open_video(path) as video:
                height, width = video.size.height_px, video.size.width_px
                clip = folder / f"{number:04d}.mp4"
                with VideoWriter(clip, video.size, video.time_base) as writer:
                    for frame in itertools.islice(video.frames(), _CLIP_FRAMES):
                        writer.write(frame.image, frame.pts)
            mask = np.zeros((height, width), np.uint8)
            mask[height // 4 : 3 * height // 4, width // 4 : 3 * width // 4] = 1
            Image.fromarray(mask).save(folder / f"{number:04d}.png")
            if number in corrupt:
                clip.write_bytes(clip.read_bytes()[:_CORRUPT_BYTES])
            table.writerow([clip.name, f"{number:04d}.png"])
    return folder / "videos.csv"


def _same(one: Path, other: Path) -> bool:
    names = [{p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} for folder in (one, other)]
    return names[0] == names[1] and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names[0] - {"run.json"}
    )


def _kill_workers(stop: threading.Event, killed: list[int]) -> None:
    while not stop.wait(_KILL_SECONDS):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().startswith(b"ray::process_video"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    killed.append(int(path.parent.name))
                    break
            except (FileNotFoundError, ProcessLookupError):
                continue


# Processes


def _start(command: Sequence[object]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "timecycle", *map(str, command)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _run(command: Sequence[object]) -> None:
    _wait(_start(command), may_fail=command[0] == "bulk")


def _wait(process: subprocess.Popen[str], *, may_fail: bool = False) -> None:
    """Wait for a process; bulk runs end with exit code 1, as some of their videos are corrupt."""
    process.communicate()
    if process.returncode not in ((0, 1) if may_fail else (0,)):
        raise SystemExit(f"error: {process.args!r} ended with {process.returncode}")


def _kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        if process.poll() is not None:
            raise SystemExit(f"error: {process.args!r} ended before it could be killed")
        time.sleep(0.05)


def _read_until(process: subprocess.Popen[str], step: int) -> None:
    for line in process.stdout or ():
        if int(line) >= step:
            return
    raise SystemExit(f"error: {process.args!r} ended before step {step}")


if __name__ == "__main__":
    sys.exit(main())
