"""Estimate the capacity for large corpora: hours, bytes, memory and cost, with every price a parameter.

    python benchmarks/capacity.py [--hours 1e6] [--clips 1e8] [--core-hour 0.04] ...

Reads the records of benchmarks/corpus.py, cost.py and speed.py, and measures nothing itself.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from record import RESULTS

_TERA, _GIGA = 1e12, 1e9
NEEDED = ("corpus_pack", "corpus_load", "corpus_index", "corpus_train", "corpus_bulk", "cost", "speed_whole")


@dataclass(frozen=True)
class Assumptions:
    """Assumptions that are not measured: amounts, prices in dollars, and the hardware of a cluster."""

    hours: float = 1e6  # of video to train on
    clips: float = 1e8  # to label
    frames: int = 300  # of each
    chunk: int = 1000  # clips that are committed together
    core_hour: float = 0.04
    gpu_hour: float = 2.0
    gb_month: float = 0.023  # of an object store
    thousand_puts: float = 0.005
    gpu_tera_per_second: float = 60.0  # achieved, not peak
    gpus: int = 8000
    hours_between_failures: float = 6.0  # of the whole cluster


@dataclass(frozen=True)
class Line:
    """One amount of the table, and the measurement it is derived from."""

    what: str
    amount: str
    dollars: float | None
    how: str


@dataclass(frozen=True)
class Capacity:
    """Amounts for training on many hours of video and for labelling many clips."""

    training: Sequence[Line]
    labelling: Sequence[Line]
    save_every_minutes: float


def capacity(records: Mapping[str, Mapping[str, Any]], given: Assumptions) -> Capacity:
    packed, load, index, bulk = (records[f"corpus_{name}"]["measured"] for name in ("pack", "load", "index", "bulk"))
    cost = records["cost"]["measured"]["full"]
    seconds_480p = records["speed_whole"]["measured"]["seconds"]["whole_over_bare_fp32"]
    cores = records["speed_whole"]["machine"]["cores"]
    counts = packed["counts"]
    size = given.hours * packed["bytes_per_hour"]
    shards = size / _GIGA
    clips = given.hours * counts["clips"] / (counts["seconds"] / 3600)
    pack_hours = given.hours * packed["core_hours_per_hour"]
    load_hours = clips / load["clips_per_second"] / 3600
    tera_per_clip = cost["tera_operations_per_step"] / cost["clips_per_step"]
    gpu_hours = clips * tera_per_clip / given.gpu_tera_per_second / 3600
    mixed = index["clips_in_memory"] * (clips / shards) / index["clips_per_shard"]  # shards of 1 GB hold more
    list_bytes = shards * index["bytes_per_shard"] + mixed * index["bytes_per_clip"]
    training = (
        Line("pack, once", _hours(pack_hours, "core"), pack_hours * given.core_hour, "core-hours per hour of video"),
        Line("keep, a month", f"{_count(size / _TERA)} TB", shards * given.gb_month, "bytes per hour of video"),
        Line("shards of 1 GB", _count(shards), 2 * shards / 1e3 * given.thousand_puts, "a tar and its index each"),
        Line("clips", f"{_count(clips / 1e6)} million", None, "clips per hour of video"),
        Line("list of clips, in every process", f"{_count(list_bytes / 1e6)} MB", None, "shards and clips in use"),
        Line("decode, one pass", _hours(load_hours, "core"), load_hours * given.core_hour, "clips per second"),
        Line("learn, one pass", _hours(gpu_hours, "GPU"), gpu_hours * given.gpu_hour, "operations of `full`"),
    )
    frames = given.clips * given.frames
    label_hours = frames * seconds_480p * cores / 3600
    overhead_hours = given.clips * bulk["overhead_seconds_per_video"] / 3600
    objects = 2 * given.clips / given.chunk
    labelling = (
        Line("label at 480p", _hours(label_hours, "core"), label_hours * given.core_hour, "seconds per frame"),
        Line("engine", _hours(overhead_hours, "core"), overhead_hours * given.core_hour, "seconds per video"),
        Line(
            f"objects of chunks of {given.chunk:,}",
            _count(objects),
            objects / 1e3 * given.thousand_puts,
            "a tar and its records each",
        ),
    )
    save = records["corpus_train"]["measured"]["save"]["seconds"]
    between = given.hours_between_failures * 3600
    return Capacity(training, labelling, save_every_minutes=best_interval(save, between) / 60)


def best_interval(save_seconds: float, seconds_between_failures: float) -> float:
    """Return the interval between checkpoints of the lowest cost: saving costs save/t, a failure t/2 (Young 1974)."""
    return math.sqrt(2 * save_seconds * seconds_between_failures)


def _hours(amount: float, of: str) -> str:
    return f"{_count(amount)} {of}-hours"


def _count(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.2g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Assumptions):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    given = Assumptions(**vars(parser.parse_args()))
    result = capacity({name: json.loads((RESULTS / f"{name}.json").read_text()) for name in NEEDED}, given)
    for line in (*result.training, *result.labelling):
        dollars = "" if line.dollars is None else f"${line.dollars:,.0f}"
        print(f"{line.what:34}{line.amount:>26}{dollars:>14}   {line.how}")
    print(f"save every {result.save_every_minutes:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
