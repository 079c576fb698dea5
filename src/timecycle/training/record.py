"""The record of a run, RUN/train.json: the settings and initial weights that a resumed run must keep.

It is written once the videos are indexed and the held-out clips are read. A folder without it holds no run, so that a
run that failed before its first step never blocks the next one.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError
from timecycle.files import write_text
from timecycle.model.resnet import ResNet
from timecycle.model.weights import Card, hash_state, load_weights, read_card, save_weights
from timecycle.runs.provenance import commit, machine
from timecycle.training.checkpoint import has_checkpoints
from timecycle.training.settings import TrainConfig
from timecycle.version import __version__

NO_LICENCE = "not stated"

_FORMAT = {"timecycle_training": 1}
_RECORD = "train.json"
_WEIGHTS = "weights.safetensors"
_START = "start.safetensors"  # a copy of the initial weights, so that resuming needs no other file
_OWN_FILES = ("checkpoints/*.ckpt", "journal.jsonl", "weights.*", "start.*")  # the index is kept: probing is slow


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
