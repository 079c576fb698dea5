"""A benchmark made from unlabelled video: clips with a pasted object whose mask is known, scored as DAVIS-2016.

The outline of the object is generated, so its mask is exact, while its texture and the background are real video. Every
second object is cut out of the mirrored background clip itself, so that colours alone do not reveal it. The files are
laid out as DAVIS-2016, so that everything that reads DAVIS reads them.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from PIL import Image
from torch import Tensor

from timecycle.concurrency import usable_cores
from timecycle.data.augment.clips import ClipConfig, ClipReader, usable
from timecycle.data.augment.copy_paste import CopyPasteConfig, PastedObject, choose_object, paste
from timecycle.data.augment.views import apply_warp, choose_warp
from timecycle.data.corpus.footage import FolderFootage
from timecycle.data.corpus.index import Entry, make_index
from timecycle.errors import OutputError, SettingsError
from timecycle.evaluation.benchmark import Progress
from timecycle.evaluation.protocols.davis import CLIPS, Davis, find_davis
from timecycle.files import atomic_write, make_folder, write_text
from timecycle.labels import Masks
from timecycle.pose import pixel_centres

_LIST = "ImageSets/2016/val.txt"  # written last: a folder that has it is complete
_RECORD = "composites.json"
_WAVES = 3  # summed to a smooth random curve

Frames = UInt8[np.ndarray, "frames side side 3"]
ObjectMasks = Bool[np.ndarray, "frames side side"]  # of the pasted object, in every frame


@dataclass(frozen=True, kw_only=True)
class CompositesConfig:
    """Length, size and motion of composites."""

    seed: int = 0
    frames: int = 30
    side_px: int = 240
    gap_seconds: float = 1 / 15  # between frames
    radius: tuple[float, float] = (0.12, 0.4)  # of the image's half side
    way: float = 0.5  # how far an object moves from its start, of the image's half side
    turn_degrees: float = 40
    growth: float = 1.4
    stretch: float = 0.9  # of an object: its axes differ by up to exp(twice this)
    elastic: float = 0.1  # of the image's half side: amplitude of an elastic warp of the whole clip


@dataclass(frozen=True)
class Composites(Davis):
    """Composites scored as DAVIS-2016, under a name of their own."""

    @property
    def name(self) -> str:
        return "composites"


def make_composites(
    videos: Path, folder: Path, config: CompositesConfig | None = None, *, progress: Progress | None = None
) -> Path:
    """Write as many composites as DAVIS-2016 val has clips; a complete folder with the same settings is kept."""
    config = config or CompositesConfig()
    settings = json.dumps({"videos": str(videos), **dataclasses.asdict(config)}, indent=2) + "\n"
    record = folder / _RECORD
    if record.exists() and record.read_text(encoding="utf-8") != settings:
        raise OutputError(
            f"{folder} holds composites made with other settings", remedy="choose another folder, or remove it"
        )
    if (folder / _LIST).exists():
        return folder
    make_folder(folder)
    entries = make_index(videos, folder / "index.jsonl", workers=usable_cores()).entries
    write_text(record, settings)
    names = [f"composite-{number:02d}" for number in range(CLIPS["2016"])]
    for number, name in enumerate(names):
        frames, masks = make_composite(videos, entries, config, number)
        _write(folder, name, frames, masks)
        if progress is not None:
            progress(number + 1, len(names))
    make_folder((folder / _LIST).parent)
    write_text(folder / _LIST, "\n".join(names) + "\n")
    return folder


def find_composites(folder: Path, *, names: Sequence[str] = ()) -> Composites:
    """Find the composites that `make_composites` wrote, as a benchmark."""
    found = find_davis(folder, year="2016", names=names)
    return Composites(found.year, found.root, found.clips)


def make_composite(
    videos: Path, entries: Sequence[Entry], config: CompositesConfig, number: int
) -> tuple[Frames, ObjectMasks]:
    """Make the frames and masks of a composite, as a pure function of the settings, its number and the videos."""
    clips = ClipConfig(
        frames=config.frames,
        gap_seconds=(config.gap_seconds, config.gap_seconds),
        short_side_px=config.side_px,
        crop_px=config.side_px,
        flip=False,
    )
    long_enough = usable(entries, clips)
    if len(long_enough) < 2:
        raise SettingsError(
            f"{len(long_enough)} videos in {videos} have {config.frames} frames and motion", remedy="give more footage"
        )
    rng = np.random.default_rng([config.seed, number])
    reader = ClipReader(FolderFootage(videos), long_enough, clips, seed=config.seed)
    background, source = (
        reader.read(0, int(position), rng).frames for position in rng.choice(len(long_enough), size=2, replace=False)
    )
    if number % 2:
        source = background[:, :, ::-1].copy()
    return _compose(background, source, config, rng)


def _write(folder: Path, name: str, frames: Frames, masks: ObjectMasks) -> None:
    images, annotations = (make_folder(folder / kind / "480p" / name) for kind in ("JPEGImages", "Annotations"))
    for index, (frame, mask) in enumerate(zip(frames, masks, strict=True)):
        with atomic_write(images / f"{index:05d}.jpg") as file:
            Image.fromarray(frame).save(file, format="JPEG", quality=95)
        Masks.of(mask.astype(np.uint8)).write(annotations / f"{index:05d}.png")


def _compose(
    background: Frames,
    source: Frames,
    config: CompositesConfig,
    rng: np.random.Generator,
) -> tuple[Frames, ObjectMasks]:
    count = len(background)
    pasted = choose_object(CopyPasteConfig(radius=config.radius, stretch=config.stretch), rng, frames=1, cover=1.0)
    phases = [pasted.phases + np.float32(shift) for shift in _wave(rng, count, 1.5)]  # the outline changes over time
    frames, masks = [], []
    transforms, warp = _object_motion(config, rng, count), choose_warp(config.elastic, rng)
    for frame, transform in enumerate(transforms):
        now = dataclasses.replace(pasted, phases=phases[frame])
        frames.append(paste(background[frame : frame + 1], source[frame : frame + 1], now, transform[None])[0])
        points = warp.displace(pixel_centres(config.side_px), frame)
        masks.append(_mask(now, transform, points))
    composed = np.stack(frames)
    return apply_warp(composed, warp) if config.elastic else composed, np.stack(masks)


def _object_motion(config: CompositesConfig, rng: np.random.Generator, count: int) -> Float32[Tensor, "frames 2 3"]:
    """Draw the affine maps from image coordinates to the object's, one per frame."""
    centre = np.stack([rng.uniform(-0.3, 0.3) + _wave(rng, count, config.way) for _ in range(2)], axis=1)
    angle = _wave(rng, count, math.radians(config.turn_degrees))
    scale = np.exp(_wave(rng, count, math.log(config.growth)))
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    linear = np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1)
    shift = -np.einsum("fxy,fy->fx", linear, centre.clip(-0.8, 0.8))
    return torch.from_numpy(np.concatenate([linear, shift[..., None]], axis=2)).float()


def _wave(rng: np.random.Generator, count: int, size: float) -> np.ndarray:
    """Draw a smooth curve within +-size."""
    weights = rng.standard_normal(_WAVES)
    cycles, phases = rng.uniform(0.3, 1.5, _WAVES), rng.uniform(0, 2 * math.pi, _WAVES)
    waves = np.sin(2 * math.pi * cycles[:, None] * np.arange(count) / count + phases[:, None])
    curve: np.ndarray = size * (weights / np.abs(weights).sum()) @ waves
    return curve


def _mask(
    pasted: PastedObject, transform: Float32[Tensor, "2 3"], points: Float32[Tensor, "pixels 2"]
) -> Bool[np.ndarray, "side side"]:
    """Return which points of a square image lie on the object."""
    inside = pasted.inside(points @ transform[:, :2].T + transform[:, 2]) > 0
    side = math.isqrt(len(points))
    mask: np.ndarray = inside.reshape(side, side).numpy()
    return mask
