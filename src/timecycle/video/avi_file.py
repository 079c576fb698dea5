"""AVI by its own structure: whether its index lists the chunks that are there.

FFmpeg reads frames in order by the chunks themselves, but seeks by the index, and counts frames by its entries: one
damaged entry, and a frame by its number is another than in order.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_ENTRY = struct.Struct("<4sIII")  # chunk, flags, offset, size
_LISTS = (b"LIST", b"RIFF")
_MOST_ENTRIES = 16_000_000  # a week at 25 frames a second


def has_sound_index(path: Path) -> bool:
    """Whether the index of the first RIFF part lists its chunks, in their order; True for one without an index."""
    with path.open("rb") as file:
        end = path.stat().st_size
        if file.read(4) != b"RIFF":
            return True
        size = int.from_bytes(file.read(4), "little")
        chunks: list[tuple[bytes, int]] = []
        for kind, start, length in _chunks(file, 12, min(end, 8 + size)):
            file.seek(start)
            if kind == b"LIST" and file.read(4) == b"movi":
                chunks = list(_movie(file, start + 4, start + length))
            if kind == b"idx1":
                if length // _ENTRY.size > _MOST_ENTRIES:
                    return False
                data = file.read(length)
                data = data[: len(data) // _ENTRY.size * _ENTRY.size]
                return [(name, size) for name, _, _, size in _ENTRY.iter_unpack(data) if name != b"rec "] == chunks
    return True


def _movie(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Names and sizes of the chunks with frames and sound, in order; those of lists inside too."""
    for kind, at, length in _chunks(file, start, end):
        if kind in _LISTS:
            yield from _movie(file, at + 4, at + length)
        elif kind[:2].isalnum() and kind != b"JUNK" and not kind.startswith(b"ix"):
            yield kind, length


def _chunks(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Names, places and sizes of the chunks between two places."""
    at = start
    while at + 8 <= end:
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:  # a list that claims more than the file holds
            return
        kind, length = struct.unpack("<4sI", head)
        yield kind, at + 8, length
        at += 8 + length + length % 2
