"""The files of a run: its record, its checkpoints and its journal.

RUN/train.json, the record, holds the settings and initial weights that a resumed run must keep. It is written once the
videos are indexed and the held-out clips are read. A folder without it holds no run, so that a run that failed before
its first step never blocks the next one.

RUN/checkpoints/ holds the state of the run, in files that are written atomically with their checksum; the last two are
kept. A file begins with one line of JSON (format, step, checksum, length), followed by what torch saves. It is read
with weights_only, so a checkpoint can hold tensors and plain values but never run code.

RUN/journal.jsonl has one JSON line per step; TensorBoard curves are beside it if TensorBoard is installed.
"""

import hashlib
import importlib.util
import io
import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

import torch

from timecycle.errors import OutputError
from timecycle.files import atomic_write, clear_unfinished, make_folder, write_text
from timecycle.model.resnet import ResNet
from timecycle.model.weights import Card, hash_state, load_weights, read_card, save_weights
from timecycle.runs.provenance import commit, machine
from timecycle.training.settings import TrainConfig
from timecycle.version import __version__

log = logging.getLogger("timecycle")

NO_LICENCE = "not stated"

_FORMAT = {"timecycle_training": 1}
_RECORD = "train.json"
_WEIGHTS = "weights.safetensors"
_START = "start.safetensors"  # a copy of the initial weights, so that resuming needs no other file
_OWN_FILES = ("checkpoints/*.ckpt", "journal.jsonl", "weights.*", "start.*")  # the index is kept: probing is slow

_CHECKPOINT_FORMAT = {"timecycle_checkpoint": 1}
_KEPT_CHECKPOINTS = 2  # if the newest is damaged, the one before it is used

_JOURNAL = "journal.jsonl"
_RECENT_STEPS = 50


def has_record(folder: Path) -> bool:
    """Whether the folder holds a run."""
    return (folder / _RECORD).is_file()


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a run."""
    settings: dict[str, Any] = _read(folder)["config"]
    return settings


def refuse_used(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with a run that has saved something, unless it may be overwritten."""
    saved = has_checkpoints(folder / "checkpoints") or (folder / _WEIGHTS).exists()
    if has_record(folder) and saved and not overwrite:
        raise OutputError(
            f"{folder} already holds a run", remedy="pass --resume to resume it, or --overwrite to replace it"
        )


def clear_run(folder: Path) -> None:
    """Remove an earlier run, its record first: without it, the other files are no run."""
    (folder / _RECORD).unlink(missing_ok=True)
    for pattern in _OWN_FILES:
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)


def write_record(
    folder: Path, config: TrainConfig, start: ResNet | None, *, licence: str, start_card: Card | None = None
) -> None:
    """Write the record; from now on the folder holds a run."""
    if start is not None:
        card = start_card or Card(encoder=start.config, trained_on="unknown")
        save_weights(folder / _START, start, replace(card, notes="the initial weights of a run"))
    about = {"licence": licence, "timecycle": __version__, "commit": commit(), "machine": machine()}
    write_text(folder / _RECORD, json.dumps(_FORMAT | _identity(config, start) | about, indent=2) + "\n")


def check_record(folder: Path, config: TrainConfig, start: ResNet | None) -> None:
    """Refuse to resume a run with other settings or other initial weights."""
    old = _read(folder)
    for name, value in _identity(config, start).items():
        if old.get(name) != value:
            raise OutputError(
                f"the run in {folder} was started with another {name}",
                remedy="resume it as it was started, or choose another folder with -o",
            )


def read_start(folder: Path) -> ResNet | None:
    """Read the initial weights of a run, if it did not start from random ones."""
    return load_weights(folder / _START) if _read(folder)["from_sha256"] is not None else None


def read_start_card(folder: Path) -> Card | None:
    """Read the card of the initial weights of a run, if any."""
    return read_card(folder / _START) if (folder / _START).is_file() else None


def read_licence(folder: Path) -> str:
    """Read the licence that was stated when the run was started."""
    return str(_read(folder).get("licence", NO_LICENCE))


def finished_weights(folder: Path) -> Path | None:
    """Return the weights of a finished run; their card is written last."""
    weights = folder / _WEIGHTS
    return weights if has_record(folder) and weights.exists() and read_card(weights) is not None else None


def _read(folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        if not {"config", "from_sha256"} <= record.keys() or not isinstance(record["config"], dict):
            raise ValueError("it is not the record of a run")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise OutputError(f"{folder} holds no run to resume", remedy="leave --resume out to start one") from error
    if not _FORMAT.items() <= record.items():
        raise OutputError(
            f"the run in {folder} is of another version of timecycle",
            remedy="train again, in another folder with -o or with --overwrite",
        )
    return record


def _identity(config: TrainConfig, start: ResNet | None) -> dict[str, Any]:
    return {
        "config": json.loads(json.dumps(asdict(config))),
        "from_sha256": hash_state(start.state_dict()) if start is not None else None,
    }


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint such as step-00000100.ckpt, and remove those older than the last two."""
    clear_unfinished(make_folder(folder))  # every kill may leave a partial file as large as a checkpoint
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    head = {**_CHECKPOINT_FORMAT, "step": step, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    path = folder / f"step-{step:08d}.ckpt"
    with atomic_write(path) as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(content)
    for old in _checkpoint_files(folder)[:-_KEPT_CHECKPOINTS]:
        old.unlink(missing_ok=True)
    return path


def has_checkpoints(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return bool(_checkpoint_files(folder))


def load_newest(folder: Path) -> dict[str, Any] | None:
    """Read the newest intact checkpoint, with a warning for damaged ones; return None if there is none at all."""
    for path in reversed(_checkpoint_files(folder)):
        try:
            return _read_checkpoint(path)
        except (MemoryError, OutputError):
            raise
        except Exception as error:  # torch and pickle raise nearly anything for a damaged file
            log.warning("the checkpoint %s is damaged (%s); the one before it is used", path.name, error)
    if _checkpoint_files(folder):
        raise OutputError(
            f"no checkpoint in {folder} can be read",
            remedy="start a new run in another folder with -o, or with --overwrite",
        )
    return None


def _read_checkpoint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        head = json.loads(file.readline())
        content = file.read()
    if len(content) != head["bytes"] or hashlib.sha256(content).hexdigest() != head["sha256"]:
        raise ValueError("its checksum is wrong")
    if not _CHECKPOINT_FORMAT.items() <= head.items():
        raise OutputError(
            f"the checkpoint {path} is of another version of timecycle",
            remedy="train again, in another folder with -o or with --overwrite",
        )
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError("it holds no state")
    return state


def _checkpoint_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.ckpt"))


@runtime_checkable
class _Curves(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> None: ...

    def close(self) -> None: ...


class Journal:
    """Appends to journal.jsonl; a resumed run first removes the lines after its checkpoint."""

    def __init__(self, folder: Path, *, resume_at: int = 0) -> None:
        self.path = make_folder(folder) / _JOURNAL
        kept = [line for line in read_journal(folder) if line["step"] <= resume_at] if resume_at else []
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.path.open("a", encoding="utf-8")
        self._recent: deque[Mapping[str, Any]] = deque(kept, maxlen=_RECENT_STEPS)
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
    path = folder / _JOURNAL
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
