"""`timecycle presets`"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import Result, out
from timecycle.config import preset_names, preset_text, read_preset
from timecycle.errors import SettingsError

_COMMANDS = ("propagate", "train")


@dataclass(frozen=True, kw_only=True)
class Presets:
    """List the presets of `propagate` and `train` with a line each, or print one as TOML.

    Examples:
      timecycle presets
      timecycle presets crw2020
    """

    name: Annotated[Positional[str | None], arg(metavar="NAME", help="the preset to print")] = None

    def __call__(self) -> Result:
        every = [(command, name) for command in _COMMANDS for name in preset_names(command)]
        found = [(command, name) for command, name in every if self.name in (None, name)]
        if not found:
            names = sorted({name for _, name in every})
            raise SettingsError(f"there is no preset {self.name!r}", remedy=f"choose one of {', '.join(names)}")
        if self.name is None:
            for command in _COMMANDS:
                out.print(f"timecycle {command} --preset")
                for name in preset_names(command):
                    out.print(f"  {name:<15}{_summary(command, name)}")
        else:
            texts = (f"# timecycle {command} --preset {name}\n{preset_text(command, name)}" for command, name in found)
            out.print("\n".join(texts), end="")
        return {
            "presets": [
                {
                    "command": command,
                    "name": name,
                    "summary": _summary(command, name),
                    "settings": read_preset(command, name),
                }
                for command, name in found
            ]
        }


def _summary(command: str, name: str) -> str:
    """The comment in the first line of a preset, up to its first full stop."""
    comment = preset_text(command, name).partition("\n")[0].removeprefix("# ")
    return comment.partition(". ")[0].removesuffix(".")
