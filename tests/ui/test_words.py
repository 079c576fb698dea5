"""The words of the page, which are those of the command line and of the documentation."""

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "timecycle" / "ui" / "static"


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_page_says_resume_or_continue_where_work_goes_on(path):
    assert not re.findall(r".*\bgo(?:es|ing)? on\b.*", path.read_text(encoding="utf-8"))
