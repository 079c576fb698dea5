"""The journal of a run: one JSON line per step, and TensorBoard curves if TensorBoard is installed."""

import importlib.util
import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from timecycle.files import make_folder, write_text

FILE = "journal.jsonl"
_RECENT = 50  # steps


@runtime_checkable
class _Curves(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> None: ...

    def close(self) -> None: ...


class Journal:
    """Appends to journal.jsonl; a resumed run first removes the lines after its checkpoint."""

    def __init__(self, folder: Path, *, resume_at: int = 0) -> None:
        self.path = make_folder(folder) / FILE
        kept = [line for line in read_journal(folder) if line["step"] <= resume_at] if resume_at else []
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.path.open("a", encoding="utf-8")
        self._recent: deque[Mapping[str, Any]] = deque(kept, maxlen=_RECENT)
        self._curves = _tensorboard(folder, resume_at)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one line; numbers are also added to the curves."""
        self._recent.append(values)
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._curves is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._curves.add_scalar(name, value, step)

    def recent_mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """Average figures of a step with those of the steps before it: a single batch is noisy."""
        lines = [*self._recent, values]
        return {name: fmean(line[name] for line in lines if name in line) for name in values}

    def close(self) -> None:
        self._file.close()
        if self._curves is not None:
            self._curves.close()


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Read the journal of a run; skip lines that are incomplete or are not of a step."""
    path = folder / FILE
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and type(values.get("step")) is int:
            lines.append(values)
    return lines


def _tensorboard(folder: Path, resume_at: int) -> _Curves | None:
    """Open TensorBoard's writer if it is installed (extra `train`)."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - takes a second to import

    writer: _Curves = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_at or None)
    return writer
