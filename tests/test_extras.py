"""An optional dependency is imported, or the error says how to install it."""

import json

import pytest

from timecycle.errors import SettingsError
from timecycle.extras import import_extra


def test_an_installed_module_is_imported():
    assert import_extra("json", extra="eval") is json


def test_the_error_of_a_missing_module_says_how_to_install_it():
    with pytest.raises(SettingsError, match=r"no_such_module is not installed; pip install 'timecycle\[eval\]'"):
        import_extra("no_such_module", extra="eval")
