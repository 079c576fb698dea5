"""The history of corrections: an output folder keeps what each correction replaced, so that it can be undone exactly.

Corrections made together are one entry, OUT/history/NUMBER. `commit` first copies what it will replace into a new
entry, then moves the new files into the folder, and writes the entry's number into run.json last. An entry whose number
is not in run.json belongs to an interrupted correction, which `recover` undoes.
"""

import filecmp
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError, first_line
from timecycle.files import copy_file, make_folder, sha256, write_text, writing
from timecycle.labels import Labels
from timecycle.labels.space import Objects
from timecycle.runs.folder import FILES, RECORD, OutputFolder

_ENTRY = "entry.json"  # written last: an entry that has it is complete
_ENTRY_NAMES = "[0-9]" * 4  # a pattern


@dataclass(frozen=True)
class HistoryEntry:
    """Corrections made together: the objects they annotated by frame, and the files they replaced."""

    objects: Mapping[int, Objects]
    numbers: Sequence[int]  # of the frames that were propagated again
    folder: OutputFolder

    @property
    def frames(self) -> list[int]:
        return list(self.objects)


def read_history(folder: OutputFolder) -> list[HistoryEntry]:
    """Read the corrections of a run, the oldest first."""
    return [_read_entry(entry) for entry in _entries(folder)]


def commit(
    folder: OutputFolder,
    staged: OutputFolder,
    record: Mapping[str, Any],
    *,
    objects: Mapping[int, Objects],
    numbers: Sequence[int],
    kind: type[Labels],
) -> set[int]:
    """Replace files of a run by staged ones, keeping the old ones in the history, and write the new record.

    `objects` are those of the corrections by frame, `numbers` those of the frames that were propagated again. Returns
    the numbers of frames whose labels changed.
    """
    entry = _keep(folder, objects, numbers, kind)
    changed = _move(staged, folder)
    folder.remove_review_files()
    folder.write_record({**record, "corrections": int(entry.name)})
    return changed


def undo_last(folder: OutputFolder) -> list[int]:
    """Undo the last corrections exactly; returns the frames they were made on.

    An interrupted correction counts as the last.
    """
    recovered = recover(folder)
    if recovered is not None:
        return recovered
    record, entries = folder.finished_record(), _entries(folder)
    if not entries:
        raise OutputError(f"{folder.path} has no correction to undo", remedy="make one first: timecycle correct")
    last = _read_entry(entries[-1])
    # The record that is restored says that its exports are written: those of now must not pass for them.
    if folder.exports.is_dir():
        with writing(folder.exports):
            shutil.rmtree(folder.exports)
    # From here on the correction counts as interrupted, so the next command would complete the undoing.
    folder.write_record({**record, "corrections": int(entries[-1].name) - 1})
    return _restore(folder, last)


def refuse_interrupted(folder: OutputFolder) -> None:
    """Refuse a run whose last correction was interrupted: its files are of two states."""
    if _interrupted_entry(folder) is not None:
        raise OutputError(
            f"a correction of {folder.path} was interrupted",
            remedy=f"undo it first: timecycle correct {folder.path} --undo",
        )


def recover(folder: OutputFolder) -> list[int] | None:
    """Undo a correction that was interrupted; returns the frames it was made on, or None where there was none."""
    folder.clear_partial_files()
    shutil.rmtree(folder.staging, ignore_errors=True)
    for path in folder.history.glob(_ENTRY_NAMES):
        if path.is_dir() and not (path / _ENTRY).is_file():
            shutil.rmtree(path)
    _remove_empty_history(folder)
    entry = _interrupted_entry(folder)
    return None if entry is None else _restore(folder, _read_entry(entry))


def replaced_file(folder: OutputFolder, file: Path) -> Path | None:
    """Return the copy of a file as it was before the last correction; None where the correction did not replace it."""
    entries = _entries(folder)
    kept = entries[-1] / file.relative_to(folder.path) if entries else None
    return kept if kept is not None and kept.is_file() else None


def _entries(folder: OutputFolder) -> list[Path]:
    return sorted(path.parent for path in folder.history.glob(f"{_ENTRY_NAMES}/{_ENTRY}"))


