"""The examples are valid cells, use public names alone, are listed, and become notebooks."""

import ast
import json
import re
import runpy
from pathlib import Path

import pytest

import timecycle as tc
from pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NAMES = [path.stem for path in EXAMPLES]


def cells(path: Path) -> list[tuple[str, str]]:
    """Split a script in percent format into (kind, text) cells; text of Markdown is without its comment signs."""
    parts = re.split(r"^# %%(.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert parts[0] == "", "something stands before the first cell"
    found = []
    for mark, text in zip(parts[1::2], parts[2::2], strict=True):
        assert mark in ("", " [markdown]"), f"unknown cell {mark!r}"
        if mark:
            lines = text.strip().splitlines()
            assert all(line == "#" or line.startswith("# ") for line in lines), "code in a cell of Markdown"
            found.append(("markdown", "\n".join(line[2:] for line in lines)))
        else:
            found.append(("code", text.strip()))
    return found


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=NAMES)
def test_cells_are_valid_and_begin_with_a_title(path):
    found = cells(path)
    assert found[0][0] == "markdown"
    assert found[0][1].startswith("# ")
    for kind, text in found:
        assert text, "an empty cell"
        if kind == "code":
            compile(text, path.name, "exec")


@pytest.mark.parametrize("path", EXAMPLES, ids=NAMES)
def test_example_uses_public_names_alone(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] != "timecycle"
        if isinstance(node, ast.Import):
            ours = [(one.name, one.asname) for one in node.names if one.name.partition(".")[0] == "timecycle"]
            assert ours in ([], [("timecycle", "tc")])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tc":
            assert node.attr in tc.__all__


def test_page_lists_every_example():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\.py\]", page, flags=re.MULTILINE)
    assert sorted(listed) == NAMES


def test_notebooks_have_the_cells_of_the_scripts(tmp_path):
    pytest.importorskip("jupytext")
    written = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["main"](tmp_path / "notebooks")
    assert [path.stem for path in written] == NAMES
    for path, script in zip(written, EXAMPLES, strict=True):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert notebook["nbformat"] == 4
        assert notebook["metadata"]["kernelspec"]["name"] == "python3"
        assert [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]] == cells(script)
