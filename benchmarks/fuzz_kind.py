"""What benchmarks/fuzz.py needs to know of a kind of input."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any


class WrongError(Exception):
    """A reader took an input and gave something else than what was written."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A reader and how its inputs are made."""

    prepare: Callable[[Path], Any]  # whole files to begin with, once in a process, in a folder of their own
    make: Callable[[Random, Any, Path], Any]  # writes an input into an empty folder; returns what `read` is given
    read: Callable[[Any], str | None]  # reads it; may return a remark that is counted; raises WrongError
    share: float = 1.0  # of all inputs, before they are divided by the sum
    patience_seconds: float = 20.0  # with one input


def expect(is_right: bool, words: str) -> None:
    """Raise WrongError unless it is right."""
    if not is_right:
        raise WrongError(words)
