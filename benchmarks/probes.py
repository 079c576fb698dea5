"""Do features collapse, leak their position, or change when the picture is moved? Probes of encoders.

    python benchmarks/probes.py VIDEOS --work DIR [--encoders NAME ...]

Frames of the videos that training keeps aside, 240 pixels high. `effective_rank` and `mean_cosine` tell of collapse,
`position_r2` how well a ridge regression reads a cell's place off its descriptor (on frames it was not fitted to),
`shift_8px` the cosine of descriptors of the picture moved by one cell with those a cell further, `shift_4px` of one
moved by half a cell with the mean of both neighbours. Results: probes.json.
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

from recipes import held_out_videos
from record import write_record
from timecycle.data.clips import ClipConfig, ClipReader
from timecycle.data.footage import FolderFootage
from timecycle.data.index import make_index
from timecycle.data.order import generator
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.training.health import examine

_FRAMES = 24
_SIDE_PX = 240
_SHIFTS_PX = (8, 4)
_MARGIN = 3  # cells at the border, which see another border after a shift


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where links to held-out videos are kept")
    parser.add_argument("--encoders", nargs="*", default=[DEFAULT_ENCODER, "random-resnet18", "rgb"])
    chosen = parser.parse_args()
    began = time.monotonic()
    pictures = _pictures(held_out_videos(chosen.videos, chosen.work))
    measured = {}
    for name in chosen.encoders:
        encoder = load_encoder(name)
        measured[encoder.name] = {"weights_sha256": encoder.sha256, **probe(encoder, pictures)}
        print(encoder.name, measured[encoder.name], flush=True)
    settings = {"frames": _FRAMES, "side_px": _SIDE_PX}
    write_record("probes", settings=settings, measured={"encoders": measured}, seconds=time.monotonic() - began)
    return 0


@torch.inference_mode()
def probe(encoder: Encoder, pictures: list[UInt8[np.ndarray, "side side 3"]]) -> dict[str, float]:
    """The figures of one encoder."""
    shown = [picture[:, : _SIDE_PX - max(_SHIFTS_PX)] for picture in pictures]
    cells = [encoder.encode(np.ascontiguousarray(picture)) for picture in shown]
    grid = cells[0].grid
    places = grid.centres().flatten(0, 1)
    figures = examine(torch.stack([one.cells.flatten(0, 1).cpu() for one in cells]), places / places.max())
    for shift in _SHIFTS_PX:
        moved = [
            encoder.encode(np.ascontiguousarray(p[:, shift : shift + s.shape[1]]))
            for p, s in zip(pictures, shown, strict=True)
        ]
        share = shift / grid.x.stride_px
        agreement = [_agreement(a.cells.cpu(), b.cells.cpu(), share) for a, b in zip(cells, moved, strict=True)]
        figures[f"shift_{shift}px"] = float(np.mean(agreement))
    return {name: round(value, 4) for name, value in figures.items()}


def _agreement(still: Float[Tensor, "rows columns c"], moved: Float[Tensor, "rows columns c"], share: float) -> float:
    """Cosine of moved descriptors with those of the still picture, interpolated between neighbouring cells."""
    whole = int(share)
    part = share - whole
    near, far = still[:, whole:], still[:, whole + 1 :]
    width = min(far.shape[1], moved.shape[1])
    expected = F.normalize(near[:, :width] * (1 - part) + far[:, :width] * part, dim=-1)
    inner = (slice(_MARGIN, -_MARGIN), slice(_MARGIN, -_MARGIN))
    return float((expected[inner] * moved[:, :width][inner]).sum(dim=-1).mean())


def _pictures(videos: Path) -> list[UInt8[np.ndarray, "side side 3"]]:
    clips = ClipConfig(frames=2, short_side_px=_SIDE_PX, crop_px=_SIDE_PX, flip=False)
    index = make_index(videos, videos.parent / "held_out.jsonl")
    reader = ClipReader(FolderFootage(videos), index.entries, clips, seed=0)
    places = [divmod(number, len(reader)) for number in range(_FRAMES)]
    return [
        reader.read(epoch, position, generator(seed=0, epoch=epoch, position=position)).frames[0]
        for epoch, position in places
    ]


if __name__ == "__main__":
    sys.exit(main())
