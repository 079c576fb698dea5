"""Probe encoders for collapse, position leakage and shift equivariance.

    python benchmarks/probes.py VIDEOS --work DIR [--encoders NAME ...]

Frames of held-out training videos, 240 pixels high. `effective_rank` and `mean_cosine` measure collapse; `position_r2`
is how well a ridge regression predicts a cell's position from its descriptor, on frames it was not fitted to;
`shift_8px` is the cosine between the descriptors of an image shifted by one feature cell and the descriptors one cell
further; `shift_4px` is that of an image shifted by half a cell and the mean of both neighbours. Results: probes.json.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, UInt8
from torch import Tensor

from encoders import load_named
from evaluate import OURS
from recipes import held_out_videos
from record import write_record
from timecycle.data.augment.clips import ClipConfig, ClipReader, usable
from timecycle.data.corpus.footage import FolderFootage
from timecycle.data.corpus.index import make_index
from timecycle.data.corpus.order import generator
from timecycle.model.encoder import Encoder
from timecycle.training.health import feature_health

_FRAMES = 24
_SIDE_PX = 240
_SHIFTS_PX = (8, 4)
_MARGIN = 3  # cells at the border, whose receptive field reaches another border after a shift


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of links to held-out videos")
    parser.add_argument("--encoders", nargs="*", default=[*OURS, "random-resnet18", "rgb"])
    chosen = parser.parse_args()
    began = time.monotonic()
    images = _images(held_out_videos(chosen.videos, chosen.work))
    measured = {}
    for name in chosen.encoders:
        encoder = load_named(name)
        measured[encoder.name] = {"weights_sha256": encoder.sha256, **probe(encoder, images)}
        print(encoder.name, measured[encoder.name], flush=True)
    settings = {"frames": _FRAMES, "side_px": _SIDE_PX}
    write_record("probes", settings=settings, measured={"encoders": measured}, seconds=time.monotonic() - began)
    return 0


@torch.inference_mode()
def probe(encoder: Encoder, images: list[UInt8[np.ndarray, "side side 3"]]) -> dict[str, float]:
    """Return the figures of one encoder."""
    crops = [image[:, : _SIDE_PX - max(_SHIFTS_PX)] for image in images]
    features = [encoder.encode(np.ascontiguousarray(crop)) for crop in crops]
    grid = features[0].grid
    positions = grid.centres().flatten(0, 1)
    figures = feature_health(
        torch.stack([one.cells.flatten(0, 1).cpu() for one in features]), positions / positions.max()
    )
    for shift in _SHIFTS_PX:
        shifted = [
            encoder.encode(np.ascontiguousarray(image[:, shift : shift + crop.shape[1]]))
            for image, crop in zip(images, crops, strict=True)
        ]
        cells = shift / grid.x.stride_px
        cosines = [_shift_cosine(a.cells.cpu(), b.cells.cpu(), cells) for a, b in zip(features, shifted, strict=True)]
        figures[f"shift_{shift}px"] = float(np.mean(cosines))
    return {name: round(value, 4) for name, value in figures.items()}


def _shift_cosine(
    original: Float[Tensor, "rows columns c"], shifted: Float[Tensor, "rows columns c"], cells: float
) -> float:
    """Return the cosine of shifted descriptors with the original ones, interpolated between neighbouring cells."""
    whole = int(cells)
    fraction = cells - whole
    near, far = original[:, whole:], original[:, whole + 1 :]
    width = min(far.shape[1], shifted.shape[1])
    expected = F.normalize(near[:, :width] * (1 - fraction) + far[:, :width] * fraction, dim=-1)
    inner = (slice(_MARGIN, -_MARGIN), slice(_MARGIN, -_MARGIN))
    return float((expected[inner] * shifted[:, :width][inner]).sum(dim=-1).mean())


def _images(videos: Path) -> list[UInt8[np.ndarray, "side side 3"]]:
    clips = ClipConfig(frames=2, short_side_px=_SIDE_PX, crop_px=_SIDE_PX, flip=False)
    index = make_index(videos, videos.parent / "held_out.jsonl")
    reader = ClipReader(FolderFootage(videos, usable(index.entries, clips)), clips, seed=0)
    samples = [divmod(number, len(reader)) for number in range(_FRAMES)]
    return [
        reader.read(epoch, position, generator(seed=0, epoch=epoch, position=position)).frames[0]
        for epoch, position in samples
    ]


if __name__ == "__main__":
    sys.exit(main())
