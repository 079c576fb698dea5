"""Where the commands print: results to standard output, everything else to standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


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
    """Bars for the steps of longer work: each title gets one of its own."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=err, disable=not shown) as bars:

        def bar(title: str) -> Bar:
            task = bars.add_task(title, total=None, note="")

            def move(done: int, total: int, note: str = "") -> None:
                bars.update(task, completed=done, total=total, note=note)

            return move

        yield bar
