"""Optional dependencies, imported on first use."""

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType

from timecycle.errors import SettingsError


def import_extra(module: str, *, extra: str | None, packages: Sequence[str] = ()) -> ModuleType:
    """Import a module of the optional dependencies `extra`; SettingsError says how to install it if it is missing.

    packages: what to install besides, where no extra of ours brings the module.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingsError(f"{module} is not installed", remedy=install_command(extra, packages)) from error


def install_command(extra: str | None, packages: Sequence[str] = ()) -> str:
    """Return the command that installs optional dependencies and packages."""
    ours = () if extra is None else (f"'timecycle[{extra}]'",)
    return " ".join(("pip install", *ours, *packages))


def is_installed(module: str) -> bool:
    """Return whether a module could be imported, without importing it; it may have been installed just now."""
    importlib.invalidate_caches()
    return importlib.util.find_spec(module) is not None
