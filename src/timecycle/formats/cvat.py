"""CVAT for video 1.1: XML with one track per object, of masks or polygons, or of points.

Masks are run lengths, row by row, inside of a box. Points are measured from the corner of the first pixel.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
from jaxtyping import Bool

from timecycle.errors import LabelError
from timecycle.formats.cvat_writing import CENTRE_PX, write
from timecycle.formats.format import Format
from timecycle.formats.json_file import default_name, masks_of
from timecycle.formats.polygons import fill
from timecycle.formats.video_labels import (
    MAX_FRAMES,
    Known,
    LazyLabels,
    VideoFacts,
    VideoLabels,
    usable_names,
)
from timecycle.labels import Keypoints, Masks
from timecycle.labels.file import note

_MAX_BYTES = 1 << 30
_REMEDY = "export the task again as `CVAT for video 1.1`"
_XML_ERRORS = (expat.ExpatError, ValueError, LookupError)  # LookupError: an unknown encoding

Shape = Mapping[str, str]  # the attributes of a shape


@dataclass(eq=False)
class _Track:
    label: str
    shapes: dict[int, tuple[str, Shape]] = field(default_factory=dict)  # by frame, with their kind


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read tracks of masks and polygons, or of points; each frame is decoded when it is asked for."""
    meta, tracks, skipped = _read_tracks(path)
    for kind, count in skipped.items():
        note(f"{path}: {count} shapes of the kind {kind} are left out: they are neither masks nor points")
    facts = _facts(path, meta)
    if tracks and all(kind == "points" for track in tracks.values() for kind, _ in track.shapes.values()):
        return _keypoints(path, tracks, facts)
    size = facts.size or video.size
    if size is None:
        raise LabelError(f"{path} does not say the size of the video", remedy="say which video it is: --video VIDEO")
    zero = min(tracks, default=1) < 1  # CVAT counts tracks from 0
    by_id = {number + zero: track for number, track in tracks.items()}
    if max(by_id, default=0) > 65535:
        raise LabelError(f"{path} has the track {max(tracks)}", remedy="number tracks up to 65534")
    frames = sorted({frame for track in by_id.values() for frame in track.shapes})

    def decode(frame: int) -> Masks:
        regions = (
            (identity, partial(_region, shape, size, f"track {identity - zero} on frame {frame} of {path}"))
            for identity, shape in _visible(by_id, frame)
        )
        return masks_of(size, regions, f"frame {frame} of {path}")

    labels = [track.label for track in by_id.values()]
    names = {str(i): track.label for i, track in by_id.items() if labels.count(track.label) == 1}
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(frames, decode),
        video=facts,
        names=usable_names({i: name for i, name in names.items() if name != default_name(i)}, path),
        known={frame: {str(i): _known(shape) for i, (_, shape) in _visible(by_id, frame)} for frame in frames},
    )


def _visible(tracks: Mapping[int, _Track], frame: int) -> Iterator[tuple[int, tuple[str, Shape]]]:
    for identity, track in tracks.items():
        if frame in track.shapes and track.shapes[frame][1].get("outside") != "1":
            yield identity, track.shapes[frame]


def _known(shape: Shape) -> Known:
    state = "occluded" if shape.get("occluded") == "1" else ""
    return Known(None, state, annotated=shape.get("keyframe") == "1")


def _keypoints(path: Path, tracks: Mapping[int, _Track], facts: VideoFacts) -> VideoLabels:
    """Read one point per track, named after the track's label."""
    names = [track.label for track in tracks.values()]
    if len(set(names)) != len(names):
        names = [f"{track.label} {number}" for number, track in tracks.items()]
    found: dict[int, list[tuple[str, tuple[float, float], bool]]] = {}
    for name, (number, track) in zip(names, tracks.items(), strict=True):
        for frame, (_, shape) in sorted(track.shapes.items()):
            place = f"track {number} on frame {frame} of {path}"
            vertices = _vertices(shape, place) - CENTRE_PX
            if len(vertices) != 1:
                raise LabelError(f"{place} has {len(vertices)} points", remedy="give every point a track of its own")
            outside, occluded = (shape.get(flag) == "1" for flag in ("outside", "occluded"))
            x, y = (np.nan, np.nan) if outside else vertices[0].tolist()
            found.setdefault(frame, []).append((name, (x, y), not outside and not occluded))
    labels = {
        frame: Keypoints(
            tuple(name for name, _, _ in points),
            np.array([xy for _, xy, _ in points], np.float32),
            np.array([seen for _, _, seen in points], bool),
        )
        for frame, points in sorted(found.items())
    }
    return VideoLabels(kind=Keypoints, labels=labels, video=facts)


