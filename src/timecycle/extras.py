"""Optional dependencies: used where they are installed, and asked for by name where they are not."""

import importlib
from types import ModuleType

from timecycle.errors import SettingsError


def need(module: str, *, extra: str) -> ModuleType:
    """The imported module, or the line that installs it: `extra` names the group of dependencies it belongs to."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingsError(f"{module} is not installed", remedy=f"pip install 'timecycle[{extra}]'") from error
