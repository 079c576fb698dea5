"""What the tests of a deployment share: where its files are, the images, the parser of our commands, a free port."""

import re
import shlex
import socket
from pathlib import Path

from timecycle.cli.help import check_options, find_command
from timecycle.cli.main import _definitions, _parse
from timecycle.version import __version__

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGES = {variant: f"registry.example.com/timecycle:{__version__}-{variant}" for variant in ("cpu", "cuda")}


def images_of(text: str) -> set[str]:
    """Every image that a text names, by the host of its registry."""
    return set(re.findall(r"registry\.example\.com/[\w./:-]+", text))


def parse_timecycle(words: list[str]) -> object:
    """Build the command that `timecycle WORDS` would run; wrong words raise."""
    typed = find_command(words, _definitions(words[0]))
    check_options(typed, words)
    return _parse(typed, words)


def command_of(line: str) -> list[str]:
    """The words after `timecycle` in a line of shell."""
    words = shlex.split(line)
    return words[words.index("timecycle") + 1 :]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
