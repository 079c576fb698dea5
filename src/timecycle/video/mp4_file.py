"""MP4 and MOV by their own structure: how many frames a track declares, and how long it is shown.

A flipped bit in a table of times or in the name of a box makes FFmpeg leave frames out without a message.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MOST_READ = 256 << 20  # bytes of one box; tables of a day at 60 frames a second have less
_DURATION_IS_EMPTY = 0x010000  # a flag of tfhd
_BESIDE_FRAGMENTS = frozenset(
    {
        b"moof",
        b"mdat",
        b"styp",
        b"sidx",
        b"ssix",
        b"emsg",
        b"prft",
        b"mfra",
        b"free",
        b"skip",
        b"uuid",
        b"meta",
        b"moov",
    }
)
_IN_FRAGMENT = frozenset({b"mfhd", b"traf", b"free", b"skip", b"uuid", b"meta", b"pssh"})
_IN_TRACK_FRAGMENT = frozenset(
    {
        b"tfhd",
        b"tfdt",
        b"trun",
        b"sdtp",
        b"sbgp",
        b"sgpd",
        b"subs",
        b"saiz",
        b"saio",
        b"senc",
        b"uuid",
        b"free",
        b"skip",
    }
    | {b"meta", b"udta"}
)


@dataclass
class Mp4Track:
    """What a track says of itself."""

    frames: int = 0  # in its tables and fragments
    edited_seconds: float | None = None  # how long its edits show it; None where it has none, or only odd ones
    total_seconds: float = 0.0  # the same with the empty time before it
    header_seconds: float | None = None  # how long its header says that is


@dataclass
class Mp4File:
    """What the boxes of a file tell."""

    tracks: dict[int, Mp4Track] = field(default_factory=dict)  # by number
    damage: str | None = None


def walk_mp4(path: Path) -> Mp4File:
    """Read the boxes that describe the tracks; the frames themselves are passed over."""
    found = Mp4File()
    described = False  # whether a box with frames has another that describes it, in files of fragments
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
                found.damage = f"there is no box {kind!r} (at byte {at})"
            if size < 8 or found.damage is not None:
                break
            if kind in {b"moov", b"moof"} and size <= _MOST_READ:
                file.seek(at + 8)
                content = file.read(size - 8)
                try:
                    _read_movie(content, found) if kind == b"moov" else _read_fragment(content, at, found)
                except struct.error:
                    found.damage = f"the box {kind.decode()} at byte {at} is incomplete"
                fragmented, described = fragmented or kind == b"moof", kind == b"moof"
            elif kind == b"mdat":
                if fragmented and not described:
                    found.damage = f"nothing describes the frames at byte {at}"
                described = False
            at += size
    return found


def _read_movie(content: bytes, found: Mp4File) -> None:
    boxes = dict(_boxes(content))
    scale = _time_scale(boxes.get(b"mvhd", b""))
    for kind, body in _boxes(content):
        if kind == b"trak":
            parts = dict(_boxes(body))
            if b"mdhd" not in dict(_boxes(parts.get(b"mdia", b""))):
                found.damage = "a track has no media header (mdhd)"  # FFmpeg would leave it out
            number, duration = _track_header(parts.get(b"tkhd", b""))
            track = found.tracks.setdefault(number, Mp4Track())
            track.frames += _samples(parts.get(b"mdia", b""))
            edits = dict(_boxes(parts.get(b"edts", b""))).get(b"elst")
            if edits and scale:
                _read_edits(edits, scale, track)
                track.header_seconds = duration / scale


def _read_fragment(content: bytes, at: int, found: Mp4File) -> None:
    for kind, body in _boxes(content):
        if kind not in _IN_FRAGMENT:
            found.damage = f"there is no box {kind!r} (in the fragment at byte {at})"
        if kind != b"traf":
            continue
        number, is_empty, runs = 0, False, 0
        for inner, data in _boxes(body):
            if inner not in _IN_TRACK_FRAGMENT:
                found.damage = f"there is no box {inner!r} (in the fragment at byte {at})"
            if inner == b"tfhd":
                flags, number = struct.unpack_from(">II", data)
                is_empty = bool(flags & _DURATION_IS_EMPTY)
            if inner == b"trun":
                runs += 1
                track = found.tracks.setdefault(number, Mp4Track())
                track.frames += struct.unpack_from(">I", data, 4)[0]
        if not runs and not is_empty:
            found.damage = f"the fragment at byte {at} lists no frames of track {number}"


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
    """Seconds that edits show; nothing where one stands still, or goes on to an end that is not stated."""
    entry = ">QqHh" if edits[:1] == b"\1" else ">IiHh"
    (count,) = struct.unpack_from(">I", edits, 4)
    if count > len(edits) // struct.calcsize(entry):
        raise struct.error
    all_edits = [struct.unpack_from(entry, edits, 8 + i * struct.calcsize(entry)) for i in range(count)]
    if all(rate == 1 and duration > 0 for duration, _, rate, _ in all_edits):
        track.edited_seconds = sum(duration for duration, start, *_ in all_edits if start >= 0) / scale
        track.total_seconds = sum(duration for duration, *_ in all_edits) / scale


def _time_scale(header: bytes) -> int:
    """Units per second in a movie header, which has two forms."""
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
