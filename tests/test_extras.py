"""An optional dependency is imported, or the error says how to install it."""

import json

import pytest

from timecycle.errors import SettingsError
from timecycle.extras import need


def test_an_installed_module_is_imported():
    assert need("json", extra="eval") is json


def test_a_missing_module_names_the_line_that_installs_it():
    with pytest.raises(SettingsError, match=r"no_such_module is not installed; pip install 'timecycle\[eval\]'"):
        need("no_such_module", extra="eval")
