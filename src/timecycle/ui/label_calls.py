"""Calls of the worker that reads labels: of a run, and those that the page sends.

Nothing that arrives is trusted: the header of a picture is checked before memory is allocated for it, and a run is read
by the API, which validates it.
"""

import hashlib
import io
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from timecycle import Keypoints, Masks, Run
from timecycle.errors import LabelError, OutputError
from timecycle.files import make_folder
from timecycle.labels.names import check_names
from timecycle.ui.assist import Box, Hints, Stroke, segment
from timecycle.ui.format_exports import listed
from timecycle.ui.messages import Answer

_MODES = ("L", "P", "I;16", "1")  # one value per pixel


def warm_up(_: dict[str, Any], __: bytes) -> Answer:
    """Load what the other calls need, which takes seconds, before anybody waits for it."""
    return {"colours": [list(Masks.object_colour(str(identity))) for identity in range(1, 256)]}, b""


# Pictures from the page


def save_mask(arguments: dict[str, Any], body: bytes) -> Answer:
    """Check a PNG of ids and keep it as a file that is named by its content."""
    ids = _ids_of(body, arguments["width_px"], arguments["height_px"])
    folder = make_folder(Path(arguments["folder"]))
    name = f"{hashlib.sha256(ids.tobytes()).hexdigest()[:32]}.png"
    if not (folder / name).is_file():
        Masks.of(ids).write(folder / name)
    values, counts = np.unique(ids, return_counts=True)
    return {"name": name, "pixels": {str(v): int(c) for v, c in zip(values, counts, strict=True) if v}}, b""


def _ids_of(body: bytes, width_px: int, height_px: int) -> np.ndarray:
    remedy = "send a PNG with one value per pixel, of the size of the video"
    try:
        with Image.open(io.BytesIO(body), formats=("PNG",)) as image:
            if image.size != (width_px, height_px):
                raise LabelError(
                    f"the mask is {image.width}x{image.height} but the video {width_px}x{height_px}", remedy=remedy
                )
            if image.mode not in _MODES or getattr(image, "n_frames", 1) != 1:
                raise LabelError(f"the mask has pixels of the kind {image.mode}", remedy=remedy)
            return np.array(image).astype(np.uint16)
    except LabelError:
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise LabelError("the mask cannot be read as a PNG", remedy=remedy) from error


def assist(arguments: dict[str, Any], body: bytes) -> Answer:
    """Segment an object in a region of a frame; returns a PNG of zeros and ones of that region."""
    x0, y0, x1, y1 = arguments["region"]
    pixels = np.frombuffer(body, np.uint8).reshape(y1 - y0, x1 - x0, 3)
    mask = segment(pixels, hints_of(arguments["hints"]), (x0, y0))
    file = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8)).save(file, format="PNG", compress_level=1)
    return {}, file.getvalue()


def region(arguments: dict[str, Any], _: bytes) -> Answer:
    """Return the part of a frame that decides, for some hints."""
    return {"region": hints_of(arguments["hints"]).region(arguments["height_px"], arguments["width_px"])}, b""


def hints_of(hints: dict[str, Any]) -> Hints:
    """Read hints as the page sends them."""
    try:
        box = hints.get("box")
        corners: Box | None = None
        if box is not None:
            x0, y0, x1, y1 = (int(value) for value in box)
            corners = (min(x0, x1), min(y0, y1), max(x0, x1) + 1, max(y0, y1) + 1)
        inside, outside = (
            [
                Stroke(
                    [(float(x), float(y)) for x, y in one["points"]], float(one["width_px"]), int(one.get("order", 0))
                )
                for one in hints[side]
            ]
            for side in ("inside", "outside")
        )
        numbers = [value for one in (*inside, *outside) for point in one.points for value in point]
        if not all(math.isfinite(value) and abs(value) < 1e6 for value in numbers):
            raise ValueError("a point is far outside")
        if any(not one.points or not 0 < one.width_px < 1e4 for one in (*inside, *outside)):
            raise ValueError("a stroke is empty")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise LabelError(f"the marks cannot be read: {error}", remedy="reload the page and draw them again") from error
    return Hints(corners, inside, outside)


# Runs


