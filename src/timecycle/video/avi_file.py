"""Compare the index of an AVI file with its chunks.

FFmpeg reads frames in order from the chunks themselves, but seeks by the index and counts its entries. With one damaged
entry, a frame read by index differs from the same frame read in order.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_ENTRY = struct.Struct("<4sIII")  # chunk name, flags, offset, size
_LISTS = (b"LIST", b"RIFF")
_MAX_ENTRIES = 16_000_000  # a week at 25 frames a second


def index_matches_chunks(path: Path) -> bool:
    """Return whether the index of the first RIFF chunk lists its chunks in order; True if there is no index."""
    with path.open("rb") as file:
        end = path.stat().st_size
        if file.read(4) != b"RIFF":
            return True
        size = int.from_bytes(file.read(4), "little")
        chunks: list[tuple[bytes, int]] = []
        for kind, start, length in _chunks(file, 12, min(end, 8 + size)):
            file.seek(start)
            if kind == b"LIST" and file.read(4) == b"movi":
                chunks = list(_movie_chunks(file, start + 4, start + length))
            if kind == b"idx1":
                if length // _ENTRY.size > _MAX_ENTRIES:
                    return False
                data = file.read(length)
                data = data[: len(data) // _ENTRY.size * _ENTRY.size]
                return [(name, size) for name, _, _, size in _ENTRY.iter_unpack(data) if name != b"rec "] == chunks
    return True


def _movie_chunks(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Yield names and sizes of the chunks with frames and sound, in order, including those in nested lists."""
    for kind, at, length in _chunks(file, start, end):
        if kind in _LISTS:
            yield from _movie_chunks(file, at + 4, at + length)
        elif kind[:2].isalnum() and kind != b"JUNK" and not kind.startswith(b"ix"):
            yield kind, length


def _chunks(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield names, offsets and sizes of the chunks between two offsets."""
    at = start
    while at + 8 <= end:
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:  # a list that claims more than the file holds
            return
        kind, length = struct.unpack("<4sI", head)
        yield kind, at + 8, length
        at += 8 + length + length % 2
