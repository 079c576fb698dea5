"""Make the pictures of the README and the docs: python docs/pictures.py DAVIS2016 (or set TIMECYCLE_DATA).

Runs the commands that stand beside the pictures and shrinks what they write; the page for review is opened in chromium.
DAVIS footage is CC BY-NC 4.0.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.cli import main as timecycle
from timecycle.labels import KINDS
from timecycle.render import Captioned, contact_sheet
from timecycle.video import open_video

IMAGES = Path(__file__).parent / "images"


# Four hard sequences, and when they are shown: with plain inference, then with all steps of docs/decisions/engine.md.
STEPS = {
    "camel": (20, 40, 60, 89),
    "bmx-trees": (15, 30, 50, 79),
    "dance-twirl": (15, 30, 60, 89),
    "kite-surf": (10, 20, 35, 49),
}


def main() -> None:
    davis = Path(sys.argv[1] if len(sys.argv) > 1 else Path(os.environ["TIMECYCLE_DATA"]) / "davis2016")
    with tempfile.TemporaryDirectory() as folder:
        _steps(davis, Path(folder))
        _readme(davis, Path(folder))


def _steps(davis: Path, work: Path) -> None:
    shots = []
    for name, when in STEPS.items():
        video, mask = _sequence(davis, name)
        for preset in ("plain", "default"):
            run = work / f"{name}-{preset}"
            _run("propagate", video, mask, "--preset", preset, "--no-confidence", "-o", run)
            shots += _shots(video, run, "masks", when, title=f"{name}, {preset}")
    _save("steps", shots)


def _readme(davis: Path, work: Path) -> None:
    swan, swan_mask = _sequence(davis, "blackswan")
    camel, camel_mask = _sequence(davis, "camel")
    _run("propagate", swan, swan_mask, "-o", work / "swan")
    _run("propagate", swan, swan_mask, "--texture", "stripes", "-o", work / "stripes")
    _run("propagate", camel, camel_mask, "--names", "255=camel", "-o", work / "camel")
    _run("check", work / "camel")
    _page("report", work / "camel" / "report.html", work)
    jump, jump_mask = _sequence(davis, "motocross-jump")
    annotations = [f"{index}={jump_mask.with_name(f'{index:05d}.png')}" for index in (0, 21)]
    _run("propagate", jump, *annotations, "--exhaustive", "--preset", "fast", "-o", work / "jump")
    _save("motocross", _shots(jump, work / "jump", "masks", (0, 12, 21, 24, 28, 33, 36, 39)))
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


def _shots(video: Path, run: Path, kind: str, when: tuple[int, ...], title: str = "") -> list[Captioned]:
    frames, labels = open_video(video), KINDS[kind]
    return [
        Captioned(
            labels.read(run / "labels" / f"{t:05d}{labels.suffix}").overlay(frames[t].image),
            f"{title or kind}, frame {t}",
        )
        for t in when
    ]


def _page(name: str, page: Path, work: Path) -> None:
    """The page as a browser shows it, without the empty end, and as if it lay in a home folder."""
    shot = page.with_suffix(".shot.png")
    page.write_text(page.read_text(encoding="utf-8").replace(str(work), "/home/me"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1120,1600", f"--screenshot={shot}"]
    subprocess.run(["chromium", *options, page.as_uri()], check=True, capture_output=True)
    pixels = np.asarray(Image.open(shot).convert("RGB"))
    written = np.flatnonzero((pixels != pixels[0, 0]).any(axis=(1, 2)))
    picture = Image.fromarray(pixels[: written[-1] + 24])
    picture.thumbnail((900, picture.height), Image.Resampling.LANCZOS)
    picture.save(IMAGES / f"{name}.jpg", quality=82, optimize=True)


def _save(name: str, shots: list[Captioned]) -> None:
    picture: np.ndarray = contact_sheet(shots, columns=4, width_px=240)
    Image.fromarray(picture).save(IMAGES / f"{name}.jpg", quality=82, optimize=True)


if __name__ == "__main__":
    main()
