"""Measure `timecycle bulk --chunk`: resuming a manifest of a million lines, and two workers against one.

    python benchmarks/bulk_chunks.py --work DIR [--only resume workers] [--lines 1000000] [--clips 96] [--rounds 3]

Needs the extra bulk. Results: bulk_chunks_resume.json and bulk_chunks_workers.json. `workers` needs two idle cores.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from record import write_record
from timecycle.bulk.chunk_outputs import CHUNKS, ChunkRecord
from timecycle.bulk.chunk_scheduler import run_chunks
from timecycle.bulk.chunks import chunk_name, plan_chunks
from timecycle.bulk.fingerprints import checksum, inputs_of
from timecycle.bulk.manifest import ManifestFile, read_manifest
from timecycle.bulk.scheduler import run_bulk
from timecycle.bulk.worker import BulkJob, Record, prepare
from timecycle.config import propagate_config
from timecycle.files import make_folder
from timecycle.labels import Masks
from timecycle.speed.timing import peak_process_bytes
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import Size, VideoWriter, open_video

_MEASUREMENTS = ("resume", "workers")
_CHUNK = 1000  # videos, when a million are resumed
_MISSING = 3  # chunks that are not finished
_FILES = 30  # of an output, as of a clip of twelve frames
_CLIP = WorldConfig(height_px=240, width_px=320, frames=24)
_SETTINGS = ("--preset", "fast", "--set", "image_size_px=96")
_EMPTY_TAR = bytes(10240)
_LOAD = round(os.getloadavg()[0], 2)  # of the machine, by other programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=_MEASUREMENTS, choices=_MEASUREMENTS)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the manifest that is resumed in chunks")
    parser.add_argument("--records", type=int, default=2000, help="that are resumed without chunks")
    parser.add_argument("--clips", type=int, default=96, help="that one and two workers label")
    parser.add_argument("--chunk", type=int, default=4, help="clips in a chunk")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    work = make_folder(chosen.work)
    measurements: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
        "resume": lambda: measure_resume(work / "resume", chosen.lines, chosen.records),
        "workers": lambda: measure_workers(work / "workers", chosen.clips, chosen.chunk, chosen.rounds),
    }
    for name in chosen.only:
        began = time.monotonic()
        settings, measured = measurements[name]()
        seconds = time.monotonic() - began
        write_record(f"bulk_chunks_{name}", settings=settings, measured=measured, seconds=seconds)
        print(name, json.dumps(measured, indent=1), flush=True)
    return 0


# Resuming


def measure_resume(folder: Path, lines: int, records: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Resume outputs that are nearly finished, in a process of their own: with chunks, and with a record per video."""
    shutil.rmtree(folder, ignore_errors=True)
    many, few = _write_manifest(make_folder(folder) / "many.csv", lines), folder / "few"
    _finish_chunks(many, folder / "chunks", missing=_MISSING)
    _finish_videos(few, records)
    begun = _in_a_process(_resume_chunks, many, folder / "chunks")
    _finish_chunks(many, folder / "chunks", missing=0)
    finished = _in_a_process(_resume_chunks, many, folder / "chunks")
    single = _in_a_process(_resume_videos, few / "videos.csv", folder / "few_out")
    settings = {"lines": lines, "chunk": _CHUNK, "missing_chunks": _MISSING, "records": records, "files": _FILES}
    measured: dict[str, Any] = {
        "load_before": _LOAD,
        "chunks": begun | {"processor_microseconds_per_video": 1e6 * begun["processor_seconds"] / lines},
        "chunks_with_summary": finished
        | {"processor_microseconds_per_video": 1e6 * finished["processor_seconds"] / lines},
        "videos": single | {"processor_microseconds_per_video": 1e6 * single["processor_seconds"] / records},
    }
    return settings, measured


def _in_a_process(function: Callable[[Path, Path], dict[str, Any]], manifest: Path, out: Path) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, manifest, out).result()


class _FirstWorkError(Exception):
    """The run has found what to do first."""


class _NoEngine:
    """Stops the run when it submits its first work."""

    room = 1

    def submit(self, work: Any) -> NoReturn:
        raise _FirstWorkError(work.name)

    def next(self) -> NoReturn:
        raise AssertionError("nothing was submitted")


