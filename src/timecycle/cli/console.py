"""Where the commands print: results to standard output, everything else to standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left; the function it gives takes what is done and how much there is."""
    with board() as bar:
        yield bar(title)


@contextmanager
def board() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Bars for the steps of longer work: each title gets one of its own."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bars:

        def bar(title: str) -> Callable[[int, int], None]:
            task = bars.add_task(title, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield bar
