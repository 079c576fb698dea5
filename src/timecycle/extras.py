"""Optional dependencies, imported on first use."""

import importlib
from types import ModuleType

from timecycle.errors import SettingsError


def import_extra(module: str, *, extra: str) -> ModuleType:
    """Import a module of the optional dependencies `extra`; SettingsError says how to install it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingsError(f"{module} is not installed", remedy=f"pip install 'timecycle[{extra}]'") from error