def _interrupted_entry(folder: OutputFolder) -> Path | None:
    entries = _entries(folder)
    if not entries or (folder.finished_record().get("corrections") or 0) >= int(entries[-1].name):
        return None
    return entries[-1]


def _read_entry(entry: Path) -> HistoryEntry:
    """Read an entry and verify its checksums: damaged files are never restored."""
    try:
        about = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))
        objects = {
            int(index): None if names is None else frozenset(map(str, names))
            for index, names in about["objects"].items()
        }
        numbers, kept = list(map(int, about["numbers"])), dict(about["sha256"])
        there = {path.relative_to(entry).as_posix() for path in _files_of(OutputFolder(entry)) if path.is_file()}
        if there != kept.keys() or any(sha256([entry / name]) != digest for name, digest in kept.items()):
            raise ValueError("its files are not those that were kept")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OutputError(
            f"the history in {entry} is damaged: {first_line(error)}",
            remedy=f"remove {entry.parent}: the corrections stay, but can no longer be undone",
        ) from error
    return HistoryEntry(objects, numbers, OutputFolder(entry))


def _keep(folder: OutputFolder, objects: Mapping[int, Objects], numbers: Sequence[int], kind: type[Labels]) -> Path:
    """Copy everything that a correction will replace into a new entry."""
    entry = folder.history / f"{len(_entries(folder)) + 1:04d}"
    files = [folder.path / name for name in (*FILES, RECORD)]
    for number in numbers:
        files += [folder.label_file(number, kind), folder.confidence_file(number)]
    kept = {}
    for file in files:
        if file.is_file():
            name = file.relative_to(folder.path).as_posix()
            make_folder((entry / name).parent)
            shutil.copyfile(file, entry / name)
            kept[name] = sha256([entry / name])
    names = {str(index): None if of is None else sorted(of) for index, of in objects.items()}
    write_text(entry / _ENTRY, json.dumps({"objects": names, "numbers": list(numbers), "sha256": kept}) + "\n")
    return entry


def _move(staged: OutputFolder, folder: OutputFolder) -> set[int]:
    """Move the staged files into the folder; returns the numbers of frames whose labels changed."""
    changed = set()
    for source, target in ((staged.labels, folder.labels), (staged.confidence, folder.confidence)):
        for number, file in _numbered_files(source):
            old = make_folder(target) / file.name
            if source == staged.labels and not filecmp.cmp(file, old, shallow=False):
                changed.add(number)
            file.replace(old)
    for name in FILES:
        if (staged.path / name).is_file():
            (staged.path / name).replace(folder.path / name)
    shutil.rmtree(staged.path)
    return changed


def _files_of(folder: OutputFolder) -> list[Path]:
    """Return the paths of all files that an entry may keep."""
    numbered = (*_numbered_files(folder.labels), *_numbered_files(folder.confidence))
    return [folder.path / name for name in (*FILES, RECORD)] + [file for _, file in numbered]


def _numbered_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the label or confidence files of a folder with the numbers of their frames, in order.

    Others are no files of a run: file managers leave some, such as .DS_Store and Thumbs.db.
    """
    return [(int(file.stem), file) for file in sorted(folder.glob("*")) if re.fullmatch("[0-9]{5,}", file.stem)]


def _restore(folder: OutputFolder, last: HistoryEntry) -> list[int]:
    """Restore everything, run.json last; it can be repeated after a kill. Returns the corrected frames."""
    numbers, old = set(last.numbers), last.folder
    for source, target in ((old.labels, folder.labels), (old.confidence, folder.confidence)):
        for number, file in _numbered_files(target):
            if number in numbers and not (source / file.name).is_file():
                file.unlink()
        for _, file in _numbered_files(source):
            copy_file(file, target / file.name)
    folder.remove_review_files()  # not restored: they link to files of review/, which follows the last `check`
    for name in FILES:
        if (old.path / name).is_file():
            copy_file(old.path / name, folder.path / name)
        else:
            (folder.path / name).unlink(missing_ok=True)
    copy_file(old.record_file, folder.record_file)
    (old.path / _ENTRY).unlink()  # from here on it is no entry
    shutil.rmtree(old.path)
    _remove_empty_history(folder)
    return last.frames


def _remove_empty_history(folder: OutputFolder) -> None:
    if folder.history.is_dir() and not any(folder.history.iterdir()):
        folder.history.rmdir()
