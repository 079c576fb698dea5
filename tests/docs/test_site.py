"""What docs/build_site.py does around the builder: links of copied pages, and pages that GitHub shows otherwise."""

import re
import runpy
from pathlib import Path

import pytest

from pages import ROOT, page_names

site = runpy.run_path(str(ROOT / "docs" / "build_site.py"))


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied") / "pages"
    site["copy_pages"](folder)
    return folder


def test_links_of_copied_pages_lead_to_copied_files(copied):
    for name in page_names():
        for link in site["links"]((copied / name).read_text(encoding="utf-8")):
            assert ((copied / name).parent / link.group().partition("#")[0]).is_file(), f"{name}: {link.group()}"


def test_file_outside_of_the_docs_is_shown_as_a_page(copied):
    script = (ROOT / "deploy" / "slurm" / "bulk.sbatch").read_text(encoding="utf-8")
    assert script in (copied / "deploy" / "slurm" / "bulk.sbatch.md").read_text(encoding="utf-8")
    assert "(../deploy/slurm/bulk.sbatch.md)" in (copied / "docs" / "scale.md").read_text(encoding="utf-8")


def test_links_in_code_are_left_alone():
    text = "`[a](b.py)` and [c](d.py#e)\n\n```\n[f](g.py)\n```\n"
    assert [link.group() for link in site["links"](text)] == ["d.py#e"]


def differences(tmp_path: Path, text: str, html: str) -> list[str]:
    pages, built = tmp_path / "pages", tmp_path / "site"
    for folder in (pages, built):
        folder.mkdir()
    (pages / "one.md").write_text(text, encoding="utf-8")
    (built / "one.html").write_text(f'<nav><ul></ul></nav><article class="a">{html}</article>', encoding="utf-8")
    return list(site["differences"](pages, Path("one.md"), built))


def test_page_that_looks_the_same_has_no_differences(tmp_path):
    assert differences(tmp_path, "A\n\n- b\n- c\n", "<p>A</p><ul><li>b</li><li>c</li></ul>") == []


def test_list_that_only_github_sees_is_a_difference(tmp_path):
    assert differences(tmp_path, "A\n- b\n", "<p>A\n- b</p>") == [
        "one.html: 0 <ul>, on GitHub 1",
        "one.html: 0 <li>, on GitHub 1",
    ]


def test_name_without_its_docstring_is_a_difference(tmp_path):
    html = '<h3 id="timecycle.a">a</h3><p>video: a file\nfps: its rate</p>'
    missing, unlisted = differences(tmp_path, "::: timecycle.a\n::: timecycle.b\n", html)
    assert missing == "one.html: timecycle.b is missing"
    assert re.match("one.html: parameters are not a list: <p>video", unlisted)
