"""Which of FFmpeg's messages mean that a part of a video is lost or made up."""

from collections.abc import Sequence

import av.logging

from timecycle.video.ffmpeg_log import Message

# Errors that whole recordings of phones, cameras and older encoders cause, and that lose no picture.
_HARMLESS = ("chapter", "mmco: unref short failure", "exceeds max (probably corrupt", "SEI type", "APP fields", "udta")

# Of the many warnings, which mostly tell of unusual but whole files, those that tell of a loss.
_GRAVE = ("Packet corrupt", "broken or empty index", "sync lost", "Packet mismatch", "truncated", "CRC", "checksum")


def damage_in(messages: Sequence[Message], *, speakers: Sequence[str]) -> str | None:
    """The first message of one of the `speakers` (names of formats and codecs) that tells of damage; None without."""
    for level, speaker, text in messages:
        harmless = any(words in text for words in _HARMLESS)
        grave = level <= av.logging.ERROR or any(words in text for words in _GRAVE)
        if speaker in speakers and grave and not harmless:
            return " ".join(text.split())
    return None
