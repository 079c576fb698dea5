"""How the site reads our docstrings: an extension of griffe, named in mkdocs.yml.

A docstring explains parameters in lines that begin with their names (`fps: the frame rate of images`); they become a
list. The comment beside a field is the docstring of that field.
"""

import io
import re
import tokenize
from typing import Any

import griffe

_NAMES = re.compile(r"(\w+(?:, \w+)*): (?=\S)")


class Docstrings(griffe.Extension):
    """Turn lines about parameters into lists, and comments beside fields into docstrings."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is not None:
            names = {parameter.name.lstrip("*") for parameter in func.parameters}
            func.docstring.value = list_parameters(func.docstring.value, names)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if (
            attr.docstring is None
            and attr.parent is not None
            and attr.parent.is_class
            and (text := comment(attr.source))
        ):
            attr.docstring = griffe.Docstring(text, parent=attr, lineno=attr.lineno, endlineno=attr.endlineno)


def list_parameters(docstring: str, parameters: set[str]) -> str:
    """Write the paragraph whose lines begin with names of parameters as a Markdown list."""
    paragraphs = docstring.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        begin = _NAMES.match(paragraph)
        if begin and set(begin.group(1).split(", ")) <= parameters:
            lines = (_NAMES.sub(_item, line, count=1) if _NAMES.match(line) else line for line in paragraph.split("\n"))
            paragraphs[number] = "\n".join(lines)
    return "\n\n".join(paragraphs)


def _item(names: re.Match[str]) -> str:
    return "- " + ", ".join(f"`{name}`" for name in names.group(1).split(", ")) + ": "


def comment(source: str) -> str:
    """Return the comment of a field, or an empty text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return next((one.string.removeprefix("#").strip() for one in tokens if one.type == tokenize.COMMENT), "")
