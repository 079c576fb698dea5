"""Make synthetic footage to train on, as a folder of videos: dead leaves, and articulated composites of other footage.

    python benchmarks/synthetic_footage.py --out DIR [--leaves 300] [--composites 0 --videos VIDEOS] [--processes 2]

Clips that exist are kept. Composites are made of the videos of a folder: give the free footage that is trained on too.
"""

import argparse
import multiprocessing
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from timecycle.data.augment.articulated import ArticulatedConfig, make_articulated
from timecycle.data.augment.dead_leaves import DeadLeavesConfig, make_dead_leaves
from timecycle.data.corpus.index import make_index
from timecycle.files import make_folder
from timecycle.video import Size, VideoWriter

_FPS = 12  # as most of the footage


def write_leaves(number: int, folder: Path) -> None:
    path = folder / f"leaves_{number:05d}.mp4"
    if not path.exists():
        _write(path, make_dead_leaves(DeadLeavesConfig(), number))


def write_composite(number: int, folder: Path, videos: Path) -> None:
    path = folder / f"composite_{number:05d}.mp4"
    if not path.exists():
        entries = make_index(videos, folder.parent / "index.jsonl").entries
        config = ArticulatedConfig(side_px=240, frames=16, gap_seconds=1 / _FPS, way=0.6)
        _write(path, make_articulated(videos, entries, config, number)[0])


def _write(path: Path, frames: np.ndarray) -> None:
    height, width = frames.shape[1:3]
    with VideoWriter(path, Size(height, width), Fraction(1, _FPS)) as writer:
        for pts, frame in enumerate(frames):
            writer.write(frame, pts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--leaves", type=int, default=300)
    parser.add_argument("--composites", type=int, default=0)
    parser.add_argument("--videos", type=Path, help="for composites")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
        leaves = partial(write_leaves, folder=make_folder(chosen.out / "dead_leaves"))
        for done, _ in enumerate(pool.imap_unordered(leaves, range(chosen.leaves)), 1):
            print(f"\r{done} of {chosen.leaves} clips of dead leaves", end="", file=sys.stderr)
        if chosen.composites and chosen.videos:
            made = partial(write_composite, folder=make_folder(chosen.out / "composites"), videos=chosen.videos)
            for done, _ in enumerate(pool.imap_unordered(made, range(chosen.composites)), 1):
                print(f"\r{done} of {chosen.composites} composites", end="", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
