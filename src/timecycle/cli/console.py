"""Print results to standard output; print progress, notes and errors to standard error."""

import textwrap

from timecycle.bars import SafeConsole, err, progress, progress_bars, visible
from timecycle.progress import Bar

__all__ = ["Bar", "err", "hanging", "out", "progress", "progress_bars", "visible"]

out = SafeConsole(highlight=False, markup=False, soft_wrap=True)


def hanging(start: str, text: str) -> str:
    """Put a text after its start; on a terminal, wrap it and indent the later lines."""
    if not out.is_terminal:
        return start + text
    width = max(out.width - 1, 2 * len(start))
    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
