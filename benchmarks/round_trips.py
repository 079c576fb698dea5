"""Compare encoders on real footage without labels: masks of moving regions are propagated forward, then back.

    python benchmarks/round_trips.py VIDEOS --encoders NAME|FILE ... [--set colour=0] [--record]

A mask is what moves unlike the camera in the first frames of a video (DIS optical flow minus its median), with an
outline that follows the image (GrabCut). Its return is compared with the start as `timecycle tune` does, whose cycle
error ranks settings as true J&F does (docs/research/corrections.md). Plain inference at 240 pixels. Prints
the mean return overlap, 1 - cycle error, in per cent, and paired differences to the first encoder with standard errors.
With --record the overlaps of every clip are written to round_trips_NAME.json.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import cv2
import numpy as np

from cached_encoder import CachedEncoder
from encoders import load_named
from inference import plain_at_240
from record import write_record
from timecycle.data.corpus.index import find_videos
from timecycle.labels import Masks
from timecycle.labels.grab_cut import OUTSIDE, PROBABLY_INSIDE, PROBABLY_OUTSIDE, grab_cut
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.review.tune import Candidate, tune
from timecycle.video import open_video

_LATER = 4  # frames: what has moved by then is cut out
_SHARE = (0.01, 0.35)  # of the image that a region may cover
_MARGIN = 0.1  # of a region's box, around it
_ITERATIONS = 4  # of GrabCut


@dataclass(frozen=True, eq=False)
class Region:
    """A moving region on the first frame of a video."""

    path: Path
    mask: np.ndarray  # bool, (height, width)


def find_regions(videos: Path, *, frames: int, most: int) -> Iterator[Region]:
    """Find the moving region of each video, in the order of their names; videos without one are left out."""
    found = 0
    for name in sorted(find_videos(videos)):
        with open_video(videos / name) as video:
            if len(video) <= frames:
                continue
            mask = moving_region(video[0].image, video[_LATER].image)
        if mask is not None:
            yield Region(videos / name, mask)
            found += 1
        if found == most:
            return


def moving_region(first: np.ndarray, later: np.ndarray) -> np.ndarray | None:
    """Return the largest region that moves unlike the camera, or None if there is none of a suitable size."""
    grey = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in (first, later)]
    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM).calc(grey[0], grey[1], None)  # type: ignore[call-overload]
    speed = cv2.GaussianBlur(np.linalg.norm(flow - np.median(flow, axis=(0, 1)), axis=2), (0, 0), 4)
    if speed.max() < 1:
        return None
    _, labels, stats, _ = cv2.connectedComponentsWithStats((speed > speed.mean() + speed.std()).astype(np.uint8))
    if len(stats) < 2:
        return None
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    left, top, width, height = (int(value) for value in stats[largest, :4])
    rows, columns = first.shape[:2]
    x0, y0 = max(1, left - round(_MARGIN * width)), max(1, top - round(_MARGIN * height))
    x1, y1 = min(columns - 1, left + round((1 + _MARGIN) * width)), min(rows - 1, top + round((1 + _MARGIN) * height))
    trimap = np.full((rows, columns), OUTSIDE, np.uint8)
    trimap[y0:y1, x0:x1] = PROBABLY_OUTSIDE
    trimap[labels == largest] = PROBABLY_INSIDE
    if not (trimap == PROBABLY_INSIDE).any() or not (trimap == OUTSIDE).any():
        return None
    mask: np.ndarray = grab_cut(
        first, lambda *_: trimap, iterations=_ITERATIONS, max_pixels=rows * columns, extra="assist"
    )
    return mask if _SHARE[0] <= mask.mean() <= _SHARE[1] else None


def return_overlaps(regions: Sequence[Region], encoder: Encoder, *, frames: int) -> dict[str, float]:
    """Return the overlap of what comes back with the start, by video, in per cent."""
    config = plain_at_240()
    overlaps = {}
    for region in regions:
        candidate = Candidate("plain", CachedEncoder(encoder), config)
        with open_video(region.path) as video:
            [tuned] = tune(video, 0, Masks.of(region.mask), [candidate], frames=frames)
        overlaps[region.path.name] = 100 * (1 - tuned.cycle_error)
    return overlaps


def paired(values: Mapping[str, float], base: Mapping[str, float]) -> tuple[float, float]:
    """Return the mean difference over the clips of both, and its standard error."""
    differences = np.array([values[name] - base[name] for name in values])
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--encoders", nargs="+", default=[DEFAULT_ENCODER])
    parser.add_argument("--set", nargs="*", default=[], help="settings of the descriptor, such as colour=0")
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--record", action="store_true", help="write round_trips_NAME.json of each encoder")
    chosen = parser.parse_args()
    regions = list(find_regions(chosen.videos, frames=chosen.frames, most=chosen.clips))
    base: dict[str, float] = {}
    for name in chosen.encoders:
        encoder, began = load_named(name, chosen.set), time.monotonic()
        overlaps = return_overlaps(regions, encoder, frames=chosen.frames)
        base = base or overlaps
        if chosen.record:
            write_record(
                f"round_trips_{Path(name).stem}",
                settings={
                    "encoder": Path(name).name,
                    "weights_sha256": encoder.sha256,
                    "changed": chosen.set,
                    "frames": chosen.frames,
                },
                measured={"overlaps": overlaps},
                seconds=time.monotonic() - began,
            )
        difference, error = paired(overlaps, base)
        print(
            f"{name}: {fmean(overlaps.values()):.1f} of {len(overlaps)} clips, {difference:+.1f} +- {error:.1f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
