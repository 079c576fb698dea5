"""Links between pages, to files and to headings lead somewhere, on GitHub and in the site; pictures are used."""

import re
from pathlib import Path

import pytest

from pages import ROOT, anchors, links, page_names

PAGES = page_names()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_exist(page):
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            assert target.startswith(("https://", "mailto:")), target
            continue
        file, _, heading = target.partition("#")
        linked = ((ROOT / page).parent / file).resolve() if file else ROOT / page
        assert linked.is_relative_to(ROOT), f"{target} leaves the repository"
        assert linked.is_file(), f"{target} is no file; the site cannot show a folder"
        if heading:
            there = anchors(str(linked.relative_to(ROOT)))
            assert there.count(heading) == 1, f"{target}: {there.count(heading)} headings have this anchor"


def test_every_picture_is_used():
    shown = {((ROOT / page).parent / target).resolve() for page in PAGES for target in links(page)}
    pictures = set((ROOT / "docs" / "images").iterdir())
    assert pictures
    assert not pictures - shown


def test_pictures_have_a_description():
    for page in PAGES:
        assert not re.findall(r"!\[\]\(", Path(ROOT / page).read_text(encoding="utf-8")), page


def test_every_page_is_in_the_navigation_once():
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    assert sorted(re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)) == PAGES
