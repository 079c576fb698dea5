"""Does a file give all the frames that it declares itself?"""

from fractions import Fraction
from pathlib import Path

from timecycle.video.decoder import Decoder
from timecycle.video.matroska_file import walk_matroska
from timecycle.video.mp4_file import walk_mp4
from timecycle.video.tally import Tally

_SAME = 0.9  # of the longest frame: what times may differ by, since every format rounds them in its own way
_LATE = 1.5  # the same, where a format states the start of the last frame rather than its end

# Formats that state their length near the start, independently of what follows.
_STATING = frozenset({"flv", "asf", "mxf", "avi", "matroska"})


def loss_in(decoder: Decoder) -> str | None:
    """What is missing, after all packets have been read; None where nothing is known to be."""
    tally = decoder.tally
    if not tally.complete:
        return None
    if "matroska" in decoder.formats:
        return _matroska_loss(decoder.path, decoder.track[1], tally) or _late_loss(decoder)
    if "mp4" in decoder.formats:
        return _mp4_loss(decoder.path, decoder.track[0], tally, decoder.time_base)
    if "avi" in decoder.formats and tally.packets < decoder.declared_frames:
        return _fewer(tally.packets, decoder.declared_frames)
    return _late_loss(decoder)


def undecoded_in(decoder: Decoder, frames: int) -> str | None:
    """The loss if fewer frames were decoded than a format that has a packet for each of them holds."""
    tally = decoder.tally
    whole = decoder.packets_are_frames and not decoder.hides_frames and tally.complete
    promised = tally.packets - tally.hidden - tally.before_key
    return f"only {frames} of its {promised} frames can be decoded" if whole and frames < promised else None


def _matroska_loss(path: Path, place: int, tally: Tally) -> str | None:
    file = walk_matroska(path)
    if file.damage is not None:
        return file.damage
    if place < len(file.video_tracks):
        stated = file.blocks.get(file.video_tracks[place], 0)
        if tally.packets < stated:
            return _fewer(tally.packets, stated)
    strange = [track for track in file.blocks if track not in file.tracks]
    return f"some of its frames belong to track {strange[0]}, which it does not have" if strange else None


def _mp4_loss(path: Path, number: int, tally: Tally, time_base: Fraction) -> str | None:
    file = walk_mp4(path)
    track = file.tracks.get(number)
    if file.damage is not None or track is None:
        return file.damage
    if track.edited_seconds is None:
        given = tally.packets - tally.hidden_late  # without edits, times that contradict each other hide frames
        return _fewer(given, track.frames) if given < track.frames else None
    shown, rounding = float(tally.shown * time_base), _SAME * float(tally.longest * time_base)
    # Writers of uneven footage state the length of an edit by other rules than the lengths of its frames.
    if tally.is_even and shown < track.edited_seconds - rounding:
        return f"{shown:.3f} s of its {track.edited_seconds:.3f} s are there"
    if track.header_seconds is not None and abs(track.total_seconds - track.header_seconds) > rounding:
        return f"it lasts {track.header_seconds:.3f} s by its header but {track.total_seconds:.3f} s by its edit list"
    return None


def _late_loss(decoder: Decoder) -> str | None:
    tally, stated = decoder.tally, decoder.declared_seconds
    if stated is None or tally.end is None or _STATING.isdisjoint(decoder.formats):
        return None
    end = float(tally.end * decoder.time_base)
    lasts = max(float(tally.longest * decoder.time_base), float(1 / decoder.rate))
    return f"it ends at {end:.3f} s, not at {stated:.3f} s" if end < stated - _LATE * lasts else None


def _fewer(found: int, stated: int) -> str:
    return f"only {found} of its {stated} frames are there"
