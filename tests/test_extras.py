"""An optional dependency is imported, or the error says how to install it."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import timecycle
from timecycle.errors import SettingsError
from timecycle.extras import import_extra


def test_an_installed_module_is_imported():
    assert import_extra("json", extra="eval") is json


def test_the_error_of_a_missing_module_says_how_to_install_it():
    with pytest.raises(SettingsError, match=r"no_such_module is not installed; pip install 'timecycle\[eval\]'"):
        import_extra("no_such_module", extra="eval")


def test_the_error_names_packages_that_no_extra_brings():
    with pytest.raises(SettingsError, match=r"; pip install 'timecycle\[napari\]' napari-deeplabcut$"):
        import_extra("no_such_module", extra="napari", packages=("napari-deeplabcut",))
    with pytest.raises(SettingsError, match=r"no_such_module is not installed; pip install gcsfs$"):
        import_extra("no_such_module", extra=None, packages=("gcsfs",))


def test_every_extra_that_an_error_names_can_be_installed():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [path.read_text(encoding="utf-8") for path in Path(timecycle.__file__).parent.rglob("*.py")]
    named = {name for text in sources for name in re.findall(r'\bextra="([^"]*)"', text)}
    assert named
    assert named <= project["optional-dependencies"].keys()
