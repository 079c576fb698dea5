"""Calls of the workers that read frames: the only code of the page that opens a video.

The reader keeps its position and the table of its frames between calls, so that the next frame costs one decode and a
random frame no more than decoding from the keyframe before it.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from timecycle import Video, open_video
from timecycle.errors import VideoError
from timecycle.ui.messages import Answer

_JPEG_QUALITY = 90  # outlines stay sharp; an exact PNG of 1080p would take ten times as long

_opened: dict[str, Video] = {}  # by path; one at a time


def open_(arguments: dict[str, Any], _: bytes) -> Answer:
    """Open a video and describe it; this counts its frames."""
    video = _video(arguments["path"])
    numbers = list(video.numbers)
    seconds = float((video.pts[-1] - video.pts[0]) * video.time_base)
    return {
        "name": Path(video.name).name,
        "frames": len(video),
        "width_px": video.size.width_px,
        "height_px": video.size.height_px,
        "fps": (len(video) - 1) / seconds if seconds > 0 else video.assumed_fps or 24.0,
        "numbers": None if numbers == list(range(len(video))) else numbers,
    }, b""


def frame(arguments: dict[str, Any], _: bytes) -> Answer:
    """Return a frame as JPEG, at most `width_px` wide."""
    image = Image.fromarray(_video(arguments["path"])[int(arguments["index"])].image)
    width_px = arguments.get("width_px")
    if width_px is not None and width_px < image.width:
        image = image.resize((width_px, max(1, round(image.height * width_px / image.width))), Image.Resampling.BOX)
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=_JPEG_QUALITY)
    return {}, file.getvalue()


def crop(arguments: dict[str, Any], _: bytes) -> Answer:
    """Return a part of a frame as raw RGB."""
    x0, y0, x1, y1 = arguments["box"]
    pixels = np.ascontiguousarray(_video(arguments["path"])[int(arguments["index"])].image[y0:y1, x0:x1])
    if not pixels.size:
        raise VideoError("the region has no pixel of the frame", remedy="draw it inside the picture")
    return {"height_px": pixels.shape[0], "width_px": pixels.shape[1]}, pixels.tobytes()


def _video(path: str) -> Video:
    if path not in _opened:
        for video in _opened.values():
            video.close()
        _opened.clear()
        _opened[path] = open_video(path)
    return _opened[path]


CALLS = {"open": open_, "frame": frame, "crop": crop}