def _measured(action: Callable[[], object]) -> dict[str, Any]:
    before = _peak_memory_mb()
    began, worked = time.monotonic(), time.process_time()
    try:
        action()
    except _FirstWorkError as first:
        reached = str(first)
    else:
        reached = "the end"
    return {
        "reached": reached,
        "seconds": round(time.monotonic() - began, 3),
        "processor_seconds": round(time.process_time() - worked, 3),
        "memory_before_mb": before,  # of torch and other libraries
        "peak_memory_mb": _peak_memory_mb(),
    }


def _peak_memory_mb() -> float:
    return round((peak_process_bytes() or 0) / 2**20, 1)


def _resume_chunks(manifest: Path, out: Path) -> dict[str, Any]:
    job = _job(out, _CHUNK)
    planned = _measured(lambda: plan_chunks(ManifestFile(manifest), _CHUNK))
    engine: Any = _NoEngine()
    whole = _measured(lambda: run_chunks(plan_chunks(ManifestFile(manifest), _CHUNK), job, engine))
    return whole | {"seconds_to_plan": planned["seconds"], "memory_before_mb": planned["memory_before_mb"]}


def _resume_videos(manifest: Path, out: Path) -> dict[str, Any]:
    job = _job(out, None)
    engine: Any = _NoEngine()
    return _measured(lambda: run_bulk(read_manifest(manifest), job, engine))


def _job(out: Path, chunk: int | None) -> BulkJob:
    return prepare(
        BulkJob(output=str(out), encoder="rgb", config=propagate_config("fast"), confidence=None, chunk=chunk)
    )


def _write_manifest(path: Path, lines: int) -> Path:
    with path.open("w") as file:
        file.write("video,labels\n")
        for number in range(lines):
            name = f"{number // 1000:06d}/video_{number:09d}"
            file.write(f"s3://bucket/clips/{name}.mp4,first/{name}.png\n")
    return path


