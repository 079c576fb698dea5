"""Tell errors in programs of others, where advice on options of the command line is of no use."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from timecycle.errors import OutputError, TimecycleError

# Parts of a remedy that only a command line has: "(--set x=1)", ": timecycle correct OUT --undo", "with -o", and
# clauses that name an option.
_ASIDE = re.compile(r" \([^()]*(?:--[a-z]|[Pp]ython)[^()]*\)")
_COMMAND = re.compile(r": (?:`?timecycle [a-z]|--[a-z]).*$")
_ADDITION = re.compile(r",?(?: and)? with(?:out)? (?:-o|--[a-z-]+)\b")
_OPTION = re.compile(r"(?<![\w-])--[a-z]|timecycle [a-z]+")


def without_commands(error: TimecycleError) -> TimecycleError:
    """Return the error as it is told in other programs: without advice on options of the command line."""
    text = _ADDITION.sub("", _COMMAND.sub("", _ASIDE.sub("", error.remedy)))
    kept = [clause for clause in re.split(r"[,;] or |; ", text) if clause and not _OPTION.search(clause)]
    fallback = "choose another folder" if isinstance(error, OutputError) else "check what was given"
    return type(error)(error.problem, remedy=", or ".join(kept) or fallback)


@contextmanager
def telling_without_commands() -> Iterator[None]:
    """Raise errors without advice on options of the command line."""
    try:
        yield
    except TimecycleError as error:
        raise without_commands(error) from error
