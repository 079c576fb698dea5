"""Check that a file yields all the frames that it declares."""

from fractions import Fraction
from pathlib import Path

from timecycle.video.decoder import Decoder
from timecycle.video.matroska_file import walk_matroska
from timecycle.video.mp4_file import walk_mp4
from timecycle.video.tally import Tally

_TOLERANCE = 0.9  # of the longest frame: every format rounds times in its own way
_END_TOLERANCE = 1.5  # the same, where a format states the start of the last frame rather than its end

# Formats that declare their length near the start, independently of what follows.
_DECLARING = frozenset({"flv", "asf", "mxf", "avi", "matroska"})


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
