"""Checkpoints: the state of a run in one file, written atomically with its checksum; the last two are kept.

A file begins with one line of JSON (format, step, checksum, length), followed by what torch saves. It is read with
weights_only, so a checkpoint can hold tensors and plain values but never run code.
"""

import hashlib
import io
import json
import logging
from pathlib import Path
from typing import Any

import torch

from timecycle.errors import OutputError
from timecycle.files import atomic_write, clear_unfinished, make_folder

log = logging.getLogger("timecycle")

_FORMAT = {"timecycle_checkpoint": 1}
_KEPT = 2  # if the newest is damaged, the one before it is used


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint such as step-00000100.ckpt, and remove those older than the last two."""
    clear_unfinished(make_folder(folder))  # every kill may leave a partial file as large as a checkpoint
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    head = {**_FORMAT, "step": step, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    path = folder / f"step-{step:08d}.ckpt"
    with atomic_write(path) as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(content)
    for old in _files(folder)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def has_checkpoints(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return bool(_files(folder))


def load_newest(folder: Path) -> dict[str, Any] | None:
    """Read the newest intact checkpoint, with a warning for damaged ones; return None if there is none at all."""
    for path in reversed(_files(folder)):
        try:
            return _read(path)
        except (MemoryError, OutputError):
            raise
        except Exception as error:  # torch and pickle raise nearly anything for a damaged file
            log.warning("the checkpoint %s is damaged (%s); the one before it is used", path.name, error)
    if _files(folder):
        raise OutputError(
            f"no checkpoint in {folder} can be read",
            remedy="start a new run in another folder with -o, or with --overwrite",
        )
    return None


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        head = json.loads(file.readline())
        content = file.read()
    if len(content) != head["bytes"] or hashlib.sha256(content).hexdigest() != head["sha256"]:
        raise ValueError("its checksum is wrong")
    if not _FORMAT.items() <= head.items():
        raise OutputError(
            f"the checkpoint {path} is of another version of timecycle",
            remedy="train again, in another folder with -o or with --overwrite",
        )
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError("it holds no state")
    return state


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.ckpt"))
