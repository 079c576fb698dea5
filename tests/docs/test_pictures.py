"""Every picture of the pages can be made again: a script in docs/ or benchmarks/ names it."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from pages import ROOT


def names_in(script: str, pictures: Iterable[str]) -> set[str]:
    """Return those pictures that a script names, as a string or by filling in an f-string with one of its strings.

    A script that does not mention the folder `images` names none.
    """
    tree = ast.parse(script)
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if not {"images", "docs/images"} & strings:
        return set()
    patterns = [pattern_of(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    filled = {
        picture
        for picture in pictures
        for pattern in patterns
        if (found := re.fullmatch(pattern, picture)) and strings.issuperset(found.groups())
    }
    return filled | ({Path(text).name for text in strings if len(text) < 200} & set(pictures))


def pattern_of(text: ast.JoinedStr) -> str:
    """Return a regular expression for the last part of a path that an f-string gives."""
    parts: list[str] = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            _, slash, last = str(part.value).rpartition("/")
            parts = [*([] if slash else parts), re.escape(last)]
        else:
            parts.append("(.+)")
    return "".join(parts)


def test_every_picture_is_named_by_a_script():
    pictures = {path.name for path in (ROOT / "docs" / "images").iterdir()}
    scripts = [*(ROOT / "docs").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    made = set().union(*(names_in(script.read_text(encoding="utf-8"), pictures) for script in scripts))
    assert pictures - made == set(), "which script makes these?"


def test_picture_without_a_script_is_noticed():
    script = 'folder = "images"\nfor name in ("cat", "dog"):\n    save(f"{folder}/{name}_small.jpg")\nsave("one.png")\n'
    pictures = {"cat_small.jpg", "cow_small.jpg", "dog.jpg", "one.png"}
    assert names_in(script, pictures) == {"cat_small.jpg", "one.png"}
    assert names_in(script.replace("images", "pictures"), pictures) == set()
