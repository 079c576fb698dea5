"""Optional dependencies, imported on first use."""

import importlib
import importlib.util
from types import ModuleType

from timecycle.errors import SettingsError


def import_extra(module: str, *, extra: str) -> ModuleType:
    """Import a module of the optional dependencies `extra`; SettingsError says how to install it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingsError(f"{module} is not installed", remedy=install_command(extra)) from error


def install_command(extra: str) -> str:
    """Return the command that installs optional dependencies."""
    return f"pip install 'timecycle[{extra}]'"


def is_installed(module: str) -> bool:
    """Return whether a module could be imported, without importing it; it may have been installed just now."""
    importlib.invalidate_caches()
    return importlib.util.find_spec(module) is not None