def _read_tracks(path: Path) -> tuple[ElementTree.Element | None, dict[int, _Track], dict[str, int]]:
    """Read the meta data and the tracks; what is read is removed from the tree at once."""
    tracks: dict[int, _Track] = {}
    skipped: dict[str, int] = {}
    meta = None
    _check_beginning(path)
    try:
        with path.open("rb") as file:
            for _, element in ElementTree.iterparse(file, events=("end",)):  # noqa: S314  without entities
                if element.tag == "meta":
                    meta = element
                elif element.tag == "track":
                    number = _whole(element.get("id"), "the id of a track", path)
                    if number in tracks:
                        raise LabelError(f"{path} has two tracks {number}", remedy=_REMEDY)
                    track = tracks[number] = _Track(element.get("label", ""))
                    for shape in element:
                        if shape.tag in ("mask", "polygon", "points"):
                            frame = _whole(shape.get("frame"), f"a frame of track {number}", path)
                            track.shapes[frame] = (shape.tag, dict(shape.attrib))
                        else:
                            skipped[str(shape.tag)[:40]] = skipped.get(str(shape.tag)[:40], 0) + 1
                    element.clear()
                elif element.tag == "image":
                    raise LabelError(f"{path} is `CVAT for images`", remedy=_REMEDY)
    except (*_XML_ERRORS, ElementTree.ParseError, OSError) as error:
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    return meta, {number: track for number, track in sorted(tracks.items()) if track.shapes}, skipped


def _check_beginning(path: Path) -> None:
    """Refuse files that are too large, that have a document type, and what is not CVAT's."""
    if path.stat().st_size > _MAX_BYTES:
        raise LabelError(f"{path} is larger than {_MAX_BYTES >> 30} GiB", remedy="export a part of the task")
    try:
        is_known = _recognises(path)
    except _XML_ERRORS as error:
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    if not is_known:
        raise LabelError(f"{path} is not a file of annotations of CVAT", remedy=_REMEDY)


class _BeginningIsKnownError(Exception):
    """Ends the parser of a file's beginning."""


def _recognises(path: Path) -> bool:
    """Return whether a file begins with CVAT's element and without a document type.

    The entities of a document type could unfold to any size. It stands before the first element, and only a parser
    tells where that is: a comment may contain the name of the element.
    """
    elements: list[str] = []

    def begin(name: str, _: object) -> None:
        elements.append(name)
        raise _BeginningIsKnownError

    def refuse(*_: object) -> None:
        raise _BeginningIsKnownError

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = begin, refuse
    with path.open("rb") as file, suppress(_BeginningIsKnownError):
        parser.Parse(file.read(1 << 16), True)
    return elements == ["annotations"]


def _is_cvat(path: Path) -> bool:
    try:
        return _recognises(path)
    except _XML_ERRORS:
        return False


def _facts(path: Path, meta: ElementTree.Element | None) -> VideoFacts:
    def text(name: str) -> str | None:
        return None if meta is None else meta.findtext(f".//{name}")

    height, width = (text(f"original_size/{side}") for side in ("height", "width"))
    size = None
    if height and width:
        size = _whole(height, "the height", path), _whole(width, "the width", path)
        if not 0 < size[0] <= 1 << 16 or not 0 < size[1] <= 1 << 16:
            raise LabelError(f"{path} is of frames of {width}x{height}", remedy=_REMEDY)
    frames = _whole(count, "the number of frames", path) if (count := text("size")) else None
    # A task may show a part of the video, or every tenth frame.
    whole_video = frames and text("start_frame") in (None, "0") and not (text("frame_filter") or "").strip()
    stop = text("stop_frame")
    if stop is not None and frames and _whole(stop, "the last frame", path) != frames - 1:
        whole_video = False
    return VideoFacts(name=str(path), frames=frames if whole_video else None, size=size)


def _whole(text: str | None, what: str, path: Path) -> int:
    if text is None or not text.strip().isdecimal() or len(text.strip()) > 9 or int(text) > MAX_FRAMES:
        raise LabelError(f"{what} of {path} is {str(text)[:40]!r}", remedy=_REMEDY)
    return int(text)


def _region(shape: tuple[str, Shape], size: tuple[int, int], place: str) -> Bool[np.ndarray, "height width"]:
    kind, attributes = shape
    if kind == "polygon":
        return fill(_vertices(attributes, place), size)
    try:
        left, top, width, height = (int(attributes[name]) for name in ("left", "top", "width", "height"))
        counts = np.array(attributes["rle"].split(","), np.int64)
    except (KeyError, ValueError, OverflowError) as error:
        raise LabelError(f"{place} is no mask: {str(error)[:80]}", remedy=_REMEDY) from error
    inside = 0 <= left < left + width <= size[1] and 0 <= top < top + height <= size[0]
    if not inside or counts.min() < 0 or counts.max() > width * height or counts.sum() != width * height:
        raise LabelError(f"{place} has a mask that does not fill its box, or leaves the frame", remedy=_REMEDY)
    region = np.zeros(size, bool)
    region[top : top + height, left : left + width] = np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(
        height, width
    )
    return region


def _vertices(shape: Shape, place: str) -> np.ndarray:
    try:
        pairs = [pair.split(",") for pair in shape["points"].split(";")]
        vertices = np.array(pairs, np.float64)
        if vertices.ndim != 2 or vertices.shape[1] != 2 or not (np.abs(vertices) < 1e6).all():
            raise ValueError("they are not pairs of coordinates")
    except (KeyError, ValueError) as error:
        raise LabelError(f"{place} has no valid points: {str(error)[:80]}", remedy=_REMEDY) from error
    return vertices


FORMAT = Format(
    name="cvat",
    title="CVAT for video 1.1 XML",
    suffixes=(".xml",),
    kinds=("masks", "parts", "keypoints"),
    loses="confidence; which frames were annotated by hand (all shapes are keyframes); the rate",
    read=read,
    write=write,
    recognises=_is_cvat,
)
