"""The list of a pack's shards that a run keeps: how many clips of each are trained on, and how many are held out.

RUN/shards.jsonl is written when a run begins, by reading the index of every shard once. From then on a process holds a
few numbers for each shard, and the clips of the shards that it is reading: a pack may have more clips than fit into
memory. The list is frozen, because the pack may grow later, which would change the order of the clips.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8

from timecycle.concurrency import ordered, read_ahead, worker_processes
from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.split import (
    SceneHashes,
    SplitRule,
    hash_scenes,
    scene_of,
    split_in_time,
    split_positions,
    split_rule,
)
from timecycle.data.packing.pack import PackedShard, read_listed
from timecycle.data.packing.shards import Shard, shard_name
from timecycle.errors import DamagedError, OutputError, StoreError
from timecycle.files import write_text
from timecycle.store import Store, open_store

Part = Literal["training", "held_out"]
PARTS: tuple[Part, Part] = ("training", "held_out")

SHARD_LIST = "shards.jsonl"
_FORMAT = {"timecycle_shards": 1}
_SHARDS_PER_PROCESS = 64  # with fewer, starting a process takes longer than it saves
_COLUMNS = ("shard", "usable", "training", "held_out")
_BAD_LIST = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardList:
    """The shards of a pack: number, checksum and numbers of clips."""

    numbers: Int64[np.ndarray, " shards"]
    checksums: UInt8[np.ndarray, "shards 32"]
    usable: Int64[np.ndarray, " shards"]  # clips, also those in the gap between training and held-out clips
    training: Int64[np.ndarray, " shards"]
    held_out: Int64[np.ndarray, " shards"]
    rule: SplitRule
    share: float  # of clips that were to be held out
    clip_frames: int

    def __len__(self) -> int:
        return len(self.numbers)

    def count(self, part: Part) -> Int64[np.ndarray, " shards"]:
        """Return the number of clips of each shard."""
        return self.training if part == "training" else self.held_out

    def clips(self, position: int, shard: Shard, part: Part, *, is_usable: Callable[[Entry], bool]) -> list[Entry]:
        """Return the clips of the shard at a position of the list."""
        entries = [entry for entry in shard.entries() if is_usable(entry)]
        known = (int(self.numbers[position]), self.checksums[position].tobytes(), int(self.usable[position]))
        if (_number(shard), bytes.fromhex(shard.sha256), len(entries)) != known:
            raise DamagedError(f"{shard.name} is not the one that the run began with", remedy="begin a new run")
        if self.rule.in_time:
            return self._in_time(position, entries, part)
        scenes = [scene_of(entry) for entry in entries]
        held_out = self.rule.holds_out(hash_scenes(scenes))
        return [entry for entry, held in zip(entries, held_out, strict=True) if held == (part == "held_out")]

    def _in_time(self, position: int, entries: list[Entry], part: Part) -> list[Entry]:
        if entries and self.usable.sum() == 1:
            first, last = split_in_time(entries, self.share, self.clip_frames)
            return [*(first if part == "training" else last).entries]
        count = int(self.count(part)[position])
        return entries[:count] if part == "training" else entries[len(entries) - count :]


class ShardSummary(NamedTuple):
    """What the list needs to know of a shard: its scenes as hashes, and how many usable clips each has."""

    number: int
    checksum: bytes
    scenes: SceneHashes
    clips: Int64[np.ndarray, " scenes"]


def summarise(shard: Shard, *, is_usable: Callable[[Entry], bool]) -> ShardSummary:
    """Count the clips of a shard."""
    scenes = Counter(scene_of(entry) for entry in shard.entries() if is_usable(entry))
    clips = np.array([*scenes.values()], np.int64)
    return ShardSummary(_number(shard), bytes.fromhex(shard.sha256), hash_scenes(list(scenes)), clips)


def summarise_pack(
    location: str, shards: Sequence[PackedShard], *, is_usable: Callable[[Entry], bool], processes: int = 0
) -> Iterator[ShardSummary]:
    """Read the indexes of all shards of a pack once; of many, up to `processes` processes share the work."""
    workers = min(processes, len(shards) // _SHARDS_PER_PROCESS)
    if workers < 2:
        yield from read_ahead(partial(_summarise_listed, open_store(location), is_usable), shards)
        return
    job = partial(_summarise_in_worker, location, is_usable)
    try:
        yield from ordered(worker_processes(workers), job, shards, ahead=4 * workers)
    except BrokenProcessPool as error:
        raise StoreError(
            f"a process that reads the shards of {location} was killed, perhaps for lack of memory",
            remedy="run it again; a script must start workers below `if __name__ == '__main__':`",
        ) from error


def _summarise_listed(store: Store, is_usable: Callable[[Entry], bool], listed: PackedShard) -> ShardSummary:
    return summarise(read_listed(store, listed), is_usable=is_usable)


def _summarise_in_worker(location: str, is_usable: Callable[[Entry], bool], listed: PackedShard) -> ShardSummary:
    return _summarise_listed(_open_once(location), is_usable, listed)


_open_once = lru_cache(maxsize=1)(open_store)  # in each worker, which ends with its pack


def list_shards(summaries: Iterable[ShardSummary], share: float, *, clip_frames: int) -> ShardList:
    """List the shards of a pack, with the clips of each that are trained on and held out."""
    shards = list(summaries)
    rule = split_rule(np.concatenate([np.zeros((0, 2), np.uint64), *(shard.scenes for shard in shards)]), share)
    usable = np.array([shard.clips.sum() for shard in shards], np.int64)
    if rule.in_time and usable.sum():
        training, held_out = _counts_in_time(usable, share)
    else:
        held_out = np.array([shard.clips[rule.holds_out(shard.scenes)].sum() for shard in shards], np.int64)
        training = usable - held_out
    return ShardList(
        numbers=np.array([shard.number for shard in shards], np.int64),
        checksums=np.frombuffer(b"".join(shard.checksum for shard in shards), np.uint8).reshape(-1, 32),
        usable=usable,
        training=training,
        held_out=held_out,
        rule=rule,
        share=share,
        clip_frames=clip_frames,
    )


def _counts_in_time(usable: Int64[np.ndarray, " shards"], share: float) -> tuple[np.ndarray, np.ndarray]:
    """Count the first clips of a single scene, and its last ones."""
    total = int(usable.sum())
    if total == 1:  # its frames are split
        return usable, usable
    kept, held = (len(part) for part in split_positions(total, share))
    stops = np.cumsum(usable)
    starts = stops - usable
    return np.clip(kept - starts, 0, usable), np.clip(stops - (total - held), 0, usable)


def write_shard_list(folder: Path, shards: ShardList) -> None:
    """Write RUN/shards.jsonl: a line about the split, then one for each shard."""
    rule = shards.rule
    head = {
        **_FORMAT,
        "held_out_share": shards.share,
        "clip_frames": shards.clip_frames,
        "held_out_below": rule.below,
        "repeated_names": sorted(rule.repeated),
        "in_time": rule.in_time,
    }
    columns = (shards.numbers, shards.checksums, shards.usable, shards.training, shards.held_out)
    lines = (
        {"shard": int(number), "sha256": sha.tobytes().hex(), "usable": int(u), "training": int(t), "held_out": int(h)}
        for number, sha, u, t, h in zip(*columns, strict=True)
    )
    write_text(folder / SHARD_LIST, "".join(json.dumps(line) + "\n" for line in (head, *lines)))


def read_shard_list(folder: Path) -> ShardList:
    """Read RUN/shards.jsonl."""
    path = folder / SHARD_LIST
    if not path.is_file():
        raise OutputError(f"{folder} has no {SHARD_LIST}", remedy="begin a new run: this one was not begun with a pack")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = json.loads(file.readline())
            if head.pop("timecycle_shards", None) != _FORMAT["timecycle_shards"]:
                raise ValueError("not the first line of a list of shards")
            return _shard_list(head, (json.loads(line) for line in file))
    except _BAD_LIST as error:
        raise OutputError(f"{path} is not a list of shards: {error}", remedy="begin a new run") from error


def _shard_list(head: dict[str, Any], lines: Iterable[dict[str, Any]]) -> ShardList:
    rows = [(bytes.fromhex(line["sha256"]), [line[name] for name in _COLUMNS]) for line in lines]
    columns = np.array([row for _, row in rows]).reshape(-1, len(_COLUMNS))
    numbers, usable, training, held_out = columns.astype(np.int64, casting="safe").T
    if any(len(checksum) != 32 for checksum, _ in rows) or (columns.size and columns.min() < 0):
        raise ValueError("a checksum or a number of clips cannot be")
    below, repeated = head["held_out_below"], head["repeated_names"]
    return ShardList(
        numbers=numbers,
        checksums=np.frombuffer(b"".join(checksum for checksum, _ in rows), np.uint8).reshape(-1, 32),
        usable=usable,
        training=training,
        held_out=held_out,
        rule=SplitRule(
            below=float(below), repeated=frozenset(int(name) for name in repeated), in_time=bool(head["in_time"])
        ),
        share=float(head["held_out_share"]),
        clip_frames=int(head["clip_frames"]),
    )


def _number(shard: Shard) -> int:
    number = int(shard.name.removeprefix("shard-"))
    if shard_name(number) != shard.name:
        raise DamagedError(f"a shard of the pack is called {shard.name}", remedy="pack the videos again")
    return number
