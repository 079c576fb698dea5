"""Weights in installed packages, found without importing the package and read without running code."""

import pickle
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import IO, Any

import numpy as np

from timecycle.errors import WeightsError


def packaged_file(distribution: str, name: str, *, install: str) -> Path:
    """Return the file called `name` of an installed distribution; `install` is the command that installs it."""
    try:
        matches = [file for file in files(distribution) or [] if file.name == name]
    except PackageNotFoundError:
        matches = []
    path = Path(str(matches[0].locate())) if matches else None
    if path is None or not path.is_file():
        raise WeightsError(
            f"the weights {name} are in the package {distribution}, which is not installed", remedy=f"run: {install}"
        )
    return path


def read_arrays(path: Path) -> dict[str, Any]:
    """Read a pickle of a nested dictionary of numpy arrays; anything else in it is refused and never run."""
    with path.open("rb") as file:
        try:
            content = _ArraysOnly(file).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, TypeError) as error:
            raise WeightsError(f"{path} cannot be read: {error}", remedy="install its package again") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds no dictionary of arrays", remedy="install its package again")
    return content


class _ArraysOnly(pickle.Unpickler):
    """Builds numpy arrays and plain containers, nothing else."""

    _ALLOWED = ("_reconstruct", "ndarray", "dtype")

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray") and name in self._ALLOWED:
            return _reconstruct if name == "_reconstruct" else getattr(np, name)
        raise pickle.UnpicklingError(f"it would run {module}.{name}")


def _reconstruct(_: type, shape: tuple[int, ...], __: bytes) -> np.ndarray:
    """Make the empty array that the pickle then fills."""
    return np.empty(shape, dtype=np.uint8)
