"""The run-time type checker of the tests; like static checkers it accepts an int where a float is annotated."""

from collections.abc import Callable
from typing import Any, Self, get_args

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check a function at run time; `Self` becomes Any, because beartype takes it only in whole classes."""
    hints = getattr(function, "__annotations__", {})
    for name, hint in hints.items():
        if hint is Self or Self in get_args(hint):
            hints[name] = Any
    return _check(function)
