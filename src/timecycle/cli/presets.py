"""`timecycle presets`"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import out
from timecycle.config import preset_names, preset_text
from timecycle.errors import SettingsError

_COMMANDS = ("propagate", "train")
_COLUMNS = 80


@dataclass(frozen=True, kw_only=True)
class Presets:
    """List the presets of `propagate` and `train` with a line each, or print one as TOML.

    Examples:
      timecycle presets
      timecycle presets crw2020
    """

    name: Annotated[Positional[str | None], arg(metavar="NAME", help="the preset to print")] = None

    def __call__(self) -> None:
        if self.name is None:
            for command in _COMMANDS:
                out.print(f"timecycle {command} --preset")
                for name in preset_names(command):
                    line = f"  {name:<15}{_summary(command, name)}"
                    out.print(line if len(line) < _COLUMNS else f"{line[: _COLUMNS - 4]}...")
            return
        found = [command for command in _COMMANDS if self.name in preset_names(command)]
        if not found:
            names = sorted({name for command in _COMMANDS for name in preset_names(command)})
            raise SettingsError(f"there is no preset {self.name!r}", remedy=f"choose one of {', '.join(names)}")
        texts = (f"# timecycle {command} --preset {self.name}\n{preset_text(command, self.name)}" for command in found)
        out.print("\n".join(texts), end="")


def _summary(command: str, name: str) -> str:
    """The comment in the first line of a preset, up to its first full stop."""
    comment = preset_text(command, name).partition("\n")[0].removeprefix("# ")
    return comment.partition(". ")[0].removesuffix(".")
