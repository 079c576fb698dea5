"""Measure what a process holds of a pack with many clips, and how soon it starts: corpus_index.json.

    python benchmarks/clip_index.py --work DIR [--clips 10000 100000 1000000]

The packs are made of records: every shard has its own index, and all share one tar of tiny clips. Each measurement
runs in a process of its own. `all_clips` holds the list of all clips instead, as a reference.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from record import write_record
from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.order import ShardOrder
from timecycle.data.corpus.probe import Box
from timecycle.data.corpus.split import SplitRule
from timecycle.data.packing.footage import PackFootage
from timecycle.data.packing.pack import Counts, Pack, PackConfig, PackedShard, read_shards
from timecycle.data.packing.shard_list import ShardList, list_shards, read_shard_list, summarise_pack, write_shard_list
from timecycle.data.packing.shards import PackedClip, Shard, ShardCache, shard_name, shard_text, write_shard
from timecycle.files import make_folder
from timecycle.speed.timing import peak_process_bytes
from timecycle.store import FolderStore

_CLIPS_PER_SHARD = 1500  # of 256 MB
_CLIPS_PER_VIDEO = 12  # of two minutes
_MIXED = 8
_HELD_OUT = 0.05
_MB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--clips", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--measure", choices=sorted(_MEASUREMENTS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure is not None:
        print(json.dumps(_MEASUREMENTS[chosen.measure](chosen.work)))
        return 0
    began = time.monotonic()
    growth = []
    for clips in chosen.clips:
        folder = chosen.work / f"pack{clips}"
        make_pack(folder, clips)
        growth.append({"shards": -(-clips // _CLIPS_PER_SHARD), "clips": clips} | _measured("all_clips", folder))
        for name in ("first_start", "first_start_two", "next_start"):
            growth[-1] |= _measured(name, folder)
        print(json.dumps(growth[-1]), flush=True)
    largest = growth[-1]
    measured = {
        "growth": growth,
        "bytes_per_clip": round(largest["all_clips_mb"] * _MB / largest["clips"]),
        "bytes_per_shard": measure_shards(),
        "clips_per_shard": _CLIPS_PER_SHARD,
        "clips_in_memory": 2 * _MIXED * _CLIPS_PER_SHARD,
    }
    settings = {"clips_per_shard": _CLIPS_PER_SHARD, "clips_per_video": _CLIPS_PER_VIDEO, "mixed_shards": _MIXED}
    write_record("corpus_index", settings=settings, measured=measured, seconds=time.monotonic() - began)
    return 0


def make_pack(folder: Path, clips: int) -> None:
    """Make a pack of records, unless it is there."""
    if (folder / "made").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder / "tiny")
    for number in range(_CLIPS_PER_SHARD):
        (folder / "tiny" / f"{number}.mp4").write_bytes(f"clip {number}".encode())
    one = _clip("")
    with (folder / "first.tar").open("w+b") as file:
        model = write_shard(file, shard_name(0), [(one, path) for path in sorted((folder / "tiny").iterdir())])
    for number, first in enumerate(range(0, clips, _CLIPS_PER_SHARD)):
        name = shard_name(number)
        members = tuple(
            dataclasses.replace(member, clip=_clip(f"videos/{(first + at) // _CLIPS_PER_VIDEO:08d}.mp4"))
            for at, member in enumerate(model.members[: clips - first])
        )
        (folder / f"{name}.json").write_text(shard_text(Shard(name, model.size, model.sha256, members)))
        os.link(folder / "first.tar", folder / f"{name}.tar")
    (folder / "made").touch()


def _clip(source: str) -> PackedClip:
    whole = Box(0, 0, 340, 256)
    return PackedClip(
        frames=120, fps=12.0, width_px=340, height_px=256, box=whole, motion=3.0, source=source, start_seconds=0.0
    )


def _pack_of(folder: Path) -> Pack:
    """Describe the pack without reading the indexes of its shards."""
    names = sorted(path.stem for path in folder.glob("shard-*.json"))
    sizes = {name: (folder / f"{name}.tar").stat().st_size for name in names}
    text = (folder / f"{names[0]}.json").read_text()
    sha256, total = json.loads(text)["sha256"], int(folder.name.removeprefix("pack"))
    left = [min(_CLIPS_PER_SHARD, total - number * _CLIPS_PER_SHARD) for number in range(len(names))]
    shards = tuple(PackedShard(name, sizes[name], sha256, clips) for name, clips in zip(names, left, strict=True))
    return Pack(config=PackConfig(), shards=shards, counts=Counts())


# In processes of their own


def _measured(name: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--work", str(folder), "--measure", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return {f"{name}_{key}": value for key, value in measured.items()}


def measure_all_clips(folder: Path) -> dict[str, float]:
    """Hold every clip."""
    before, began = _peak_mb(), time.perf_counter()
    held = [entry for shard in read_shards(FolderStore(folder), _pack_of(folder)) for entry in shard.entries()]
    return {"seconds": round(time.perf_counter() - began, 3), "mb": round(_peak_mb() - before, 1), "held": len(held)}


def measure_first_start(folder: Path, processes: int = 0) -> dict[str, float]:
    """Read the index of every shard once, and write the list of shards; memory of this process alone."""
    before, began = _peak_mb(), time.perf_counter()
    summaries = summarise_pack(str(folder), _pack_of(folder).shards, is_usable=is_moving, processes=processes)
    write_shard_list(folder, list_shards(summaries, _HELD_OUT, clip_frames=4))
    return {"seconds": round(time.perf_counter() - began, 3), "mb": round(_peak_mb() - before, 1)}


def measure_next_start(folder: Path) -> dict[str, float]:
    """Read the list of shards, then look up the clips of two groups twice: the second time nothing is read."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    before, began = _peak_mb(), time.perf_counter()
    shards = read_shard_list(folder)
    cache = ShardCache(FolderStore(folder), folder / "cache", limit_bytes=1e12)
    footage = PackFootage(cache, shards, "training", is_usable=is_moving, mixed_shards=_MIXED)
    order = footage.order(seed=0)
    seconds, listed_mb = time.perf_counter() - began, _peak_mb() - before
    positions = range(min(len(footage), 2 * _MIXED * _CLIPS_PER_SHARD * 9 // 10))
    for position in positions:
        footage[order.sample(0, position)]
    began = time.perf_counter()
    for position in positions:
        footage[order.sample(0, position)]
    lookup = (time.perf_counter() - began) / len(positions)
    shutil.rmtree(folder / "cache", ignore_errors=True)  # the next shards are being fetched
    return {
        "seconds": round(seconds, 3),
        "list_mb": round(listed_mb, 1),
        "mb": round(_peak_mb() - before, 1),
        "microseconds_per_sample": round(1e6 * lookup, 1),
    }


def measure_shards(count: int = 100_000) -> int:
    """Return the bytes that a process holds for each shard: the list of shards and the order of an epoch."""
    tracemalloc.start()
    numbers = np.arange(count)
    listed = ShardList(
        numbers=numbers,
        checksums=np.zeros((count, 32), np.uint8),
        usable=numbers + 1,
        training=numbers + 1,
        held_out=numbers * 0,
        rule=SplitRule(below=0.0),
        share=0.0,
        clip_frames=4,
    )
    order = ShardOrder(listed.training, seed=0, mixed_shards=_MIXED)
    for epoch in range(2):
        order.shards(epoch, 0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(size / count)


def is_moving(entry: Entry) -> bool:
    return not entry.is_static


_MEASUREMENTS: dict[str, Callable[[Path], dict[str, float]]] = {
    "all_clips": measure_all_clips,
    "first_start": measure_first_start,
    "first_start_two": partial(measure_first_start, processes=2),
    "next_start": measure_next_start,
}


def _peak_mb() -> float:
    return (peak_process_bytes() or 0) / _MB


if __name__ == "__main__":
    sys.exit(main())
