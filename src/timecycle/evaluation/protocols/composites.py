"""A benchmark made from unlabelled video: composites with known masks, scored as DAVIS-2016.

The files are laid out as DAVIS-2016, so that everything that reads DAVIS reads them.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.concurrency import usable_cores
from timecycle.data.augment.articulated import ArticulatedConfig, make_articulated
from timecycle.data.augment.composites import CompositesConfig, Frames, ObjectMasks, make_composite
from timecycle.data.corpus.index import make_index
from timecycle.errors import OutputError
from timecycle.evaluation.protocols.davis import CLIPS, Davis, find_davis
from timecycle.files import atomic_write, make_folder, write_text
from timecycle.labels import Masks
from timecycle.progress import OnProgress

_LIST = "ImageSets/2016/val.txt"  # written last: a folder that has it is complete
_RECORD = "composites.json"


@dataclass(frozen=True)
class Composites(Davis):
    """Composites scored as DAVIS-2016, under a name of their own."""

    @property
    def name(self) -> str:
        return "composites"


def make_composites(
    videos: Path,
    folder: Path,
    config: CompositesConfig | ArticulatedConfig | None = None,
    *,
    progress: OnProgress | None = None,
) -> Path:
    """Write as many composites as DAVIS-2016 val has clips; a complete folder with the same settings is kept."""
    config = config or CompositesConfig()
    settings = json.dumps({"videos": str(videos), **dataclasses.asdict(config)}, indent=2) + "\n"
    record = folder / _RECORD
    if record.exists() and record.read_text(encoding="utf-8") != settings:
        raise OutputError(
            f"{folder} holds composites made with other settings", remedy="choose another folder, or remove it"
        )
    if (folder / _LIST).exists():
        return folder
    make_folder(folder)
    entries = make_index(videos, folder / "index.jsonl", workers=usable_cores()).entries
    write_text(record, settings)
    names = [f"composite-{number:02d}" for number in range(CLIPS["2016"])]
    for number, name in enumerate(names):
        if isinstance(config, ArticulatedConfig):
            frames, masks = make_articulated(videos, entries, config, number)
        else:
            frames, masks = make_composite(videos, entries, config, number)
        _write(folder, name, frames, masks)
        if progress is not None:
            progress(number + 1, len(names))
    make_folder((folder / _LIST).parent)
    write_text(folder / _LIST, "\n".join(names) + "\n")
    return folder


def find_composites(folder: Path, *, names: Sequence[str] = ()) -> Composites:
    """Find the composites that `make_composites` wrote, as a benchmark."""
    found = find_davis(folder, year="2016", names=names)
    return Composites(found.year, found.root, found.clips)


def _write(folder: Path, name: str, frames: Frames, masks: ObjectMasks) -> None:
    images, annotations = (make_folder(folder / kind / "480p" / name) for kind in ("JPEGImages", "Annotations"))
    for index, (frame, mask) in enumerate(zip(frames, masks, strict=True)):
        with atomic_write(images / f"{index:05d}.jpg") as file:
            Image.fromarray(frame).save(file, format="JPEG", quality=95)
        Masks.of(mask.astype(np.uint8)).write(annotations / f"{index:05d}.png")
