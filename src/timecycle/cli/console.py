"""Print results to standard output; print notes and errors to standard error.

The options --json, --quiet and --verbose, which every command has, take effect here and nowhere else.
"""

import dataclasses
import json
import logging
import math
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from timecycle import bars
from timecycle.bars import SafeConsole, err, progress, progress_bars, visible
from timecycle.progress import Bar

__all__ = ["Bar", "err", "progress", "progress_bars", "visible"]


out = SafeConsole(highlight=False, markup=False, soft_wrap=True)

Result = dict[str, Any]  # what --json prints; a command that did not do everything sets "exit_code"


class ExitCode(IntEnum):
    """The exit codes; docs/command_line.md explains them."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    INTERRUPTED = 130
    CLOSED_PIPE = 141


@dataclass(frozen=True)
class Mode:
    """What a command prints, and where."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False


# By field of Mode: the names of the option and its help.
MODE_OPTIONS = {
    "json": (("--json",), "print the result as one JSON object on standard output, all else on standard error"),
    "quiet": (("-q", "--quiet"), "print only errors and the results that were asked for"),
    "verbose": (("-v", "--verbose"), "also print what was chosen and why"),
}
_mode = Mode()


def split_mode(words: Sequence[str]) -> tuple[list[str], Mode]:
    """Take the options of every command out of the words, before those are parsed: errors obey the options too."""
    fields = {name: field for field, (names, _) in MODE_OPTIONS.items() for name in names}
    end = words.index("--") if "--" in words else len(words)
    given = {fields[word]: True for word in words[:end] if word in fields}
    return [word for word in words[:end] if word not in fields] + list(words[end:]), Mode(**given)


@contextmanager
def printing(mode: Mode) -> Iterator[None]:
    """Print as the mode asks for: with --json, what anything prints on standard output goes to standard error."""
    global _mode  # noqa: PLW0603, one process has one terminal
    handler, root, ours = _ConsoleHandler(), logging.getLogger(), logging.getLogger("timecycle")
    before, level, no_color = _mode, ours.level, err.no_color
    with ExitStack() as stack:
        if mode.json:
            stack.enter_context(redirect_stdout(sys.stderr))
            err.no_color = True
        if mode.quiet or (mode.json and not err.is_terminal):  # progress is for people
            stack.enter_context(bars.hidden())
        if mode.quiet:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            handler.setLevel(logging.ERROR)
        if mode.verbose:
            ours.setLevel(logging.DEBUG)
        _mode = mode
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
            ours.setLevel(level)
            _mode, err.no_color = before, no_color


def say(text: str) -> None:
    """Print what was done and where it is: for people, not a result that was asked for."""
    if not _mode.quiet:
        out.print(text)


def note(text: str) -> None:
    """Print a note to standard error."""
    if not _mode.quiet:
        err.print(text)


def print_json(result: Result) -> None:
    """Print a result as one line of JSON."""
    sys.stdout.write(json.dumps(_plain(result), allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """Turn a value into what JSON knows; a number that is not finite becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


class _ConsoleHandler(logging.Handler):
    """Prints log messages on the console that shows progress, so that neither garbles the other."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(self.format(record))


def hanging(start: str, text: str) -> str:
    """Put a text after its start; on a terminal, wrap it and indent the later lines."""
    if not out.is_terminal:
        return start + text
    width = max(out.width - 1, 2 * len(start))
    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
