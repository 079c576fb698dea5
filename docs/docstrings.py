"""How the site reads our docstrings: an extension of griffe, named in mkdocs.yml.

A docstring explains parameters in lines that begin with their names (`fps: the frame rate of images`); they become a
list. The comment beside a field is the docstring of that field.
"""

import re
import runpy
from pathlib import Path
from typing import Any

import griffe

# The folder of this file is not on the path of the program that reads it.
_field_comment = runpy.run_path(str(Path(__file__).with_name("field_comments.py")))["field_comment"]
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
            and (text := _field_comment(attr.source))
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