def run_state(arguments: dict[str, Any], _: bytes) -> Answer:
    """Describe a run, finished or not, with the rows of its tables from the frame `since` on."""
    folder, since = Path(arguments["folder"]), int(arguments.get("since", 0))
    if not (folder / "run.json").is_file():
        return {"status": "none"}, b""
    run = Run(folder, unfinished=True)
    record = run.record
    frames, objects = run.frames, run.confidence
    names = list(dict.fromkeys(name for of_frame in objects.values() for name in of_frame))
    columns = {
        name: {
            "confidence": [_rounded(objects, index, name) for index in range(since, len(frames))],
            "state": [_state(objects, index, name) for index in range(since, len(frames))],
        }
        for name in names
    }
    return {
        "status": record["status"],
        "kind": record["labels"]["kind"],
        "names": record["names"],
        "video": record["video"],
        "origin": record.get("origin"),
        "direction": record["config"].get("direction"),
        "corrections": record.get("corrections") or 0,
        "frames": len(frames),
        "since": since,
        "source": [frame.source for frame in frames[since:]],
        "confidence": [frame.confidence for frame in frames[since:]],
        "objects": columns,
        "queue": _queue(folder),
        "version": _version(folder),
        "formats": listed(record["labels"]["kind"]) if record["status"] == "finished" else [],
    }, b""


def _rounded(objects: Any, index: int, name: str) -> float | None:
    row = objects.get(index, {}).get(name)
    return None if row is None else round(row.confidence, 3)


def _state(objects: Any, index: int, name: str) -> str | None:
    row = objects.get(index, {}).get(name)
    return None if row is None else "annotated" if row.annotated else row.state


def _queue(folder: Path) -> list[dict[str, Any]] | None:
    """Read the review queue that `check` wrote; None where it has to be made."""
    try:
        queue = json.loads((folder / "review.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return queue if isinstance(queue, list) else None


def _version(folder: Path) -> str:
    """Change whenever labels of the run do: for what browsers keep."""
    stamp = (folder / "run.json").stat()
    return f"{stamp.st_mtime_ns:x}-{stamp.st_size:x}"


def labels(arguments: dict[str, Any], _: bytes) -> Answer:
    """Return the labels of a frame of a run: a PNG of ids, or points; `before`: as they were before a correction."""
    run = _run(arguments["folder"])
    index = int(arguments["index"])
    path = run.replaced_label_file(index) if arguments.get("before") else None
    path = path or run.label_file(index)
    if not path.is_file():
        raise OutputError(f"frame {index} has no labels yet", remedy="wait until it is propagated")
    if path.suffix == Keypoints.suffix:
        points = Keypoints.read(path)
        rows = zip(points.names, points.xy.tolist(), points.visible.tolist(), strict=True)
        return {"points": {name: [*map(_finite, xy), bool(visible)] for name, xy, visible in rows}}, b""
    return {}, path.read_bytes()


@lru_cache(maxsize=1)
def _opened_run(folder: str, version: str) -> Run:
    return Run(folder, unfinished=True)


def _run(folder: str) -> Run:
    return _opened_run(folder, _version(Path(folder)))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Annotations for the command line and for jobs


def write_points(arguments: dict[str, Any], _: bytes) -> Answer:
    """Write the points of a frame as a CSV, named by the frame's number."""
    points_of(arguments["points"]).write(arguments["path"])
    return {}, b""


def check_object_names(arguments: dict[str, Any], _: bytes) -> Answer:
    """Refuse names that tables and pictures cannot show."""
    check_names(arguments["names"])
    return {}, b""


def points_of(points: dict[str, Any]) -> Keypoints:
    """Make keypoints of {name: [x, y, visible]}."""
    xy = np.array([[np.nan if v is None else v for v in point[:2]] for point in points.values()], np.float32)
    visible = np.array([bool(point[2]) for point in points.values()], bool)
    return Keypoints(tuple(points), xy.reshape(-1, 2), visible)


CALLS = {
    "warm_up": warm_up,
    "save_mask": save_mask,
    "assist": assist,
    "region": region,
    "run_state": run_state,
    "labels": labels,
    "write_points": write_points,
    "check_names": check_object_names,
}
