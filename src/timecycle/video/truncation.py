"""Check that a video file is not truncated.

Decoders stop at the end of a half-copied file without an error, and the video is merely shorter. Most containers,
however, declare their length near the start.
"""

import re
from pathlib import Path
from typing import BinaryIO

from timecycle.errors import VideoError
from timecycle.files import is_special

_EBML = b"\x1a\x45\xdf\xa3"  # the start of Matroska and WebM files
_SEGMENT = b"\x18\x53\x80\x67"  # the element that contains everything else in them
_ISO_BOXES = frozenset({b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide"})
_ISO_CONTENT = frozenset({b"moov", b"moof", b"mdat"})


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
    header_size = _ebml_number(file)
    if header_size is None:
        return 0
    file.seek(header_size, 1)
    if file.read(4) != _SEGMENT:
        return 0
    segment_size = _ebml_number(file)
    return 0 if segment_size is None else file.tell() + segment_size


def _ebml_number(file: BinaryIO) -> int | None:
    """Read a number whose leading zero bits give its length in bytes; None if it means "unknown"."""
    first = file.read(1)
    if first in {b"", b"\0"}:
        return None
    more_bytes = 8 - first[0].bit_length()
    value_bits = 7 * (more_bytes + 1)
    value = int.from_bytes(first + file.read(more_bytes), "big") & ((1 << value_bits) - 1)
    return None if value == (1 << value_bits) - 1 else value


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
