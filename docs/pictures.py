"""Make the pictures of the README: python docs/pictures.py DAVIS2016 (or set TIMECYCLE_DATA).

Runs the commands that stand beside the pictures and shrinks what they write. DAVIS footage is CC BY-NC 4.0.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.cli import main as timecycle
from timecycle.labels import KINDS
from timecycle.render import Captioned, contact_sheet, overlay
from timecycle.video import open_video

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    davis = Path(sys.argv[1] if len(sys.argv) > 1 else Path(os.environ["TIMECYCLE_DATA"]) / "davis2016")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        swan, swan_mask = _sequence(davis, "blackswan")
        camel, camel_mask = _sequence(davis, "camel")
        _run("propagate", swan, swan_mask, "-o", work / "swan")
        _run("propagate", swan, swan_mask, "--texture", "stripes", "-o", work / "stripes")
        _run("propagate", camel, camel_mask, "-o", work / "camel")
        _run("demo", "-o", work / "demo")
        when = (0, 16, 33, 49)
        _save("swan", [*_shots(swan, work / "swan", "masks", when), *_shots(swan, work / "stripes", "texture", when)])
        _save("camel", _shots(camel, work / "camel", "masks", (0, 30, 60, 89)))
        clip = work / "demo" / "clip.mp4"
        kinds = ("masks", "keypoints", "texture", "coordinates")
        rows = [_shots(clip, work / "demo" / kind, kind, (0, 5, 10, 34)) for kind in kinds]
        _save("demo", [shot for row in rows for shot in row])


def _sequence(davis: Path, name: str) -> tuple[Path, Path]:
    return davis / "JPEGImages" / "480p" / name, davis / "Annotations" / "480p" / name / "00000.png"


def _run(*words: object) -> None:
    if timecycle([str(word) for word in words]) != 0:
        sys.exit(f"failed: timecycle {' '.join(map(str, words))}")


def _shots(video: Path, run: Path, kind: str, when: tuple[int, ...]) -> list[Captioned]:
    frames, labels = open_video(video), KINDS[kind]
    return [
        Captioned(
            overlay(frames[t].image, labels.read(run / "labels" / f"{t:05d}{labels.suffix}")), f"{kind}, frame {t}"
        )
        for t in when
    ]


def _save(name: str, shots: list[Captioned]) -> None:
    picture: np.ndarray = contact_sheet(shots, columns=4, width_px=240)
    Image.fromarray(picture).save(IMAGES / f"{name}.jpg", quality=82, optimize=True)


if __name__ == "__main__":
    main()
