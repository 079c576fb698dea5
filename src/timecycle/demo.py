"""The demo: propagate every kind of label through a small synthetic clip, in under a minute, without downloads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
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


def write_sample(folder: str | Path, *, name: str = "clip", frames: int = 24, seed: int = 0) -> Path:
    """Write a small synthetic video with its ground truth, to try things on; return the path of the video.

    folder: for videos/NAME.mp4, of 320x240 px, masks/NAME/00000.png ..., the masks of every frame, and points/NAME.csv,
        the keypoints of frame 0. Files of these names are replaced.
    name: of the video.
    frames: its length. Meanwhile three objects hide, leave and appear, so in fewer frames they move faster.
    seed: another number makes another video.
    """
    world = make_world(replace(_WORLD, frames=frames, seed=seed))
    folder = Path(folder)
    masks = make_folder(folder / "masks" / name)
    for t in range(frames):
        Masks(world.mask(t)).write(masks / f"{t:05d}.png")
    _keypoints(world, 0).write(make_folder(folder / "points") / f"{name}.csv")
    return _write_clip(make_folder(folder / "videos") / f"{name}.mp4", world)


def _write_clip(path: Path, world: World) -> Path:
    arrays = open_video(world.video(), fps=24)
    with VideoWriter(path, Size(world.config.height_px, world.config.width_px), arrays.time_base) as writer:
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
