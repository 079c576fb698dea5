"""Print results to standard output; print progress, notes and errors to standard error.

The options --json, --quiet and --verbose, which every command has, take effect here and nowhere else.
"""

import dataclasses
import json
import logging
import math
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

# Characters in file names that control a terminal or change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Escape the control characters in a text, so that a terminal shows them."""
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


class _Console(Console):
    """Prints text with control characters escaped."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(item) if isinstance(item, str) else item for item in objects), **options)

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704, the error that rich is handling: the command line chooses the exit code


out = _Console(highlight=False, markup=False, soft_wrap=True)
err = _Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

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


_BAR_COLUMNS = 16  # half of 80 columns are left for count, time and note
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 10.0, 30.0  # between lines in a log


@runtime_checkable
class Bar(Protocol):
    """Updates a progress bar; the note is shown after it."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def progress(title: str) -> Iterator[Bar]:
    """Show one progress bar with the remaining time; yield the function that updates it."""
    with progress_bars() as bar:
        yield bar(title)


@contextmanager
def progress_bars(*, shown: bool = True) -> Iterator[Callable[[str], Bar]]:
    """Show a progress bar for each title; where standard error is a file, write a line from time to time instead."""
    shown = shown and not _mode.quiet and (err.is_terminal or not _mode.json)
    if shown and not err.is_terminal:
        with _log() as bar:
            yield bar
        return
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(_BAR_COLUMNS),
        _Status(table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=err, disable=not shown, expand=True) as bars:

        def bar(title: str) -> Bar:
            task = bars.add_task(visible(title), total=None, note="")

            def move(done: int, total: int, note: str = "") -> None:
                bars.update(task, completed=done, total=total, note=note)

            return move

        yield bar


def hanging(start: str, text: str) -> str:
    """Put a text after its start; on a terminal, wrap it and indent the later lines."""
    if not out.is_terminal:
        return start + text
    width = max(out.width - 1, 2 * len(start))
    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)


def status(done: int, total: int | None, *, elapsed: float, left: float | None, note: str = "") -> str:
    """Format count, time and note in one line, the most important first: a narrow terminal cuts off the end."""
    if total is None:
        return "waiting"
    if done >= total:
        times = f"in {clock(elapsed)}"
    else:
        times = f"{'-:--' if left is None else clock(left)} left"
    return "  ".join(filter(None, (f"{done:,}/{total:,}", times, note)))


def clock(seconds: float) -> str:
    """Format a duration as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Status(ProgressColumn):
    """Shows `status` beside a bar."""

    def render(self, task: Task) -> Text:
        total = None if task.total is None else int(task.total)
        elapsed = task.finished_time if task.finished_time is not None else task.elapsed
        note = task.fields["note"]
        text = status(int(task.completed), total, elapsed=elapsed or 0.0, left=task.time_remaining, note=note)
        return Text(visible(text))


@contextmanager
def _log() -> Iterator[Callable[[str], Bar]]:
    """Write progress as lines of a log: the first update, one from time to time, and the last."""
    pace = _Pace()
    logs: list[_TitleLog] = []

    def bar(title: str) -> Bar:
        logs.append(_TitleLog(title, pace))
        return logs[-1].move

    try:
        yield bar
    finally:
        if logs and logs[-1].pending:
            logs[-1].write()


@dataclass
class _Pace:
    """When the next line of a log is due, for all titles; waits grow, so that a long run does not fill its log."""

    due: float = 0.0
    wait: float = 0.0

    def restart(self) -> None:
        self.wait = min(self.wait + _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        self.due = time.monotonic() + self.wait


@dataclass
class _TitleLog:
    """The log lines of one title."""

    title: str
    pace: _Pace
    start_time: float = 0.0
    start_count: int | None = None  # a resumed run does not start at 0
    has_lines: bool = False  # then the last update is written too
    pending: str = ""  # the last update, if it was not written

    def move(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self.start_count is None:
            self.start_time, self.start_count = now, done
        elapsed, steps = now - self.start_time, done - self.start_count
        left = elapsed * (total - done) / steps if steps > 0 else None
        self.pending = f"{self.title}  {status(done, total, elapsed=elapsed, left=left, note=note)}"
        if now >= self.pace.due or (done >= total and self.has_lines):
            self.write()

    def write(self) -> None:
        err.print(self.pending)
        self.pending, self.has_lines = "", True
        self.pace.restart()
