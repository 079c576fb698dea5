"""Check that a video file is not truncated, and yields all the frames that it declares.

Decoders stop at the end of a half-copied file without an error, and the video is merely shorter. Most containers,
however, declare their length near the start.

FFmpeg reads the frames of an AVI file in order from its chunks, but seeks by its index and counts the entries. With one
damaged entry, a frame read by index differs from the same frame read in order: the index is compared with the chunks.
"""

import re
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

from timecycle.errors import VideoError
from timecycle.files import is_special
from timecycle.video.damage import Tally
from timecycle.video.decoder import Decoder
from timecycle.video.matroska_file import read_number, walk_matroska
from timecycle.video.mp4_file import walk_mp4

_TOLERANCE = 0.9  # of the longest frame: every format rounds times in its own way
_END_TOLERANCE = 1.5  # the same, where a format states the start of the last frame rather than its end

# Formats that declare their length near the start, independently of what follows.
_DECLARING = frozenset({"flv", "asf", "mxf", "avi", "matroska"})

_EBML = b"\x1a\x45\xdf\xa3"  # the start of Matroska and WebM files
_SEGMENT = b"\x18\x53\x80\x67"  # the element that contains everything else in them
_ISO_BOXES = frozenset({b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide"})
_ISO_CONTENT = frozenset({b"moov", b"moof", b"mdat"})

_ENTRY = struct.Struct("<4sIII")  # chunk name, flags, offset, size
_LISTS = (b"LIST", b"RIFF")
_MAX_ENTRIES = 16_000_000  # a week at 25 frames a second


def loss_in(decoder: Decoder) -> str | None:
    """Describe what is missing, after all packets have been read; None if nothing is known to be missing."""
    tally = decoder.tally
    if not tally.complete:
        return None
    if "matroska" in decoder.formats:
        return _matroska_loss(decoder.path, decoder.track[1], tally) or _early_end(decoder)
    if "mp4" in decoder.formats:
        return _mp4_loss(decoder.path, decoder.track[0], tally, decoder.time_base)
    if "avi" in decoder.formats and tally.packets < decoder.declared_frames:
        return _fewer(tally.packets, decoder.declared_frames)
    return _early_end(decoder)


def undecoded_in(decoder: Decoder, frames: int) -> str | None:
    """Describe the loss if fewer frames were decoded than a format with one packet per frame contains."""
    tally = decoder.tally
    is_known = decoder.packets_are_frames and not decoder.hides_frames and tally.complete
    expected = tally.packets - tally.discarded - tally.before_keyframe
    return f"only {frames} of its {expected} frames can be decoded" if is_known and frames < expected else None


def _matroska_loss(path: Path, position: int, tally: Tally) -> str | None:
    file = walk_matroska(path)
    if file.damage is not None:
        return file.damage
    if position < len(file.video_tracks):
        declared = file.blocks.get(file.video_tracks[position], 0)
        if tally.packets < declared:
            return _fewer(tally.packets, declared)
    unknown = [track for track in file.blocks if track not in file.tracks]
    return f"some of its frames belong to track {unknown[0]}, which does not exist" if unknown else None


def _mp4_loss(path: Path, number: int, tally: Tally, time_base: Fraction) -> str | None:
    file = walk_mp4(path)
    track = file.tracks.get(number)
    if file.damage is not None or track is None:
        return file.damage
    if track.edited_seconds is None:
        read = tally.packets - tally.discarded_late  # without edits, only contradictory times discard frames
        return _fewer(read, track.frames) if read < track.frames else None
    shown, tolerance = float(tally.shown_duration * time_base), _TOLERANCE * float(tally.longest_duration * time_base)
    # With uneven frames, writers compute the length of an edit by other rules than the lengths of its frames.
    if tally.is_even and shown < track.edited_seconds - tolerance:
        return f"{shown:.3f} s of its {track.edited_seconds:.3f} s are there"
    if track.header_seconds is not None and abs(track.total_seconds - track.header_seconds) > tolerance:
        return f"it lasts {track.header_seconds:.3f} s by its header but {track.total_seconds:.3f} s by its edit list"
    return None


def _early_end(decoder: Decoder) -> str | None:
    tally, declared = decoder.tally, decoder.declared_seconds
    if declared is None or tally.end is None or _DECLARING.isdisjoint(decoder.formats):
        return None
    end = float(tally.end * decoder.time_base)
    duration = max(float(tally.longest_duration * decoder.time_base), float(1 / decoder.rate))
    return f"it ends at {end:.3f} s, not at {declared:.3f} s" if end < declared - _END_TOLERANCE * duration else None


def _fewer(read: int, declared: int) -> str:
    return f"only {read} of its {declared} frames are there"


class DamagedVideoError(VideoError):
    """A video file is truncated."""


def check_not_truncated(path: Path) -> None:
    """Raise VideoError if a file cannot be read, is empty, or is shorter than it declares."""
    check_regular(path)
    try:
        actual = path.stat().st_size
        with path.open("rb") as file:
            declared = _declared_bytes(file, actual)
    except OSError as error:
        raise VideoError(
            f"{path} cannot be read: {error.strerror or error}",
            remedy="pass a regular file that you may read",
        ) from error
    if actual == 0:
        raise VideoError(f"{path} is empty (0 bytes)", remedy="copy or record it again")
    if actual < declared:
        raise DamagedVideoError(
            f"{path} is cut short: {actual} of {declared} bytes are there",
            remedy="copy it again from its source; to use the rest of it, pass --allow-damaged "
            "(Python: allow_damaged=True), or re-encode it with: ffmpeg -i IN -c:v libx264 OUT.mp4",
        )


def check_regular(path: Path) -> None:
    """Raise VideoError for a pipe, a socket or a device, on which reading could block forever."""
    if is_special(path):
        raise VideoError(
            f"{path} is not a regular file but a pipe, a socket or a device",
            remedy="save the video to a file and pass that",
        )


def _declared_bytes(file: BinaryIO, actual: int) -> int:
    """Return the length that the file declares; 0 if its format (such as a raw stream) declares none."""
    head = file.read(1024)
    file.seek(0)
    if head[4:8] in _ISO_BOXES:
        return _iso_bytes(file)
    if head[:4] == b"RIFF":
        return _riff_bytes(file)
    if head[:4] == _EBML:
        return _matroska_bytes(file)
    if head[:9] == b"YUV4MPEG2":
        return _y4m_bytes(head, actual)
    if head[:4] == b"GIF8":
        return actual if _gif_has_end(file, actual) else actual + 1
    return _transport_bytes(head, actual)


def _iso_bytes(file: BinaryIO) -> int:
    """Return the end of the last box with content in MP4 or MOV; padding or garbage may follow."""
    end = offset = 0
    while len(header := file.read(16)) >= 8:
        size, kind = int.from_bytes(header[:4], "big"), header[4:8]
        if size == 1:  # a 64-bit size follows
            size = int.from_bytes(header[8:], "big")
        if size < 8:  # 0: up to the end of the file, wherever that is
            break
        offset += size
        if kind in _ISO_CONTENT:
            end = offset
        file.seek(offset)
    return end


def _riff_bytes(file: BinaryIO) -> int:
    """Return the end of the last RIFF chunk of an AVI; large files have several."""
    end = offset = 0
    while (header := file.read(8))[:4] == b"RIFF" and len(header) == 8:
        size = int.from_bytes(header[4:], "little")
        if size in {0, 0xFFFFFFFF}:  # the recorder could not seek back to fill it in
            break
        end = offset + 8 + size
        offset = end + size % 2
        file.seek(offset)
    return end


def _matroska_bytes(file: BinaryIO) -> int:
    """Return the end of the segment of Matroska or WebM; 0 if it was streamed with an unknown size."""
    file.seek(len(_EBML))
    header_size = read_number(file, marked=False)
    if header_size is None:
        return 0
    file.seek(header_size, 1)
    if file.read(4) != _SEGMENT:
        return 0
    segment_size = read_number(file, marked=False)
    return 0 if segment_size is None else file.tell() + segment_size


def _gif_has_end(file: BinaryIO, actual: int) -> bool:
    """Return whether a GIF has its trailer, after which some programs leave padding."""
    file.seek(max(0, actual - 1024))
    return file.read().rstrip(b"\0").endswith(b";")


def _y4m_bytes(head: bytes, actual: int) -> int:
    """Round a YUV4MPEG up to a whole number of frames; 0 if frames have parameters of their own."""
    line, newline, rest = head.partition(b"\n")
    parameters = {word[:1]: word[1:].decode("ascii", "replace") for word in line.split(b" ")[1:]}
    width, height = (
        int(side) if side.isdecimal() else 0 for side in (parameters.get(b"W", ""), parameters.get(b"H", ""))
    )
    kind = re.fullmatch(r"(mono|420|422|444)(jpeg|paldv|mpeg2)?(?:p?(9|1\d))?", parameters.get(b"C", "420"))
    if not newline or not rest.startswith(b"FRAME\n") or kind is None or width * height == 0:
        return 0
    half_width, half_height = -(-width // 2), -(-height // 2)
    colour = {"mono": 0, "420": 2 * half_width * half_height, "422": 2 * half_width * height, "444": 2 * width * height}
    frame_bytes = len(b"FRAME\n") + (width * height + colour[kind[1]]) * (2 if kind[3] else 1)
    frames_bytes = actual - len(line) - 1
    return actual - frames_bytes + -(-frames_bytes // frame_bytes) * frame_bytes


def _transport_bytes(head: bytes, actual: int) -> int:
    """Round an MPEG-TS up to a whole number of packets of 188 bytes, or 192 with a time before each packet."""
    for sync_at, packet_bytes in ((0, 188), (4, 192)):
        if len(head) == 1024 and set(head[sync_at::packet_bytes]) == {0x47}:
            return -(-actual // packet_bytes) * packet_bytes
    return 0


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
