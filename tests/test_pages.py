"""What the pages for readers say about the code is what the code does."""

import importlib
import re
from pathlib import Path

from timecycle.store import _SCHEMES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCES = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def rows(page, header):
    """Return the rows of the table with this first column, as lists of cells."""
    table = re.search(rf"^\| {re.escape(header)} \|.*\n\| ?-.*\n((?:\|.*\n)+)", (DOCS / page).read_text(), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table[1].splitlines()]


def test_every_error_of_the_questions_exists():
    quoted = [row[0].strip().strip("`") for row in rows("faq.md", "it says")]
    assert len(quoted) >= 15
    for text in quoted:
        # Longest first: the names between two parts are filled in when the error is raised.
        part = max(text.split("..."), key=len).strip()
        assert part in SOURCES, text


def test_the_method_page_names_functions_that_exist():
    table = rows("method.md", "in the paper")
    assert len(table) >= 12
    for row in table:
        functions, (file,) = re.findall(r"`(\w+)`", row[2]), re.findall(r"`([\w/]+)\.py`", row[3])
        module = importlib.import_module("timecycle." + file.replace("/", "."))
        assert functions, row
        assert all(hasattr(module, name) for name in functions), row


def test_the_privacy_page_names_every_object_store_and_cache():
    page = (DOCS / "privacy.md").read_text()
    assert all(f"`{scheme}://`" in page for scheme in _SCHEMES)
    kinds = re.findall(r"user_cache\(\"(\w+)\"", SOURCES)
    assert len(kinds) >= 3
    assert all(f"~/.cache/timecycle/{kind}" in page for kind in kinds)


def test_the_gallery_is_small():
    pictures = list((DOCS / "images").glob("gallery_*.jpg"))
    assert len(pictures) == 12
    assert sum(path.stat().st_size for path in pictures) < 1_500_000
