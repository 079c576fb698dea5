"""A benchmark made of footage without labels: things cut out of one video are moved across another.

The outline of such a thing is drawn, so its mask is known in every frame, while its texture and what is behind it are
real and move as they did before the camera. Every second thing is cut out of the video that it is moved across,
mirrored, so that colours alone do not find it. What is written is laid out as DAVIS-2016, so that everything that
reads DAVIS reads it.
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

from timecycle.cores import usable_cores
from timecycle.data.bends import bent, choose_bend
from timecycle.data.clips import ClipConfig, ClipReader, usable
from timecycle.data.footage import FolderFootage
from timecycle.data.index import Entry, make_index
from timecycle.data.pastes import PasteConfig, Thing, choose_thing, paste
from timecycle.errors import OutputError, SettingsError
from timecycle.evaluation.benchmark import Progress
from timecycle.evaluation.davis import CLIPS, Davis, find_davis
from timecycle.files import atomic_write, make_folder, write_text
from timecycle.labels import Masks
from timecycle.pose import square_places

_LIST = "ImageSets/2016/val.txt"  # written last: a folder that has it is whole
_RECORD = "composites.json"
_WAVES = 3  # of which a way is the sum


@dataclass(frozen=True, kw_only=True)
class CompositesConfig:
    seed: int = 0
    frames: int = 30
    side_px: int = 240
    gap_seconds: float = 1 / 15  # between frames
    radius: tuple[float, float] = (0.12, 0.4)  # of the picture's half side
    way: float = 0.5  # how far a thing gets from where it began, of the picture's half side
    turn_degrees: float = 40
    growth: float = 1.4
    stretch: float = 0.9  # of a thing: its sides differ by up to exp(twice this)
    bend: float = 0.1  # of the picture's half side: how far its points move besides


@dataclass(frozen=True)
class Composites(Davis):
    """Scored as DAVIS-2016 is, but never to be taken for it."""

    @property
    def name(self) -> str:
        return "composites"


@dataclass(frozen=True, eq=False)
class Composite:
    """Frames, and the mask of the thing in each."""

    frames: UInt8[np.ndarray, "frames side side 3"]
    masks: Bool[np.ndarray, "frames side side"]


def make_composites(
    videos: Path, folder: Path, config: CompositesConfig | None = None, *, progress: Progress | None = None
) -> Path:
    """Write as many clips as DAVIS-2016 val has into `folder`; what is there with the same settings stays."""
    config = config or CompositesConfig()
    settings = json.dumps({"videos": str(videos), **dataclasses.asdict(config)}, indent=2) + "\n"
    record = folder / _RECORD
    if record.exists() and record.read_text(encoding="utf-8") != settings:
        raise OutputError(f"{folder} holds composites made otherwise", remedy="choose another folder, or remove it")
    if (folder / _LIST).exists():
        return folder
    make_folder(folder)
    entries = make_index(videos, folder / "index.jsonl", workers=usable_cores()).entries
    write_text(record, settings)
    names = [f"composite-{number:02d}" for number in range(CLIPS["2016"])]
    for number, name in enumerate(names):
        _write(folder, name, make_composite(videos, entries, config, number))
        if progress is not None:
            progress(number + 1, len(names))
    make_folder((folder / _LIST).parent)
    write_text(folder / _LIST, "\n".join(names) + "\n")
    return folder


def find_composites(folder: Path, *, names: Sequence[str] = ()) -> Composites:
    """What `make_composites` wrote, as a benchmark."""
    found = find_davis(folder, year="2016", names=names)
    return Composites(found.year, found.root, found.clips)


def make_composite(videos: Path, entries: Sequence[Entry], config: CompositesConfig, number: int) -> Composite:
    """The clip of a number: a pure function of the settings and the footage."""
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
    behind, source = (
        reader.read(0, int(position), rng).frames for position in rng.choice(len(long_enough), size=2, replace=False)
    )
    if number % 2:
        source = behind[:, :, ::-1].copy()
    return _compose(behind, source, config, rng)


def _compose(
    behind: UInt8[np.ndarray, "frames side side 3"],
    source: UInt8[np.ndarray, "frames side side 3"],
    config: CompositesConfig,
    rng: np.random.Generator,
) -> Composite:
    count = len(behind)
    thing = choose_thing(PasteConfig(radius=config.radius, stretch=config.stretch), rng, frames=1, cover=1.0)
    phases = [thing.phases + np.float32(shift) for shift in _wave(rng, count, 1.5)]  # so that the outline changes too
    frames, masks = [], []
    way, bend = _way(config, rng, count), choose_bend(config.bend, rng)
    for frame, placing in enumerate(way):
        now = dataclasses.replace(thing, phases=phases[frame])
        frames.append(paste(behind[frame : frame + 1], source[frame : frame + 1], now, placing[None])[0])
        points = bend.moved(square_places(config.side_px), frame)
        masks.append(_mask(now, placing, points))
    return Composite(bent(np.stack(frames), bend) if config.bend else np.stack(frames), np.stack(masks))


def _way(config: CompositesConfig, rng: np.random.Generator, count: int) -> Float32[Tensor, "frames 2 3"]:
    """From the picture's coordinates to the thing's, in every frame."""
    centre = np.stack([rng.uniform(-0.3, 0.3) + _wave(rng, count, config.way) for _ in range(2)], axis=1)
    turn = _wave(rng, count, math.radians(config.turn_degrees))
    scale = np.exp(_wave(rng, count, math.log(config.growth)))
    cos, sin = scale * np.cos(turn), scale * np.sin(turn)
    linear = np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1)
    shift = -np.einsum("fxy,fy->fx", linear, centre.clip(-0.8, 0.8))
    return torch.from_numpy(np.concatenate([linear, shift[..., None]], axis=2)).float()


def _wave(rng: np.random.Generator, count: int, size: float) -> np.ndarray:
    """A smooth curve that never leaves +-size."""
    weights = rng.standard_normal(_WAVES)
    turns, phases = rng.uniform(0.3, 1.5, _WAVES), rng.uniform(0, 2 * math.pi, _WAVES)
    waves = np.sin(2 * math.pi * turns[:, None] * np.arange(count) / count + phases[:, None])
    curve: np.ndarray = size * (weights / np.abs(weights).sum()) @ waves
    return curve


def _mask(
    thing: Thing, placing: Float32[Tensor, "2 3"], points: Float32[Tensor, "pixels 2"]
) -> Bool[np.ndarray, "side side"]:
    """Which of a square's points lie on the thing."""
    inside = thing.inside(points @ placing[:, :2].T + placing[:, 2]) > 0
    side = math.isqrt(len(points))
    mask: np.ndarray = inside.reshape(side, side).numpy()
    return mask


def _write(folder: Path, name: str, composite: Composite) -> None:
    images, annotations = (make_folder(folder / part / "480p" / name) for part in ("JPEGImages", "Annotations"))
    for index, (frame, mask) in enumerate(zip(composite.frames, composite.masks, strict=True)):
        with atomic_write(images / f"{index:05d}.jpg") as file:
            Image.fromarray(frame).save(file, format="JPEG", quality=95)
        Masks.of(mask.astype(np.uint8)).write(annotations / f"{index:05d}.png")
