"""How callers follow the progress of long calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol, runtime_checkable

OnProgress = Callable[[int, int], None]  # steps done, steps in all
ProgressLike = OnProgress | bool | None


@runtime_checkable
class Bar(Protocol):
    """Updates a progress bar; the note is shown after it."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def bars_for(progress: ProgressLike) -> Iterator[Callable[[str], Bar]]:
    """Yield the function that starts the display of a stage: bars for True, calls of a function, nothing for None."""
    if progress is True:
        # Not before: importing rich draws a random number, and importing this package changes no global state.
        with import_module("timecycle.bars").progress_bars() as bar:
            yield bar
        return
    call = progress or _ignore

    def stage(title: str) -> Bar:
        def move(done: int, total: int, note: str = "") -> None:
            call(done, total)

        return move

    yield stage


def _ignore(done: int, total: int) -> None:
    pass