def _finish_chunks(manifest: Path, out: Path, *, missing: int) -> None:
    """Write the chunks of a nearly finished output: the records of videos, and tars without files."""
    folder = make_folder(out / CHUNKS)
    plan = plan_chunks(ManifestFile(manifest), _CHUNK)
    for index, span in enumerate(plan.spans[: len(plan.spans) - missing]):
        if (folder / f"{chunk_name(index)}.jsonl").exists():
            continue
        first = index * _CHUNK
        records = [_chunk_record(number, span.lines) for number in range(first, first + span.videos)]
        (folder / f"{chunk_name(index)}.tar").write_bytes(_EMPTY_TAR)
        (folder / f"{chunk_name(index)}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def _chunk_record(number: int, lines: str) -> dict[str, Any]:
    name, is_failed = f"video_{number:09d}", number % 1000 == 500
    record = ChunkRecord(
        name=name,
        source=f"s3://bucket/clips/{number // 1000:06d}/{name}.mp4",
        error="it cannot be decoded; check the file" if is_failed else None,
        tries=1,
        frames=0 if is_failed else 300,
        confidence=None if is_failed else round(0.5 + number % 4999 / 1e4, 4),
        lowest=None if is_failed else 0.25,
        sha256=None if is_failed else checksum({"name": name}),
        video=f"1-{number}-1700000000000000000",
        video_sha256=None if is_failed else checksum({"video": name}),
        labels=checksum({"labels": name}),
        manifest=lines,
    )
    return record._asdict()


def _finish_videos(folder: Path, records: int) -> None:
    """Write a finished output without chunks, all but its last video; the contents of videos do not matter here."""
    make_folder(folder)
    (folder / "videos.csv").write_text("video,labels\n" + "".join(f"{n}.mp4,{n}.png\n" for n in range(records)))
    out = folder.with_name("few_out")
    job = _job(out, None)
    settings = checksum(job.settings())
    for number in range(records):
        (folder / f"{number}.mp4").write_bytes(b"video" + bytes(number % 100))
        (folder / f"{number}.png").write_bytes(b"labels")
    for item in read_manifest(folder / "videos.csv")[:-1]:
        files = {}
        for number in range(_FILES):
            path = out / item.name / f"labels/{number:05d}.png"
            make_folder(path.parent)
            path.write_bytes(b"label")
            files[f"labels/{number:05d}.png"] = (5, checksum({"file": number}))
        video, labels = inputs_of(item)
        record = Record(
            name=item.name,
            frames=_FILES,
            seconds=1.0,
            confidence=0.5,
            lowest=0.1,
            video=video,
            video_sha256=checksum({"video": item.name}),
            labels=labels,
            settings=settings,
            manifest=job.manifest,
        )
        make_folder(out / "records")
        (out / "records" / f"{item.name}.json").write_text(json.dumps(asdict(record) | {"files": files}) + "\n")


# Workers


def measure_workers(folder: Path, clips: int, chunk: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Label the same clips on Ray by one worker and by two, one thread each, in turn.

    Without Ray, one process is compared with two at once in the same way: what these lose, the machine loses.
    """
    shutil.rmtree(folder, ignore_errors=True)
    manifest = _write_clips(make_folder(folder), clips)
    seconds: dict[str, list[float]] = {name: [] for name in ("one", "two", "process", "processes")}
    for number in range(rounds):
        order = list(seconds) if number % 2 == 0 else list(seconds)[::-1]
        for name in order:
            out = folder / f"{name}{number}"
            base = ["bulk", manifest, *_SETTINGS, "--chunk", chunk]
            if name in ("one", "two"):
                workers = 1 + (name == "two")
                _run([[*base, "-o", out, "--ray", "local", "--workers", workers, "--threads", 1]])
                seconds[name].append(_labelling_seconds(out / "summary.json"))
            else:
                shards = range(1 if name == "process" else 2)
                _run([[*base, "-o", out, "--shard", f"{shard}/2"] for shard in shards])
                each = [_labelling_seconds(out / f"summary-{shard}-of-2.json") for shard in shards]
                seconds[name].append(max(each))
            shutil.rmtree(out)
    # One process did half of the clips, two processes all of them.
    on_ray = [one / (2 * two) for one, two in zip(seconds["one"], seconds["two"], strict=True)]
    plain = [one / two for one, two in zip(seconds["process"], seconds["processes"], strict=True)]
    settings = {
        "clips": clips,
        "chunk": chunk,
        "rounds": rounds,
        "frames": _CLIP.frames,
        "options": " ".join(_SETTINGS),
    }
    measured = {
        "efficiency_of_two_workers": round(statistics.median(on_ray), 3),
        "efficiency_of_two_processes_without_ray": round(statistics.median(plain), 3),
        "efficiencies_on_ray": [round(value, 3) for value in on_ray],
        "efficiencies_without_ray": [round(value, 3) for value in plain],
        "labelling_seconds": seconds,
        "load_before": _LOAD,
    }
    return settings, measured


def _write_clips(folder: Path, clips: int) -> Path:
    timing = open_video(np.zeros((1, 2, 2, 3), np.uint8), fps=24)
    lines = ["video,labels"]
    for number in range(clips):
        world = make_world(WorldConfig(**(asdict(_CLIP) | {"seed": number})))
        with VideoWriter(folder / f"{number}.mp4", Size(_CLIP.height_px, _CLIP.width_px), timing.time_base) as writer:
            for t, image in enumerate(world.frames()):
                writer.write(image, t)
        Masks(world.mask(0)).write(folder / f"{number}.png")
        lines.append(f"{number}.mp4,{number}.png")
    (folder / "videos.csv").write_text("\n".join(lines) + "\n")
    return folder / "videos.csv"


def _labelling_seconds(summary: Path) -> float:
    fields = json.loads(summary.read_text())
    if fields["done"] != fields["videos"]:
        raise SystemExit(f"error: {summary} lacks videos")
    return float(fields["seconds"])


def _run(commands: Sequence[Sequence[object]]) -> None:
    """Run commands at the same time, with one thread each."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "timecycle", *map(str, command)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    for process in processes:
        if process.wait() != 0:
            raise SystemExit(f"error: {process.args!r} ended with {process.returncode}")


if __name__ == "__main__":
    sys.exit(main())
