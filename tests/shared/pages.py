"""The pages of the documentation, their links and their code blocks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GENERATED = ("docs/options.md",)  # by docs/reference.py: help texts, not commands to type


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """The page and the first line, without its comment."""
        return self.page, re.split(r"\s+#", self.text.partition("\n")[0])[0].strip()


def page_names() -> list[str]:
    """List every Markdown file of the repository; what is built, or lies in hidden folders, is not of it."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(str(path) for path in found if path.parts[0] != "build" and not path.parts[0].startswith("."))


def read_page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> Iterator[Block]:
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", read_page(name), re.MULTILINE | re.DOTALL):
        lines = (line.removeprefix(found.group(1)) for line in found.group(3).splitlines(keepends=True))
        yield Block(name, found.group(2), "".join(lines))


def without_blocks(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    """Remove fenced blocks and code between backticks."""
    return re.sub(r"`[^`\n]+`", "code", without_blocks(text))


def links(name: str) -> Iterator[str]:
    """Yield the targets of all links and pictures of a page."""
    text = without_code(read_page(name))
    yield from re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text)
    yield from re.findall(r"<(?:a|img|source)[^>]* (?:href|src|srcset)=\"([^\"]+)\"", text)
    yield from re.findall(r"^\[[^\]]+\]: (\S+)", text, re.MULTILINE)


def anchors(name: str) -> list[str]:
    """List the anchors of a page's headings as GitHub makes them; a repeated one is there more than once."""
    titles = re.findall(r"^#+ (.+?) *$", without_blocks(read_page(name)), re.MULTILINE)
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in shown]
