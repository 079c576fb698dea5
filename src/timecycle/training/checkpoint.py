"""Everything a run needs to go on, in one file: whole or absent, with its checksum, the last two kept.

A file begins with one line of JSON (step, checksum, length) and goes on with what torch saves. It is read with
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
from timecycle.files import atomic_write, clear_parts, make_folder

log = logging.getLogger("timecycle")

_KEPT = 2  # should the newest be damaged, the one before it serves


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write step-00000100.ckpt and remove those older than the last two."""
    clear_parts(make_folder(folder))  # each may be as large as a checkpoint, and every kill may leave one
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    head = {"step": step, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    path = folder / f"step-{step:08d}.ckpt"
    with atomic_write(path) as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(content)
    for old in _files(folder)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def has_checkpoints(folder: Path) -> bool:
    """Whether a run has saved anything to resume from."""
    return bool(_files(folder))


def load_newest(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is whole; None where there is none. A damaged one is named and passed over."""
    for path in reversed(_files(folder)):
        try:
            return _read(path)
        except MemoryError:
            raise
        except Exception as error:  # torch and pickle raise nearly anything over a damaged file
            log.warning("the checkpoint %s is damaged (%s); going back to the one before it", path.name, error)
    if _files(folder):
        raise OutputError(
            f"no checkpoint in {folder} can be read", remedy="start anew in another folder with -o, or --overwrite"
        )
    return None


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        head = json.loads(file.readline())
        content = file.read()
    if len(content) != head["bytes"] or hashlib.sha256(content).hexdigest() != head["sha256"]:
        raise ValueError("its checksum is wrong")
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError("it holds no state")
    return state


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.ckpt"))
