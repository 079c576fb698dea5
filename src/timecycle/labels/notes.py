"""Notes to the user: how an ambiguous annotation was read.

The command line prints notes to standard error; so does Python, unless logging is configured otherwise.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

log = logging.getLogger("timecycle")


def note(text: str) -> None:
    """Tell the user how something was read."""
    log.warning("note: %s", text)


def frames_in_words(frames: Iterable[int]) -> str:
    """Describe frames as `frame 3` or `frames 1-4, 7, 9-12`."""
    runs: list[list[int]] = []
    for frame in sorted(frames):
        if runs and runs[-1][1] == frame - 1:
            runs[-1][1] = frame
        else:
            runs.append([frame, frame])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"frame {text}" if len(runs) == 1 and runs[0][0] == runs[0][1] else f"frames {text}"


def files_in_words(paths: Sequence[Path]) -> str:
    """Describe files as `a.png` or `a.png and 3 more files`."""
    more = len(paths) - 1
    return f"{paths[0]} and {more} more file{'s' if more > 1 else ''}" if more else str(paths[0])
