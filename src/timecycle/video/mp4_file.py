"""Read the box structure of MP4 and MOV: how many frames a track declares, and how long it is shown.

With a flipped bit in a table of times or in the name of a box, FFmpeg skips frames without a message.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MAX_BOX_BYTES = 256 << 20  # the tables of a day at 60 frames per second are smaller
_DURATION_IS_EMPTY = 0x010000  # a flag of tfhd
_BESIDE_FRAGMENTS = frozenset(b"moof mdat styp sidx ssix emsg prft mfra free skip uuid meta moov".split())
_IN_FRAGMENT = frozenset(b"mfhd traf free skip uuid meta pssh".split())
_IN_TRACK_FRAGMENT = frozenset(b"tfhd tfdt trun sdtp sbgp sgpd subs saiz saio senc uuid free skip meta udta".split())


@dataclass
class Mp4Track:
    """What a track declares."""

    frames: int = 0  # in its tables and fragments
    edited_seconds: float | None = None  # the length of its edits; None without edits, or with unusual ones
    total_seconds: float = 0.0  # the same, with the empty time before it
    header_seconds: float | None = None  # the same, as declared by its header


@dataclass
class Mp4File:
    """The tracks of a file, and the first damage in its boxes."""

    tracks: dict[int, Mp4Track] = field(default_factory=dict)  # by number
    damage: str | None = None


def walk_mp4(path: Path) -> Mp4File:
    """Read the boxes that describe the tracks, without the frames themselves."""
    movie = Mp4File()
    described = False  # whether the next box with frames has a fragment header before it
    fragmented = False
    with path.open("rb") as file:
        at, end = 0, path.stat().st_size
        while at + 8 <= end:
            file.seek(at)
            head = file.read(16)
            size, kind = int.from_bytes(head[:4], "big"), head[4:8]
            if size == 1:
                size = int.from_bytes(head[8:], "big")
            size = size or end - at
            if fragmented and kind not in _BESIDE_FRAGMENTS and any(head[:8]):
                movie.damage = f"the box {kind!r} at byte {at} is unknown"
            if size < 8 or movie.damage is not None:
                break
            if kind in {b"moov", b"moof"} and size <= _MAX_BOX_BYTES:
                file.seek(at + 8)
                content = file.read(size - 8)
                try:
                    _read_movie(content, movie) if kind == b"moov" else _read_fragment(content, at, movie)
                except struct.error:
                    movie.damage = f"the box {kind.decode()} at byte {at} is incomplete"
                fragmented, described = fragmented or kind == b"moof", kind == b"moof"
            elif kind == b"mdat":
                if fragmented and not described:
                    movie.damage = f"the frames at byte {at} have no fragment header"
                described = False
            at += size
    return movie


def _read_movie(content: bytes, movie: Mp4File) -> None:
    boxes = dict(_boxes(content))
    scale = _time_scale(boxes.get(b"mvhd", b""))
    for kind, body in _boxes(content):
        if kind == b"trak":
            track_boxes = dict(_boxes(body))
            if b"mdhd" not in dict(_boxes(track_boxes.get(b"mdia", b""))):
                movie.damage = "a track has no media header (mdhd)"  # FFmpeg would skip it
            number, duration = _track_header(track_boxes.get(b"tkhd", b""))
            track = movie.tracks.setdefault(number, Mp4Track())
            track.frames += _samples(track_boxes.get(b"mdia", b""))
            edits = dict(_boxes(track_boxes.get(b"edts", b""))).get(b"elst")
            if edits and scale:
                _read_edits(edits, scale, track)
                track.header_seconds = duration / scale


def _read_fragment(content: bytes, at: int, movie: Mp4File) -> None:
    for kind, body in _boxes(content):
        if kind not in _IN_FRAGMENT:
            movie.damage = f"the box {kind!r} in the fragment at byte {at} is unknown"
        if kind != b"traf":
            continue
        number, is_empty, runs = 0, False, 0
        for inner, data in _boxes(body):
            if inner not in _IN_TRACK_FRAGMENT:
                movie.damage = f"the box {inner!r} in the fragment at byte {at} is unknown"
            if inner == b"tfhd":
                flags, number = struct.unpack_from(">II", data)
                is_empty = bool(flags & _DURATION_IS_EMPTY)
            if inner == b"trun":
                runs += 1
                track = movie.tracks.setdefault(number, Mp4Track())
                track.frames += struct.unpack_from(">I", data, 4)[0]
        if not runs and not is_empty:
            movie.damage = f"the fragment at byte {at} lists no frames of track {number}"


def _samples(media: bytes) -> int:
    tables = dict(_boxes(dict(_boxes(dict(_boxes(media)).get(b"minf", b""))).get(b"stbl", b"")))
    for name in (b"stsz", b"stz2"):
        if name in tables:
            return int(struct.unpack_from(">I", tables[name], 8)[0])
    return 0


def _track_header(header: bytes) -> tuple[int, int]:
    if header[:1] == b"\1":
        number, _, duration = struct.unpack_from(">IIQ", header, 20)
    else:
        number, _, duration = struct.unpack_from(">III", header, 12)
    return number, duration


def _read_edits(edits: bytes, scale: int, track: Mp4Track) -> None:
    """Set the length of the edits, unless one freezes a frame or has an unknown end."""
    entry = ">QqHh" if edits[:1] == b"\1" else ">IiHh"
    (count,) = struct.unpack_from(">I", edits, 4)
    if count > len(edits) // struct.calcsize(entry):
        raise struct.error
    all_edits = [struct.unpack_from(entry, edits, 8 + i * struct.calcsize(entry)) for i in range(count)]
    if all(rate == 1 and duration > 0 for duration, _, rate, _ in all_edits):
        track.edited_seconds = sum(duration for duration, start, *_ in all_edits if start >= 0) / scale
        track.total_seconds = sum(duration for duration, *_ in all_edits) / scale


def _time_scale(header: bytes) -> int:
    """Return the time units per second of a movie header of either version."""
    return int(struct.unpack_from(">I", header, 20 if header[:1] == b"\1" else 12)[0]) if header else 0


def _boxes(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, at)
        head = 8
        if size == 1:
            (size,), head = struct.unpack_from(">Q", content, at + 8), 16
        size = size or len(content) - at
        if size < head or at + size > len(content):
            raise struct.error
        yield kind, content[at + head : at + size]
        at += size
