"""Names of objects, which masks only number: from the command line or from a names.json."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timecycle.errors import LabelError
from timecycle.labels.file import check_label_file

NAMES_FILE = "names.json"
_LONGEST = 100  # characters: names appear in tables and captions
_FORMULA = ("=", "+", "-", "@")
_REMEDY = 'write names as --names 1=camel 2=rider, or {"1": "camel"} in a file names.json beside the mask'


def parse_names(words: Sequence[str]) -> dict[str, str]:
    """Parse words such as "1=camel" into names by object."""
    names: dict[str, str] = {}
    for word in words:
        number, equals, name = word.partition("=")
        if not equals:
            raise LabelError(f"{word!r} names no object", remedy=_REMEDY)
        if number.strip() in names:
            raise LabelError(f"object {number.strip()} is named twice", remedy="name every object once")
        names[number.strip()] = name
    return check_names(names)


def names_beside(files: Iterable[str | Path]) -> dict[str, str]:
    """Read the names.json files in the folders of label files."""
    folders = dict.fromkeys(path if path.is_dir() else path.parent for path in map(Path, files))
    names: dict[str, str] = {}
    for path in (folder / NAMES_FILE for folder in folders):
        if path.is_file():
            names |= read_names(path)
    return names


def read_names(path: Path) -> dict[str, str]:
    """Read names from a JSON file such as {"1": "camel"}."""
    check_label_file(path)
    try:
        names = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise LabelError(f"{path} cannot be read: {error}", remedy=_REMEDY) from error
    if not isinstance(names, dict):
        raise LabelError(f"{path} is not a table of names", remedy=_REMEDY)
    try:
        return check_names(names)
    except LabelError as error:
        raise LabelError(f"{path}: {error.problem}", remedy=error.remedy) from error


def check_names(names: Mapping[Any, Any]) -> dict[str, str]:
    """Validate names and return them by object."""
    checked: dict[str, str] = {}
    for number, name in names.items():
        if not re.fullmatch(r"\d{1,12}", str(number)):
            raise LabelError(f"{str(number)[:80]!r} is not the number of an object", remedy=_REMEDY)
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > _LONGEST:
            raise LabelError(
                f"object {number} cannot be called {str(name)[:200]!r}",
                remedy=f"give a name of 1 to {_LONGEST} printable characters",
            )
        refuse_formula(name.strip())
        checked[str(int(number))] = name.strip()
    twice = [name for name in checked.values() if list(checked.values()).count(name) > 1]
    if twice:
        raise LabelError(f"two objects are called {twice[0]!r}", remedy="give every object a name of its own")
    return checked


def refuse_formula(name: str) -> None:
    """Refuse names that a spreadsheet would evaluate as a formula: names are written to CSV files."""
    if name.startswith(_FORMULA):
        raise LabelError(
            f"the name {name[:_LONGEST]!r} would be a formula in a spreadsheet",
            remedy=f"begin it with another character than {' '.join(_FORMULA)}",
        )


def names_of(objects: Sequence[str], from_file: Mapping[str, str], by_hand: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the objects of a run; names given by hand override those from a names.json.

    Every name given by hand must be of an object of the run; a file may name more objects than one video has.
    """
    unknown = [number for number in by_hand if number not in objects]
    if unknown:
        raise LabelError(
            f"there is no object {unknown[0]} to call {by_hand[unknown[0]]!r}",
            remedy=f"name one of the objects that are labelled: {', '.join(objects) or 'none'}",
        )
    return check_names({name: text for name, text in {**from_file, **by_hand}.items() if name in objects})
