"""The run-time type checker of the tests: an int is accepted where a float is asked for, as type checkers do."""

from collections.abc import Callable
from typing import Any, Self, get_args

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype understands Self only in classes it decorates whole; here methods come one by one."""
    hints = getattr(function, "__annotations__", {})
    for name, hint in hints.items():
        if hint is Self or Self in get_args(hint):
            hints[name] = Any
    return _check(function)
