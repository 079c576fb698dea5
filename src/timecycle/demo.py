"""The demo: propagate every kind of label through a small synthetic clip, in under a minute, without downloads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timecycle.api.labelling import flow_to_folder, propagate_to_folder
from timecycle.config import propagate_config
from timecycle.errors import OutputError
from timecycle.files import make_folder
from timecycle.labels import Coordinates, Keypoints, Labels, Masks, striped
from timecycle.model.encoder import Encoder
from timecycle.runs.folder import is_run
from timecycle.synthetic import World, WorldConfig, make_world
from timecycle.video import Size, VideoWriter, open_video

_WORLD = WorldConfig(height_px=240, width_px=320, frames=40, seed=0)
_NAMES = {1: "disc", 2: "box", 3: "star"}
_LATE = 30  # on this frame the third object is in view, and is annotated


@dataclass(frozen=True)
class DemoResult:
    """The folder of the results, and their accuracy against the clip's ground truth."""

    folder: Path
    mean_iou: float  # over objects and frames on which the object is visible


def run_demo(folder: Path, *, encoder: Encoder, say: Callable[[str], None]) -> DemoResult:
    """Write a clip, propagate masks, keypoints, texture and coordinates through it, and compute flow of two frames."""
    if folder.is_dir() and any(folder.iterdir()) and not is_run(folder / "masks"):
        raise OutputError(f"{folder} holds other things than a demo", remedy="choose a new folder with -o")
    world = make_world(_WORLD)
    clip = _write_clip(make_folder(folder) / "clip.mp4", world)
    late = Masks(np.where(world.mask(_LATE) == 3, 3, 0).astype(np.uint16))
    first = Masks(world.mask(0))
    tasks: dict[str, dict[int, Labels]] = {
        "masks": {0: first, _LATE: late},
        "keypoints": {0: _keypoints(world, 0)},
        "texture": {0: striped(first)},
        "coordinates": {0: Coordinates.of_image(_WORLD.height_px, _WORLD.width_px)},
    }
    config = propagate_config("fast")
    for name, labels in tasks.items():
        say(f"propagating {name} through {len(world)} frames -> {folder / name}")
        names = _NAMES if name == "masks" else None
        propagate_to_folder(clip, labels, folder / name, encoder=encoder, config=config, names=names, overwrite=True)
    say(f"matching frame 0 with frame 5 -> {folder / 'flow'}")
    with open_video(clip) as video:
        flow_to_folder(video[0], video[5], folder / "flow", encoder=encoder, overwrite=True)
    return DemoResult(folder, _mean_iou(world, folder / "masks" / "labels"))


def sample() -> tuple[np.ndarray, Masks, Keypoints]:
    """Return the clip of the demo as RGB arrays, with the masks and the keypoints of its first frame."""
    world = make_world(_WORLD)
    return world.video(), Masks(world.mask(0)), _keypoints(world, 0)


def _write_clip(path: Path, world: World) -> Path:
    arrays = open_video(world.video(), fps=24)
    with VideoWriter(path, Size(_WORLD.height_px, _WORLD.width_px), arrays.time_base) as writer:
        for frame in arrays:
            writer.write(frame.image, frame.pts)
    return path


def _keypoints(world: World, t: int) -> Keypoints:
    points = world.keypoints(t)
    return Keypoints(points.names, points.xy, points.visible)


def _mean_iou(world: World, labels: Path) -> float:
    scores = []
    for t in range(len(world)):
        ground_truth, propagated = world.mask(t), Masks.read(labels / f"{t:05d}.png").ids
        for identity in world.ids:
            if (ground_truth == identity).any():
                both = ((ground_truth == identity) & (propagated == identity)).sum()
                either = ((ground_truth == identity) | (propagated == identity)).sum()
                scores.append(both / either)
    return float(np.mean(scores))
