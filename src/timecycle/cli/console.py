"""Where the commands print: results to standard output, everything else to standard error."""

import re
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

# Of what a name of a file may hold: commands to a terminal, and what turns the direction of writing round.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with nothing in it that a terminal would obey."""
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


class _Console(Console):
    """Prints text as text, whatever is in it."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(one) if isinstance(one, str) else one for one in objects), **options)


out = _Console(highlight=False, markup=False, soft_wrap=True)
err = _Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

_BAR_COLUMNS = 16  # leaves half of 80 columns for count, time and note
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 10.0, 30.0  # between lines in a log


@runtime_checkable
class Bar(Protocol):
    """Moves a bar; a note stands behind it."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def progress(title: str) -> Iterator[Bar]:
    """A bar with the time left; the function it gives takes what is done and how much there is."""
    with board() as bar:
        yield bar(title)


@contextmanager
def board(*, shown: bool = True) -> Iterator[Callable[[str], Bar]]:
    """Bars for the steps of longer work: each title gets one of its own. A file gets a line now and then instead."""
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
    """The text behind its start; on a terminal in lines that fit, the later ones below the first."""
    if not out.is_terminal:
        return start + text
    width = max(out.width - 1, 2 * len(start))
    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)


def status(done: int, total: int | None, *, elapsed: float, left: float | None, note: str = "") -> str:
    """Count, time and note on one line, the most important first: what does not fit is cut at the end."""
    if total is None:
        return "waiting"
    if done >= total:
        told = f"in {clock(elapsed)}"
    else:
        told = f"{'-:--' if left is None else clock(left)} left"
    return "  ".join(filter(None, (f"{done:,}/{total:,}", told, note)))


def clock(seconds: float) -> str:
    """0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Status(ProgressColumn):
    """`status`, beside a bar."""

    def render(self, task: Task) -> Text:
        total = None if task.total is None else int(task.total)
        elapsed = task.finished_time if task.finished_time is not None else task.elapsed
        note = task.fields["note"]
        told = status(int(task.completed), total, elapsed=elapsed or 0.0, left=task.time_remaining, note=note)
        return Text(visible(told))


@contextmanager
def _log() -> Iterator[Callable[[str], Bar]]:
    """Lines for a log: the first news, news after a while, and the last."""
    pace = _Pace()
    titles: list[_Title] = []

    def bar(title: str) -> Bar:
        titles.append(_Title(title, pace))
        return titles[-1].move

    try:
        yield bar
    finally:
        if titles and titles[-1].unsaid:
            titles[-1].say()


@dataclass
class _Pace:
    """When the next line is due, whatever it is about; waits grow, so that a long run does not fill its log."""

    due: float = 0.0
    wait: float = 0.0

    def said(self) -> None:
        self.wait = min(self.wait + _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        self.due = time.monotonic() + self.wait


@dataclass
class _Title:
    """The lines about one step of the work."""

    title: str
    pace: _Pace
    began: float = 0.0
    before: int | None = None  # what was done when it began: a resumed run does not begin with nothing
    is_known: bool = False  # something was said about it, so its end is told too
    unsaid: str = ""

    def move(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self.before is None:
            self.began, self.before = now, done
        elapsed, steps = now - self.began, done - self.before
        left = elapsed * (total - done) / steps if steps > 0 else None
        self.unsaid = f"{self.title}  {status(done, total, elapsed=elapsed, left=left, note=note)}"
        if now >= self.pace.due or (done >= total and self.is_known):
            self.say()

    def say(self) -> None:
        err.print(self.unsaid)
        self.unsaid, self.is_known = "", True
        self.pace.said()
