"""The HDF5 files of DeepLabCut, which are tables of pandas.

They are written with pandas but read with h5py: pandas and PyTables unpickle what a file holds, which can run code. The
one pickle that is needed, the names of the columns, is read by an unpickler that knows no classes or functions.
"""

import io
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import LabelError
from timecycle.extras import import_extra
from timecycle.files import atomic_write
from timecycle.formats.hdf5_file import check_hdf5

_EXTRA = "deeplabcut"
_KEY = "df_with_missing"
_MAX_VALUES = 1 << 28
_MAX_PICKLE_BYTES = 1 << 24
_REMEDY = "save it again from DeepLabCut, or give the CSV file beside it"

Levels = dict[str, Sequence[str]]  # header rows by name


def recognises(path: Path) -> bool:
    """Return whether an HDF5 file holds DeepLabCut's table."""
    with path.open("rb") as file:
        if file.read(8) != b"\x89HDF\r\n\x1a\n":
            return False
    h5py = import_extra("h5py", extra=_EXTRA)
    check_hdf5(path, remedy=_REMEDY)
    with h5py.File(path, "r") as file:
        return any("axis0_level0" in group or "table" in group for group in _groups(file))


def read(path: Path) -> tuple[Levels, Iterable[tuple[Sequence[str], Sequence[float]]]]:
    """Return the header rows by name, and the rows with what they are called."""
    h5py = import_extra("h5py", extra=_EXTRA)
    check_hdf5(path, remedy=_REMEDY)
    try:
        with h5py.File(path, "r") as file:
            group = next(iter(_groups(file)), None)
            if group is None:
                raise LabelError(f"{path} holds no table of pandas", remedy=_REMEDY)
            levels, called, values = _read_table(group) if "table" in group else _read_fixed(group)
    except (OSError, KeyError, ValueError, TypeError, IndexError, RuntimeError, pickle.UnpicklingError) as error:
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    if values.ndim != 2 or values.shape != (len(called), len(next(iter(levels.values())))):
        raise LabelError(f"{path} has rows of another length than its header", remedy=_REMEDY)
    return levels, zip(called, values.tolist(), strict=True)


def _groups(file: Any) -> list[Any]:
    named = [file[_KEY]] if _KEY in file else []
    return named + [file[name] for name in file if name != _KEY and hasattr(file[name], "keys")]


def _read_fixed(group: Any) -> tuple[Levels, list[list[str]], np.ndarray]:
    """Read pandas' `fixed` layout: levels and codes of both axes, and blocks of values."""
    columns = _multi_index(group, "axis0")
    called = _multi_index(group, "axis1") if "axis1_level0" in group else {"": _texts(_dataset(group, "axis1"))}
    blocks = sorted(name for name in group if name.startswith("block") and name.endswith("_values"))
    width = len(next(iter(columns.values())))
    values = np.full((len(next(iter(called.values()))), width), np.nan)
    wanted = {key: i for i, key in enumerate(zip(*columns.values(), strict=True))}
    for block in blocks:
        found = _dataset(group, block)
        if found.size > _MAX_VALUES:
            raise ValueError("it is too large")
        items = _multi_index(group, block.replace("_values", "_items"))
        for column, key in enumerate(zip(*items.values(), strict=True)):
            values[:, wanted[key]] = found[:, column]
    return columns, [path_parts(cells) for cells in zip(*called.values(), strict=True)], values


def _multi_index(group: Any, axis: str) -> Levels:
    """Return the values of a multi-index by the names of its levels."""
    levels: Levels = {}
    for i in range(4):
        if f"{axis}_level{i}" not in group:
            break
        level, codes = _dataset(group, f"{axis}_level{i}"), _dataset(group, f"{axis}_label{i}")[:]
        texts = _texts(level)
        # The levels of rows have no names.
        name = _text(level.attrs.get("name", "")) if axis == "axis0" else str(i)
        levels[name] = [texts[code] if code >= 0 else "" for code in codes.tolist()]
    if not levels:
        raise ValueError(f"{axis} has no levels")
    return levels


def _read_table(group: Any) -> tuple[Levels, list[list[str]], np.ndarray]:
    """Read pandas' `table` layout: one dataset of rows, whose columns are named by a pickled list."""
    table = _dataset(group, "table")
    if table.size > _MAX_VALUES:
        raise ValueError("it is too large")
    rows = table[:]
    ((_, keys),) = _unpickled(group.attrs["non_index_axes"])
    names = _unpickled(group.attrs["info"])[1].get("names") if "info" in group.attrs else None
    width = len(keys[0])
    names = names if names and len(names) == width else ["scorer", "individuals", "bodyparts", "coords"][-width:]
    if width == 3 and not (names and names[0]):
        names = ["scorer", "bodyparts", "coords"]
    levels: Levels = {str(name): [str(key[i]) for key in keys] for i, name in enumerate(names)}
    blocks = [name for name in rows.dtype.names if name.startswith("values_block")]
    order = [key for block in blocks for key in _unpickled(table.attrs[f"{block}_kind"])]
    stacked = np.concatenate([rows[block].reshape(len(rows), -1) for block in blocks], axis=1)
    position = {tuple(key): i for i, key in enumerate(order)}
    values = stacked[:, [position[tuple(key)] for key in keys]]
    return levels, [path_parts([_text(one)]) for one in rows["index"].tolist()], values


class _Unpickler(pickle.Unpickler):
    """Reads lists, tuples, dictionaries, strings and numbers, and nothing that is named by a module."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds a {module}.{name}, which is not read")


def _unpickled(value: Any) -> Any:
    data = value.tobytes() if isinstance(value, np.void | np.ndarray) else bytes(value)
    if len(data) > _MAX_PICKLE_BYTES:
        raise ValueError("its header is too large")
    return _Unpickler(io.BytesIO(data)).load()


def _dataset(group: Any, name: str) -> Any:
    """Return a dataset of a group; a damaged file may have a group or a type of its name."""
    found = group[name]
    if not hasattr(found, "size"):
        raise ValueError(f"{name} is no dataset")
    return found


def _texts(dataset: Any) -> list[str]:
    if dataset.size > _MAX_VALUES or dataset.dtype.kind not in "SiufO":
        raise ValueError(f"{dataset.name} does not hold names")
    return [_text(value) for value in dataset[:].tolist()]


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def path_parts(cells: Sequence[str]) -> list[str]:
    """Split what a row is called into folders and file."""
    return [part for cell in cells for part in cell.replace("\\", "/").split("/") if part]


def write(
    path: Path,
    names: Sequence[str],
    columns: Sequence[tuple[str, ...]],
    called: Sequence[str | int],
    values: np.ndarray,
) -> None:
    """Write a table as DeepLabCut does; pandas writes to a path alone."""
    pandas = import_extra("pandas", extra=_EXTRA)
    import_extra("tables", extra=_EXTRA)
    header = pandas.MultiIndex.from_tuples(columns, names=names)
    frame = pandas.DataFrame(values, index=list(called), columns=header)
    with atomic_write(path) as file:
        frame.to_hdf(file.name, key=_KEY, mode="w")
