"""Build the documentation as a site: `make docs`, or python docs/build_site.py; it needs the extra `docs`.

The pages are copied to build/pages in the places that they have in the repository, so no link between them changes.
Whatever else they link to is copied too: pictures as they are, other files as pages that show their text. Any warning
of the builder fails, and so does a page that has other headings, lists or tables in the site than on GitHub.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
PICTURES = (".gif", ".jpeg", ".jpg", ".mp4", ".png", ".svg", ".webm", ".webp")  # copied as they are
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def main() -> None:
    pages, site = ROOT / "build" / "pages", ROOT / "build" / "site"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    names = copy_pages(pages)
    builder = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(ROOT / "mkdocs.yml")]
    if subprocess.run(builder, cwd=ROOT, check=False).returncode != 0:
        sys.exit("the site was not built: see the warnings above")
    different = [line for name in names for line in differences(pages, name, site)]
    if different:
        sys.exit("pages that look different in the site and on GitHub:\n" + "\n".join(different))
    print(f"{len(names)} pages: {(site / 'index.html').relative_to(ROOT)}")


def markdown_files() -> list[Path]:
    """List the pages: those at the root of the repository and those below docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def copy_pages(target: Path) -> list[Path]:
    """Copy every page and what it links to; return the pages' paths below `target`."""
    shutil.copytree(ROOT / "docs" / "images", target / "docs" / "images")
    shutil.copy(ROOT / "docs" / "site.css", target / "docs")
    names = [page.relative_to(ROOT) for page in markdown_files()]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        for file in linked_files(ROOT / name, text):
            if file.suffix in PICTURES:
                (target / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target / file.relative_to(ROOT))
            elif is_shown(file):
                show_file(file, target)
        (target / name).write_text(link_to_shown(ROOT / name, text), encoding="utf-8")
    return names


def links(text: str) -> Iterator[re.Match[str]]:
    """Find the relative links of a page, outside of code."""
    code = [found.span() for found in CODE.finditer(text)]
    for link in LINK.finditer(text):
        inside = any(start <= link.start() < end for start, end in code)
        if not inside and not re.match(r"[a-z]+:|#", link.group()):
            yield link


def linked_files(page: Path, text: str) -> set[Path]:
    return {(page.parent / link.group().partition("#")[0]).resolve() for link in links(text)}


def is_shown(file: Path) -> bool:
    """Whether the site shows the text of a linked file, which is neither a page nor a picture."""
    return file.suffix not in (".md", *PICTURES)


def show_file(file: Path, target: Path) -> None:
    """Write a page with the text of a file."""
    name = file.relative_to(ROOT)
    language = {".json": "json", ".py": "python", ".sbatch": "bash", ".toml": "toml", ".yaml": "yaml"}
    page = target / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    text = file.read_text(encoding="utf-8")
    page.write_text(f"# {name}\n\n````{language.get(file.suffix, 'text')}\n{text}\n````\n", encoding="utf-8")


def link_to_shown(page: Path, text: str) -> str:
    """Let links to other files lead to the pages that show them."""
    for link in reversed(list(links(text))):
        file, _, anchor = link.group().partition("#")
        if is_shown(page.parent / file):
            text = text[: link.start()] + f"{file}.md" + (f"#{anchor}" if anchor else "") + text[link.end() :]
    return text


# GitHub reads CommonMark, the site Python-Markdown, which wants an empty line before a list and deeper indents.

COUNTED = ("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "pre", "blockquote", "img", "em", "strong")


class Elements(HTMLParser):
    """Count elements, in the whole text or in the part of a page of the site that comes from Markdown."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in COUNTED:
            self.count[tag] += 1


def differences(pages: Path, page: Path, site: Path) -> Iterator[str]:
    """Compare the elements of a page in the site with those that CommonMark gives."""
    text = (pages / page).read_text(encoding="utf-8")
    name = page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
    article = re.search(r"<article.*?>(.*)</article>", (site / name).read_text(encoding="utf-8"), re.DOTALL)
    if article is None:
        yield f"{name}: has no article"
        return
    if described := re.findall(r"^::: (\S+)$", text, re.MULTILINE):  # names, whose text comes from the source
        yield from (f"{name}: {one} is missing" for one in described if f'id="{one}"' not in article.group(1))
        if found := re.search(r"<p>\w+(, \w+)*: .*\n\w+(, \w+)*: ", article.group(1)):
            yield f"{name}: parameters are not a list: {found.group()}"
        return
    github = Elements(MarkdownIt("gfm-like", {"linkify": False}).render(text)).count
    ours = Elements(article.group(1)).count
    for tag in COUNTED:
        if github[tag] != ours[tag]:
            yield f"{name}: {ours[tag]} <{tag}>, on GitHub {github[tag]}"


if __name__ == "__main__":
    main()
