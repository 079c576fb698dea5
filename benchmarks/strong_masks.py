"""Compare encoders on real footage with masks of a strong method: VGG-16 with default inference at 480p.

    python benchmarks/strong_masks.py make VIDEOS --out DIR
    python benchmarks/strong_masks.py score DIR --encoders NAME|FILE ... [--set colour=0] [--record]

`make` cuts an object out of the first frame of each clip that strong_masks.toml names (GrabCut in a box drawn by hand)
and propagates it. `score` propagates the same first mask with every encoder, by plain inference at 240 pixels, and
compares it with those masks (J&F). At 240p on DAVIS-2016 val VGG-16 with all steps of inference is far ahead of plain
inference with any encoder here, so that agreeing with it is better; it is not the truth. Prints the mean in per cent,
and paired differences to the first encoder with standard errors. With --record the scores of every clip are written to
strong_masks_NAME.json.
"""

import argparse
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from PIL import Image

import timecycle
from encoders import load_named
from inference import plain_at_240
from record import write_record
from round_trips import paired
from timecycle.evaluation.metrics.masks import average_objects, score_objects
from timecycle.files import make_folder
from timecycle.labels import Masks
from timecycle.labels.grab_cut import OUTSIDE, PROBABLY_INSIDE, grab_cut
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.video import open_video

_BOXES = Path(__file__).with_name("strong_masks.toml")
_TEACHER = "vgg16"
_FRAMES = 60
_MARGIN_PX = 2  # around a box
_ITERATIONS = 5  # of GrabCut


def make(videos: Path, out: Path) -> None:
    """Write the frames and the masks of every clip that is not there yet: OUT/CLIP/00000.png, 00000_mask.png."""
    boxes = tomllib.loads(_BOXES.read_text(encoding="utf-8"))
    encoder = load_encoder(_TEACHER)
    for name, box in boxes.items():
        unfinished = out / f".{name}"
        if (out / name).exists() or unfinished.exists():  # of another process
            continue
        began = time.monotonic()
        make_folder(unfinished)
        with open_video(videos / f"{name}.mp4") as video:
            frames = np.stack([video[index].image for index in range(min(_FRAMES, len(video)))])
        first = {0: Masks.of(object_in(frames[0], box))}
        for frame in timecycle.propagate(frames, first, encoder=encoder, config="default", confidence=None):
            Image.fromarray(frames[frame.index]).save(unfinished / f"{frame.index:05d}.png")
            mask = (frame.labels.ids > 0).astype(np.uint8)
            Image.fromarray(mask).save(unfinished / f"{frame.index:05d}_mask.png")
        unfinished.rename(out / name)
        print(f"{name}: {len(frames)} frames, {time.monotonic() - began:.0f} s", flush=True)


def object_in(image: np.ndarray, box: Sequence[int]) -> np.ndarray:
    """Cut the object out of a box (left, top, right, bottom)."""
    left, top, right, bottom = box
    trimap = np.full(image.shape[:2], OUTSIDE, np.uint8)
    rows = slice(max(top - _MARGIN_PX, 0), bottom + _MARGIN_PX)
    trimap[rows, max(left - _MARGIN_PX, 0) : right + _MARGIN_PX] = PROBABLY_INSIDE
    return grab_cut(image, lambda *_: trimap, iterations=_ITERATIONS, max_pixels=trimap.size, extra="assist")


def agreement(clip: Path, encoder: Encoder) -> float:
    """Return the mean of J and F of plain inference against the masks of a clip, in per cent."""
    masks = np.stack([np.array(Image.open(path)) for path in sorted(clip.glob("*_mask.png"))])
    frames = np.stack([np.array(Image.open(clip / f"{index:05d}.png")) for index in range(len(masks))])
    first = {0: Masks.of(masks[0] > 0)}
    labelled = timecycle.propagate(frames, first, encoder=encoder, config=plain_at_240(), confidence=None)
    predicted = np.stack([(frame.labels.ids > 0).astype(np.uint8) for frame in labelled])
    scores = average_objects(score_objects(predicted, masks))
    return 100 * scores.JF


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("videos", type=Path)
    maker.add_argument("--out", type=Path, required=True)
    scorer = commands.add_parser("score")
    scorer.add_argument("folder", type=Path)
    scorer.add_argument("--encoders", nargs="+", default=[DEFAULT_ENCODER])
    scorer.add_argument("--set", nargs="*", default=[], help="settings of the descriptor, such as colour=0")
    scorer.add_argument("--record", action="store_true", help="write strong_masks_NAME.json of each encoder")
    chosen = parser.parse_args()
    if chosen.command == "make":
        make(chosen.videos, chosen.out)
        return 0
    clips = sorted(path for path in chosen.folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    base: dict[str, float] = {}
    for name in chosen.encoders:
        encoder, began = load_named(name, chosen.set), time.monotonic()
        scores = {clip.name: agreement(clip, encoder) for clip in clips}
        base = base or scores
        if chosen.record:
            changed = "".join(f"_{change.replace('=', '_')}" for change in chosen.set)
            write_record(
                f"strong_masks_{Path(name).stem}{changed}",
                settings={"encoder": Path(name).name, "weights_sha256": encoder.sha256, "changed": chosen.set},
                measured={"scores": scores},
                seconds=time.monotonic() - began,
            )
        difference, error = paired(scores, base)
        print(f"{name}: {fmean(scores.values()):.1f} of {len(scores)}, {difference:+.1f} +- {error:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
