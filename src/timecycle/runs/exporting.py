"""The labels of a run in other formats: as what formats are written from, and as files in OUT/exports."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from timecycle.errors import LabelError, TimecycleError
from timecycle.extras import import_extra
from timecycle.files import clear_unfinished, make_folder
from timecycle.formats import matte
from timecycle.formats.format import Format
from timecycle.formats.registry import find_format, write_file
from timecycle.formats.video_labels import Known, LazyLabels, VideoFacts, VideoLabels, facts_of
from timecycle.labels import KINDS, Labels
from timecycle.labels.file import note
from timecycle.runs.folder import OutputFolder
from timecycle.video import Video


def labels_of_run(folder: OutputFolder) -> VideoLabels:
    """Return the labels of a finished run, each read when it is asked for, with all that is known of them."""
    record, rows, objects = folder.finished_record(), folder.frames(), folder.objects()
    kind, video = KINDS[record["labels"]["kind"]], record["video"]
    seconds = rows[-1].time_seconds - rows[0].time_seconds
    # To six digits, as the times of the table are rounded.
    mean_fps = float(f"{(len(rows) - 1) / seconds:.6g}") if seconds > 0 else None
    known = {
        index: {name: Known(one.confidence, one.state, one.annotated) for name, one in of_frame.items()}
        for index, of_frame in objects.items()
    }
    return VideoLabels(
        kind=kind,
        labels=LazyLabels([row.index for row in rows], lambda index: folder.read_labels(rows[index].number, kind)),
        video=VideoFacts(
            name=video["name"],
            frames=video["frames"],
            size=(video["height_px"], video["width_px"]),
            fps=video.get("assumed_fps") or mean_fps,
            numbers=[row.number for row in rows],
        ),
        names=record["names"],
        known=known,
    )


def check_exports(names: Sequence[str], kind: type[Labels]) -> None:
    """Refuse formats that do not exist, cannot hold this kind or lack a package, before any work is done."""
    check_formats(names)
    for one in map(find_format, names):
        if one.write is None or kind.kind not in one.kinds:
            raise LabelError(
                f"{one.title} cannot be written from {kind.kind}",
                remedy=f"choose another --format; this one holds {', '.join(one.kinds)}",
            )


def check_formats(names: Sequence[str]) -> None:
    """Refuse formats that do not exist or lack a package."""
    for one in map(find_format, names):
        if one.extra is not None and one.module is not None:
            import_extra(one.module, extra=one.extra)


def write_exports(folder: OutputFolder, record: Mapping[str, Any], video: Video | None = None) -> None:
    """Write the labels of a run in the formats that were asked for, where they are missing or of other labels.

    run.json says of how many corrections each of them is, so that the next command completes interrupted exports.
    video: that of the run, if it is open; otherwise a format that shows it opens it.
    """
    written = [name for name in exported_formats(record) if _is_current(folder, record, name)]
    missing = [name for name in exported_formats(record) if name not in written]
    if not missing:
        return
    record = _write_exported(folder, record, written)
    clear_unfinished(make_folder(folder.exports))
    for name in missing:
        path = export_path(folder, find_format(name))
        _remove(path)
        try:
            with ExitStack() as stack:
                labels = labels_of_run(folder)
                if name == matte.FORMAT.name:  # the only one that shows the video
                    source = stack.enter_context(folder.open_video()) if video is None else video
                    labels = labels.on_video(facts_of(source))
                write_file(labels, path, name=name)
            written.append(name)
        except TimecycleError as error:
            _remove(path)
            note(f"{path} could not be written: {error.problem}; {error.remedy}")
    _write_exported(folder, record, written)


def _is_current(folder: OutputFolder, record: Mapping[str, Any], name: str) -> bool:
    """Return whether the labels of a run, as they are now, have been written in a format."""
    is_recorded = (record.get("exports") or {}).get(name) == (record.get("corrections") or 0)
    return is_recorded and export_path(folder, find_format(name)).exists()


def _write_exported(folder: OutputFolder, record: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Record the formats in which the labels have been written; returns the new record.

    Records of earlier versions have no place for them, and undoing restores such a record to its bytes.
    """
    corrections = record.get("corrections") or 0
    exports = {name: corrections for name in exported_formats(record) if name in names}
    if record.get("exports") in (None, exports):
        return record
    changed = {**record, "exports": exports}
    folder.write_record(changed)
    return changed


def _remove(path: Path) -> None:
    """Remove what a format has written, a file or a folder."""
    path.unlink(missing_ok=True) if path.is_file() else shutil.rmtree(path, ignore_errors=True)


def export_path(folder: OutputFolder, one: Format) -> Path:
    """Return where a run writes its labels in another format."""
    return folder.exports / f"{one.name}{one.suffixes[0] if one.suffixes else ''}"


def exported_formats(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the formats that a run writes."""
    return [str(name) for name in record["outputs"].get("formats") or ()]
