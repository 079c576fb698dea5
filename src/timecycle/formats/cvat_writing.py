"""Write CVAT for video 1.1.

All shapes are written as keyframes: CVAT drops others when it imports a file, and interpolates in their place.
"""

import io
import itertools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from jaxtyping import Bool

from timecycle.files import atomic_text
from timecycle.formats.json_file import box_of, default_name
from timecycle.formats.video_labels import Known, VideoLabels, ids_of, points_of, size_of
from timecycle.labels import Keypoints

CENTRE_PX = 0.5  # of a pixel, from its corner


def write(labels: VideoLabels, path: Path) -> None:
    """Write all tracks; shapes wait in a temporary file, as tracks come one after the other and frames come first."""
    size = size_of(labels)
    with _Spool.opened() as spool:
        if issubclass(labels.kind, Keypoints):
            _spool_points(labels, spool)
        else:
            _spool_masks(labels, spool)
        ids = {name: int(name) if name.isdecimal() else i for i, name in enumerate(spool.tracks, 1)}
        kind = "points" if issubclass(labels.kind, Keypoints) else "mask"
        named = {name: labels.names.get(name, default_name(name) if kind == "mask" else name) for name in ids}
        with atomic_text(path) as text:
            text.write(_head(labels, size, list(named.values()), kind))
            for name in sorted(ids, key=lambda one: ids[one]):
                number = ids[name] if kind == "mask" else ids[name] - 1
                text.write(f'  <track id="{number}" label={quoteattr(named[name])} source="auto">\n')
                for shape in spool.shapes(name):
                    text.write(shape)
                text.write("  </track>\n")
            text.write("</annotations>\n")


class _Spool:
    """Shapes by track, kept on disk."""

    def __init__(self, file: io.BufferedRandom) -> None:
        self._file = file
        self.tracks: dict[str, list[tuple[int, int]]] = {}

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["_Spool"]:
        with tempfile.TemporaryFile() as file:
            yield cls(file)

    def add(self, track: str, shape: str) -> None:
        data = shape.encode()
        self.tracks.setdefault(track, []).append((self._file.seek(0, io.SEEK_END), len(data)))
        self._file.write(data)

    def shapes(self, track: str) -> Iterator[str]:
        for offset, length in self.tracks[track]:
            self._file.seek(offset)
            yield self._file.read(length).decode()


def _spool_masks(labels: VideoLabels, spool: _Spool) -> None:
    last: dict[int, str] = {}  # the last mask of each object, which its end repeats
    for index, one in labels.labels.items():
        ids = ids_of(one)
        there = np.unique(ids[ids > 0]).tolist()
        ended = {identity: mask for identity, mask in last.items() if identity not in there}
        for identity in there:
            last[identity] = _mask(ids == identity)
            occluded = labels.known.get(index, {}).get(str(identity), Known()).state == "occluded"
            spool.add(str(identity), _shape("mask", index, last[identity], occluded=occluded))
        for identity, mask in ended.items():
            spool.add(str(identity), _shape("mask", index, mask, outside=True))
        _end_tracks(labels, index, last, "mask", spool)


def _spool_points(labels: VideoLabels, spool: _Spool) -> None:
    for index, one in labels.labels.items():
        points = points_of(one)
        last = {}
        for name, xy, visible in zip(points.names, points.xy + CENTRE_PX, points.visible, strict=True):
            there = bool(np.isfinite(xy).all())
            x, y = xy.tolist() if there else (0.0, 0.0)
            last[name] = f'points="{x:.3f},{y:.3f}"'
            spool.add(name, _shape("points", index, last[name], occluded=there and not visible, outside=not there))
        _end_tracks(labels, index, last, "points", spool)


def _end_tracks(labels: VideoLabels, index: int, last: Mapping[Any, str], kind: str, spool: _Spool) -> None:
    """End tracks before frames without labels: CVAT repeats the last shape until a track ends."""
    if index + 1 < labels.frames and index + 1 not in labels.labels:
        for name, shape in last.items():
            spool.add(str(name), _shape(kind, index + 1, shape, outside=True))


def _mask(region: Bool[np.ndarray, "height width"]) -> str:
    left, top, width, height = box_of(region)
    flat = region[top : top + height, left : left + width].ravel()
    changes = [0, *(np.flatnonzero(np.diff(flat)) + 1).tolist(), flat.size]
    counts = [after - before for before, after in itertools.pairwise(changes)]
    rle = ", ".join(map(str, [0, *counts] if flat[0] else counts))
    return f'rle="{rle}" left="{left}" top="{top}" width="{width}" height="{height}"'


def _shape(kind: str, frame: int, shape: str, *, occluded: bool = False, outside: bool = False) -> str:
    flags = f'outside="{int(outside)}" occluded="{int(occluded)}" keyframe="1"'
    return f'    <{kind} frame="{frame}" {flags} {shape} z_order="0"/>\n'


def _head(labels: VideoLabels, size: tuple[int, int], names: list[str], kind: str) -> str:
    declared = "".join(
        f"        <label><name>{escape(name)}</name><type>{kind}</type><attributes></attributes></label>\n"
        for name in dict.fromkeys(names)
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n  <meta>\n    <task>\n'
        f"      <name>{escape(labels.video.name)}</name>\n      <size>{labels.frames}</size>\n"
        "      <mode>interpolation</mode>\n      <overlap>0</overlap>\n      <start_frame>0</start_frame>\n"
        f"      <stop_frame>{labels.frames - 1}</stop_frame>\n      <frame_filter></frame_filter>\n"
        f"      <labels>\n{declared}      </labels>\n"
        f"      <original_size><width>{size[1]}</width><height>{size[0]}</height></original_size>\n"
        "    </task>\n  </meta>\n"
    )
