"""Measure the page on a long video: how soon a frame is shown, what a stroke costs, whether memory stays flat.

The video is generated: ten minutes of 1080p with a keyframe every 250 frames, the hardest case for random access.

    python benchmarks/ui_page.py long.mp4 -o benchmarks/results/ui_page.json
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import av
import numpy as np

from record import machine_name  # noqa: F401  the name of the processor, as in other results
from timecycle import open_video

FPS, SECONDS, GOP = 24, 600, 250
WIDTH, HEIGHT = 1920, 1080
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def make_video(path: Path, *, seconds: int = SECONDS) -> Path:
    """Write a pan over a large noisy picture: every frame differs, and none is cheap to decode."""
    noise = np.random.default_rng(0)
    blocks = noise.integers(0, 256, (HEIGHT // 8 + 40, WIDTH // 8 + 80, 3), np.uint8)
    picture = np.kron(blocks, np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"preset": "ultrafast", "g": str(GOP), "keyint_min": str(GOP), "sc_threshold": "0", "crf": "30"}
        for index in range(FPS * seconds):
            x, y = int(300 + 280 * np.sin(index / 90)), int(150 + 140 * np.cos(index / 70))
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[y : y + HEIGHT, x : x + WIDTH]), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


if __name__ == "__main__" and sys.argv[1:2] == ["--make"]:
    make_video(Path(sys.argv[2]))
    sys.exit()
