"""Output folders, packs, manifests and training runs for benchmarks/fuzz.py."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from fuzz_kind import Kind, expect
from fuzz_media import in_file, world
from fuzz_mutations import (
    changed_csv,
    changed_json,
    changed_json_lines,
    changed_png,
    changed_safetensors,
    changed_zip,
    damaged,
)
from kills import TINY
from timecycle.bulk.manifest import read_manifest
from timecycle.config import train_config
from timecycle.data.corpus.index import read_index
from timecycle.data.packing.pack import PackConfig, check_pack, pack, read_pack, read_shards
from timecycle.data.packing.shards import ShardCache
from timecycle.errors import TimecycleError
from timecycle.files import prepend_checksum
from timecycle.labels import Masks, read_labels
from timecycle.model.registry import load_encoder
from timecycle.model.resnet import random_resnet
from timecycle.propagation import video as propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.audit import audit
from timecycle.review.check import check
from timecycle.review.corrections import correct, undo
from timecycle.runs.folder import OutputFolder
from timecycle.runs.run import RunSpec, run
from timecycle.store import open_store
from timecycle.synthetic import WorldConfig, make_world
from timecycle.training.corpus import VideoSource, read_corpus
from timecycle.training.record import check_record, load_newest, read_journal, read_licence, read_start
from timecycle.training.step import State
from timecycle.training.trainer import train
from timecycle.video import Size, VideoWriter, open_video

_CONFIG = PropagateConfig(window_px=16, anchor_window_px=16, past_frames=2)
_TIME_NS = 1_700_000_000_000_000_000

Files = dict[str, bytes]


# Folders


def files_of(folder: Path) -> Files:
    """The content of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def write_files(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def damage_files(chance: Random, files: Files, names: Sequence[str]) -> tuple[Files, str]:
    """The files of which one is changed, gone, empty or in the place of another; and its name."""
    name, act = chance.choice(names), chance.random()
    changed = dict(files)
    if act < 0.06:
        del changed[name]
    elif act < 0.1:
        changed[name] = b""
    elif act < 0.16:
        changed[name] = files[chance.choice(names)]
    else:
        changed[name] = _changer(name)(chance, files[name])
    return changed, name


def _changer(name: str) -> Callable[[Random, bytes], bytes]:
    suffixes = {
        ".json": changed_json,
        ".jsonl": changed_json_lines,
        ".csv": changed_csv,
        ".png": lambda chance, content: (changed_png if chance.random() < 0.5 else damaged)(chance, content),
    }
    return suffixes.get(Path(name).suffix, damaged)


def _read(acts: Sequence[Callable[[], object]]) -> None:
    """Do all of it; the first refusal is told when every one has had its turn."""
    refused: TimecycleError | None = None
    for act in acts:
        try:
            act()
        except TimecycleError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def _often(names: Sequence[str], many: Sequence[str]) -> list[str]:
    """Names to draw from, of which the few that are read first come as often as all others together."""
    few = [name for name in names if name in many]
    return [*names, *(few * max(1, len(names) // max(1, len(few))))]


# Runs


@dataclass(frozen=True)
class WholeRun:
    """The files of a run, of the same run when it is done or before it was corrected, and what it was made of."""

    files: Files
    other: Files
    task: RunSpec
    names: Sequence[str]


@dataclass(frozen=True)
class DamagedRun:
    """A copy in which one file is another."""

    folder: Path
    whole: WholeRun
    name: str
    forged: bool = False  # with checksums that are right


def _task() -> RunSpec:
    clip = world()
    video = open_video(clip.video(), fps=12)
    return RunSpec(video=video, labels={0: Masks(clip.mask(0))}, encoder=load_encoder("rgb"), config=_CONFIG)


def _settled(folder: Path) -> Files:
    """The files of a run without what the clock says in them."""
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 1.0}, indent=2))
    return files_of(folder)


def whole_finished(folder: Path) -> WholeRun:
    """A finished run with one correction."""
    task = _task()
    run(task, folder / "out")
    before = _settled(folder / "out")
    correct(folder / "out", {4: Masks(world().mask(4))}, video=task.video, encoder=task.encoder)
    check(folder / "out")
    files = _settled(folder / "out")
    return WholeRun(
        files, before, task, _often(list(files), ("run.json", "frames.csv", "objects.csv", "history/0001/entry.json"))
    )


class _Stopped(Exception):  # noqa: N818  it is no error
    pass


def whole_unfinished(folder: Path) -> WholeRun:
    """A run that was stopped half-way, with snapshots to go on from."""

    def stop(done: int, total: int) -> None:
        if done == total - 2:
            raise _Stopped

    setattr(propagate, "_SNAPSHOT_FRAMES", 3)  # noqa: B010  of a video of eight, not fifty
    task = replace(_task(), labels={0: Masks(world().mask(0)), 7: Masks(world().mask(7))})
    run(task, folder / "whole")
    with suppress(_Stopped):
        run(task, folder / "out", progress=stop)
    files = files_of(folder / "out")
    files.pop(".lock", None)
    often = [name for name in files if name.startswith(".work/") or name.endswith((".json", ".csv"))]
    return WholeRun(files, _lasting(folder / "whole"), task, _often(list(files), often))


def _lasting(folder: Path) -> Files:
    """What a resumed run must give to the byte: all but its record, pictures for people and intermediate files."""
    names = ("run.json", "overlay.mp4", "contact.png")
    return {
        name: content for name, content in files_of(folder).items() if name not in names and not name.startswith(".")
    }


def damage_run(chance: Random, whole: WholeRun, folder: Path) -> DamagedRun:
    """A copy in which one file is another."""
    files, name = damage_files(chance, whole.files, whole.names)
    forged = name.endswith((".snapshot", ".soft")) and chance.random() < 0.5
    if forged:
        files[name] = _sealed_again(chance, whole.files[name])
    write_files(files, folder / "out")
    return DamagedRun(folder / "out", whole, name, forged=forged)


def _sealed_again(chance: Random, sealed: bytes) -> bytes:
    """What a run keeps to go on from, changed by somebody who knows how: its checksum is right."""
    content = sealed[len(prepend_checksum(b"")) :]
    end = 4 + int.from_bytes(content[:4], "little")
    head, body = content[4:end], content[end:]
    if chance.random() < 0.5:
        head = changed_json(chance, head)
    else:
        body = changed_safetensors(chance, body) if body[8:9] == b"{" else damaged(chance, body)
    return prepend_checksum(len(head).to_bytes(4, "little") + head + body)


def read_finished(case: DamagedRun) -> None:
    """Check it, audit it, and take its correction back: to the bytes of before, or not at all."""
    clip = case.whole.task.video

    def audit_labels() -> None:
        kind = OutputFolder(case.folder).finished_record()["labels"]["kind"]
        labels = read_labels([case.folder / "labels"], kind=kind, numbers=clip.numbers, size=clip.size.shape)
        audit(clip, labels, encoder=case.whole.task.encoder, config=_CONFIG)

    def take_back() -> None:
        undo(case.folder)
        now = files_of(case.folder)
        # A file outside the history that was damaged may be one that the correction did not touch.
        for name in case.whole.other:
            if name.startswith("labels/") and name != case.name:
                expect(
                    now.get(name) == case.whole.other[name],
                    f"{name} is not as before the correction, undone with {case.name}",
                )

    _read([lambda: check(case.folder), audit_labels, take_back])


def read_unfinished(case: DamagedRun) -> None:
    """Go on with it: to the bytes of a run that was not interrupted, or not at all."""
    run(case.whole.task, case.folder, resume=True)
    if case.forged:
        return
    now = _lasting(case.folder)
    different = [name for name in {**now, **case.whole.other} if now.get(name) != case.whole.other.get(name)]
    expect(not different, f"resumed with another {case.name}: other bytes in {', '.join(different[:3])}")


# Packs and manifests


@dataclass(frozen=True)
class DamagedPack:
    """A pack in which one file is another, and the clips it was made of, by checksum."""

    folder: Path
    clips: frozenset[str]


def whole_pack(folder: Path) -> Files:
    """Two shards of short clips."""
    videos = folder / "videos"
    films(videos, 4)
    pack(videos, open_store(folder / "pack"), folder / "work", PackConfig(shard_mb=0.01))
    return files_of(folder / "pack")


def films(folder: Path, count: int) -> None:
    """Videos to train on, with the same bytes and times whenever they are made."""
    folder.mkdir(parents=True)
    timing = open_video(world().video(), fps=12)
    for number in range(count):
        moving = make_world(WorldConfig(height_px=80, width_px=96, frames=14, seed=number))
        path = folder / f"world{number}.mp4"
        with VideoWriter(path, Size(80, 96), timing.time_base) as writer:
            for t, image in enumerate(moving.frames()):
                writer.write(image, t)
        os.utime(path, ns=(_TIME_NS, _TIME_NS))


def damage_pack(chance: Random, whole: Files, folder: Path) -> DamagedPack:
    """A copy in which one file is another."""
    files, _ = damage_files(chance, whole, _often(list(whole), ("pack.json",)))
    write_files(files, folder / "pack")
    shards = [
        json.loads(content) for name, content in whole.items() if name.startswith("shard-") and name.endswith(".json")
    ]
    return DamagedPack(folder, frozenset(member["sha256"] for shard in shards for member in shard["members"]))


def read_packed(case: DamagedPack) -> None:
    """Its list, its shards, and every clip through the cache: as it was packed, or not at all."""
    store = open_store(case.folder / "pack")
    cache = ShardCache(store, case.folder / "cache", limit_bytes=1e9)

    def clips() -> None:
        for shard in read_pack(store).shards:
            cache.shard(shard.name)
            for path in cache.folder(shard.name).glob("*.mp4"):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                expect(digest in case.clips, f"{path.name} of {shard.name} is not what was packed")

    _read([lambda: list(read_shards(store, read_pack(store))), lambda: check_pack(store), clips])


_TABLE = (
    b"video,labels,name\nclips/a.mp4,first/a.png,\nb.mp4,0=first/b.png 40=later/b.png,b-second-try\nc.mp4,c.csv,x\n"
)
_LINES = (
    b'{"video": "a.mp4", "labels": ["a.png"]}\n{"video": "b.mp4", "labels": ["0=b.png", "4=c.png"], "name": "again"}\n'
)


def damage_manifest(chance: Random, _: None, folder: Path) -> Path:
    """A table or lines of JSON, changed."""
    if chance.random() < 0.5:
        return in_file("videos.csv", changed_csv)(chance, _TABLE, folder)
    return in_file("videos.jsonl", changed_json_lines)(chance, _LINES, folder)


def read_listed(path: Path) -> None:
    """Names are unique and stay in the output folder."""
    names = [item.name for item in read_manifest(path)]
    expect(len(set(names)) == len(names), "two videos have one name")
    expect(not any("/" in name or name.startswith(".") for name in names), "a name leads elsewhere")


# Training


@dataclass(frozen=True)
class WholeTraining:
    """The files of a training run that was stopped, the videos it trains on, and what it ends with."""

    files: Files
    videos: Path
    config: Any
    weights: bytes


@dataclass(frozen=True)
class DamagedTraining:
    """A copy in which one file is another; `to_the_end` trains on."""

    folder: Path
    whole: WholeTraining
    name: str
    to_the_end: bool


def whole_training(folder: Path) -> WholeTraining:
    """A run of three steps, as it was after two of them."""
    films(folder / "videos", 4)
    words = (*TINY, "checkpoint_every=1", "validate_every=4", "precision=fp32", "steps=3", "workers=0")
    config = train_config("small", words)
    train(folder / "videos", folder / "out", config)
    weights = (folder / "out" / "weights.safetensors").read_bytes()
    newest = sorted((folder / "out" / "checkpoints").iterdir())[-1]
    newest.unlink()
    for path in (*(folder / "out").glob("weights.*"), *(folder / "out").glob("pictures/*")):
        path.unlink()
    shutil.rmtree(folder / "out" / "tensorboard", ignore_errors=True)
    about = json.loads((folder / "out" / "train.json").read_text())
    (folder / "out" / "train.json").write_text(json.dumps(about | {"machine": {}, "commit": ""}))
    lines = [
        json.loads(line) | {"seconds": 1.0, "data_share": 0.5} for line in (folder / "out" / "journal.jsonl").open()
    ]
    (folder / "out" / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return WholeTraining(files_of(folder / "out"), folder / "videos", config, weights)


def damage_training(chance: Random, whole: WholeTraining, folder: Path) -> DamagedTraining:
    """A copy in which one file is another; checkpoints with the right checksum over other content are among them."""
    files, name = damage_files(chance, whole.files, list(whole.files))
    if name.endswith(".ckpt") and chance.random() < 0.7:
        files[name] = _forged(chance, whole.files[name])
    write_files(files, folder / "out")
    return DamagedTraining(folder / "out", whole, name, to_the_end=chance.random() < 0.1)


def _forged(chance: Random, checkpoint: bytes) -> bytes:
    """A checkpoint that was changed by somebody who knows how."""
    head, _, content = checkpoint.partition(b"\n")
    if chance.random() < 0.5:
        content = changed_zip(chance, content)
    else:
        state = torch.load(io.BytesIO(content), weights_only=True)
        key = chance.choice(list(state))
        other: tuple[Any, ...] = (
            None,
            {},
            [],
            0,
            -1,
            "x",
            torch.zeros(2),
            {"state": {}, "param_groups": []},
            {"a": torch.zeros(1)},
        )
        if chance.random() < 0.3:
            del state[key]
        else:
            state[key] = chance.choice(other)
        written = io.BytesIO()
        torch.save(state, written)
        content = written.getvalue()
    about = json.loads(head) | {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    return json.dumps(about).encode() + b"\n" + content


def read_training(case: DamagedTraining) -> None:
    """Read what resuming reads; some are trained to the end, to the same weights or not at all."""
    folder, config = case.folder, case.whole.config
    if case.to_the_end:
        done = train(case.whole.videos, folder, config, resume=True)
        forged = case.name.endswith((".ckpt", "index.jsonl", "train.json"))
        if done.weights is not None and not forged:
            expect(done.weights.read_bytes() == case.whole.weights, f"other weights, resumed with another {case.name}")
        return

    def restore() -> None:
        saved = load_newest(folder / "checkpoints")
        if saved is not None:
            State.fresh(random_resnet(config.encoder, seed=config.seed), config).restore(saved)

    _read(
        [
            lambda: check_record(folder, config, read_start(folder)),
            lambda: read_licence(folder),
            lambda: read_index(folder / "index.jsonl"),
            lambda: read_corpus(VideoSource(location=str(case.whole.videos)), folder, config),
            lambda: read_journal(folder),
            restore,
        ]
    )


KINDS = {
    "finished_runs": Kind(prepare=whole_finished, make=damage_run, read=read_finished, share=1, patience_seconds=60),
    "unfinished_runs": Kind(
        prepare=whole_unfinished, make=damage_run, read=read_unfinished, share=1, patience_seconds=60
    ),
    "packs": Kind(prepare=whole_pack, make=damage_pack, read=read_packed, share=2),
    "manifests": Kind(prepare=lambda _: None, make=damage_manifest, read=read_listed, share=2),
    "training": Kind(prepare=whole_training, make=damage_training, read=read_training, share=0.3, patience_seconds=120),
}
