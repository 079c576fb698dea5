"""HDF5 files on which the library of HDF5 crashes or does not end are refused, and this process lives."""

import os

import pytest

from timecycle.errors import LabelError
from timecycle.formats import hdf5_file
from timecycle.formats.hdf5_file import check_hdf5

# Instead of a file on which this version of the library fails, of which the next version may be cured.
LIMITED = hdf5_file._LOOK.partition("import h5py")[0]


@pytest.mark.parametrize("end", ["import os; os.abort()", "while True: pass"])
def test_a_file_on_which_the_library_crashes_or_does_not_end_is_refused(tmp_path, monkeypatch, end):
    if not hasattr(os, "fork") and "while" in end:
        pytest.skip("there are no limits of the processor's time")
    (tmp_path / "a.slp").write_bytes(b"damaged")
    monkeypatch.setattr(hdf5_file, "_LOOK", LIMITED + end)
    monkeypatch.setattr(hdf5_file, "_SECONDS", 1)
    with pytest.raises(LabelError, match=r"a\.slp is damaged: the library of HDF5 fails on it; save it again"):
        check_hdf5(tmp_path / "a.slp", remedy="save it again")


def test_what_merely_cannot_be_read_is_left_to_the_reader(tmp_path, monkeypatch):
    (tmp_path / "a.slp").write_bytes(b"no HDF5")
    check_hdf5(tmp_path / "a.slp", remedy="")
    (tmp_path / "b.slp").write_bytes(b"no HDF5")
    monkeypatch.setattr(hdf5_file, "_LOOK", "import nothing_of_this_name")
    check_hdf5(tmp_path / "b.slp", remedy="")


def test_modules_of_the_current_folder_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "h5py.py").write_text("import os; os.abort()")
    (tmp_path / "a.slp").write_bytes(b"no HDF5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    check_hdf5(tmp_path / "a.slp", remedy="")
