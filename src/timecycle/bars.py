"""Progress bars on standard error; in a log, a line from time to time."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from timecycle.progress import Bar

# Characters in file names that control a terminal or change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Escape the control characters in a text, so that a terminal shows them."""
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


class SafeConsole(Console):
    """Prints text with control characters escaped."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(item) if isinstance(item, str) else item for item in objects), **options)

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704, the error that rich is handling: the command line chooses the exit code


err = SafeConsole(stderr=True, highlight=False, markup=False, soft_wrap=True)

_BAR_COLUMNS = 16  # half of 80 columns are left for count, time and note
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 10.0, 30.0  # between lines in a log
_hidden = False


@contextmanager
def progress(title: str) -> Iterator[Bar]:
    """Show one progress bar with the remaining time; yield the function that updates it."""
    with progress_bars() as bar:
        yield bar(title)


@contextmanager
def hidden() -> Iterator[None]:
    """Show no progress meanwhile, whoever asks for it: the command line, where it was told to be quiet."""
    global _hidden  # noqa: PLW0603, one process has one standard error
    before, _hidden = _hidden, True
    try:
        yield
    finally:
        _hidden = before


@contextmanager
def progress_bars(*, shown: bool = True) -> Iterator[Callable[[str], Bar]]:
    """Show a progress bar for each title; where standard error is a file, write a line from time to time instead."""
    shown = shown and not _hidden
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
        logs.append(_TitleLog(title, pace, created_time=time.monotonic()))
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
    created_time: float  # the first step takes its time, too
    start_time: float = 0.0
    start_count: int | None = None  # a resumed run does not start at 0
    has_lines: bool = False  # then the last update is written too
    pending: str = ""  # the last update, if it was not written

    def move(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self.start_count is None:
            self.start_time, self.start_count = now, done
        steps = done - self.start_count
        left = (now - self.start_time) * (total - done) / steps if steps > 0 else None
        elapsed = now - self.created_time
        self.pending = f"{self.title}  {status(done, total, elapsed=elapsed, left=left, note=note)}"
        if now >= self.pace.due or (done >= total and self.has_lines):
            self.write()

    def write(self) -> None:
        err.print(self.pending)
        self.pending, self.has_lines = "", True
        self.pace.restart()
