"""Compare encoders by how well they transfer a mask from the first frame of a clip to later ones, each in one step.

    python benchmarks/transfer.py VIDEOS --work DIR --encoders NAME|FILE ... [--set colour=0] [--record]

Propagation adds up errors, so that a clip is found or lost by chance and short training runs cannot be told apart. In
one step nothing adds up, and few frames need to be encoded. Three sets of clips, none of which needs labels:

- rigid, articulated: composites of VIDEOS with exact masks;
- real: what moves in VIDEOS (round_trips.py), with the later masks that VGG-16 propagates with the default settings, on
  clips where they return to the first.

Plain inference at 240 pixels, in a window of 96. Prints the mean soft overlap and paired differences to the first
encoder with standard errors. With --record the overlaps of every clip are written to transfer_NAME.json.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from cached_encoder import CachedEncoder
from inference import plain_at_240
from record import write_record
from round_trips import Region, changed_encoder, find_regions, paired
from timecycle.config import propagate_config
from timecycle.data.augment.articulated import ArticulatedConfig
from timecycle.data.augment.composites import CompositesConfig
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.evaluation.protocols.composites import find_composites, make_composites
from timecycle.labels import Masks
from timecycle.labels.label_map import LabelMap, overlap
from timecycle.matching.neighbours import Packing
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.aggregate import aggregate
from timecycle.propagation.frame_encoder import FrameEncoder
from timecycle.propagation.memory import MemoryFrame
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.video import Video, VideoSlice, open_video

_AHEAD = (4, 10, 22)  # frames
_WINDOW = ("window_px=96", "anchor_window_px=96")
_FRAMES = max(_AHEAD)  # that VGG-16 propagates
_RETURNED = 0.6  # least mean overlap of what it propagates forward and back


@dataclass(frozen=True, eq=False)
class Clip:
    """The first frame of a clip and some later ones, with their masks."""

    name: str
    images: Sequence[np.ndarray]
    masks: Sequence[np.ndarray]  # bool


def composite_clips(videos: Path, folder: Path, config: CompositesConfig | ArticulatedConfig) -> Iterator[Clip]:
    """Read the first and some later frames of every composite; they are made if they are not there."""
    for clip in find_composites(make_composites(videos, folder, config)).clips:
        masks = folder / "Annotations" / "480p" / clip.name
        with open_video(folder / "JPEGImages" / "480p" / clip.name) as frames:
            kept = [index for index in (0, *_AHEAD) if index < len(frames)]
            images = [frames[index].image for index in kept]
        yield Clip(clip.name, images, [Masks.read(masks / f"{index:05d}.png").ids > 0 for index in kept])


def real_clips(videos: Path, folder: Path) -> Iterator[Clip]:
    """Find moving regions and propagate them with VGG-16; masks are kept in `folder`, as this takes minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    teacher: Encoder | None = None
    for region in find_regions(videos, frames=_FRAMES, most=100):
        kept = folder / f"{region.path.stem}.npz"
        if not kept.exists():
            teacher = teacher or load_encoder("vgg16")
            masks, overlap = propagate_and_return(region, teacher)
            np.savez_compressed(kept, masks=masks, overlap=overlap)
        saved = np.load(kept)
        if saved["overlap"] >= _RETURNED:
            with open_video(region.path) as video:
                images = [video[index].image for index in (0, *_AHEAD)]
            yield Clip(region.path.name, images, [saved["masks"][index] for index in (0, *_AHEAD)])


def propagate_and_return(region: Region, encoder: Encoder) -> tuple[np.ndarray, float]:
    """Propagate a region forward, and what arrives back; returns the masks of all frames and their mean overlap."""
    config, cached = propagate_config("default", ("image_size_px=240",)), CachedEncoder(encoder)
    with open_video(region.path) as video:
        part = VideoSlice(video, 0, _FRAMES + 1)
        there = _propagated(part, {0: Masks.of(region.mask)}, cached, replace(config, direction="forward"))
        back = _propagated(part, {_FRAMES: Masks.of(there[-1])}, cached, replace(config, direction="both"))
    return there, fmean(jaccard(*masks) for masks in zip(there, back, strict=True))


def _propagated(video: Video, labels: Mapping[int, Masks], encoder: Encoder, config: PropagateConfig) -> np.ndarray:
    frames = [frame.labels for frame in propagate(video, labels, encoder=encoder, config=config)]
    return np.stack([found.ids > 0 for found in frames if isinstance(found, Masks)])


@torch.inference_mode()
def transfer_overlaps(clips: Sequence[Clip], encoder: Encoder) -> dict[str, float]:
    """Transfer the first mask of each clip to its later frames; returns the mean overlap of each clip, in per cent.

    The label map is compared with the mask's share of every cell. Deciding for one label first would make each clip
    depend on how many cells are just above a half, which differs by chance.
    """
    config = plain_at_240(_WINDOW)
    frames = FrameEncoder(encoder, config)
    overlaps = {}
    for clip in clips:
        masks = [Masks.of(mask) for mask in clip.masks]
        space = Masks.space(masks[:1])
        first, *later = (frames.encode(image) for image in clip.images)
        labels = LabelMap(space.encode(masks[0], first.grid), torch.ones(space.channels, dtype=torch.bool), first.grid)
        memory = [MemoryFrame(0, first, labels)]
        shares = []
        for features, mask in zip(later, masks[1:], strict=True):
            found = aggregate(features, memory, space=space, config=config, packing=Packing())
            extents = (space.extent(values).flatten(0, 1) for values in (found.values, space.encode(mask, found.grid)))
            shares.append(float(overlap(*extents)))
        overlaps[clip.name] = 100 * fmean(shares)
    return overlaps


def _line(sets: Mapping[str, Mapping[str, float]], base: Mapping[str, Mapping[str, float]]) -> str:
    cells = []
    for name, overlaps in sets.items():
        difference, error = paired(overlaps, base[name])
        cells.append(f"{name} {fmean(overlaps.values()):.1f} ({difference:+.1f} +- {error:.1f})")
    return ", ".join(cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--encoders", nargs="+", default=[DEFAULT_ENCODER])
    parser.add_argument("--set", nargs="*", default=[], help="settings of the descriptor, such as colour=0")
    parser.add_argument("--record", action="store_true", help="write transfer_NAME.json of each encoder")
    chosen = parser.parse_args()
    clips = {
        "rigid": list(composite_clips(chosen.videos, chosen.work / "rigid", CompositesConfig())),
        "articulated": list(
            composite_clips(
                chosen.videos, chosen.work / "articulated", ArticulatedConfig(seed=1, side_px=240, frames=24)
            )
        ),
        "real": list(real_clips(chosen.videos, chosen.work / "real")),
    }
    base: dict[str, dict[str, float]] = {}
    for name in chosen.encoders:
        encoder, began = changed_encoder(name, chosen.set), time.monotonic()
        sets = {kind: transfer_overlaps(one, encoder) for kind, one in clips.items()}
        base = base or sets
        if chosen.record:
            write_record(
                f"transfer_{Path(name).stem}",
                settings={"encoder": Path(name).name, "weights_sha256": encoder.sha256, "changed": chosen.set},
                measured={"overlaps": sets},
                seconds=time.monotonic() - began,
            )
        print(f"{name}: {_line(sets, base)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
