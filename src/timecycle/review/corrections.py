"""Corrections: frames are annotated again, the frames they control are propagated again, and nothing else is touched.

A correction controls the frames up to the nearest frames on either side on which its objects are annotated, which stay
as they are (intervals.py). Labels are propagated from all of them: from the corrections between two such frames,
together and once, and from the labels of the frames at both ends. What was there before is kept in OUT/history/NUMBER,
so that the corrections given together can be undone, to the byte. Corrections that are interrupted half-way are taken
back by the next correction, or by undoing.
"""

import csv
import filecmp
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.behind import Behind
from timecycle.errors import LabelError, OutputError, first_line
from timecycle.files import clear_parts, copy_file, lock, make_folder, sha256, write_text
from timecycle.labels import KINDS, Keypoints, Labels
from timecycle.labels.annotated import Objects, annotated_objects, only
from timecycle.labels.fitting import complete
from timecycle.model.encoder import Encoder
from timecycle.model.hub import offline
from timecycle.model.registry import load_encoder
from timecycle.outputs import (
    FILES,
    PASSES,
    REVIEW_FILES,
    LabelFiles,
    collect_keypoints,
    confidence_path,
    csv_lines,
    frame_row,
    label_path,
    number_of,
    object_rows,
    write_confidence,
    write_labels,
    write_record,
)
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.passes import PassMaps
from timecycle.propagation.propagate import LabelledFrame, fit_labels, space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.workfolder import WorkFolder
from timecycle.review.intervals import Sure, intervals_of, propagate_interval
from timecycle.review.judged import read_objects, read_run
from timecycle.review.meaning import as_in_run
from timecycle.review.redraw import Draw, Redraw
from timecycle.run_record import RECORD, read_settings, refuse_links
from timecycle.runs import ONE_FRAME_KINDS, Progress, annotation_sha256, annotations_record, colours_of
from timecycle.video import Video, open_video

_HISTORY = "history"
_ASIDE = ".correction"
_ENTRY = "entry.json"  # written last: an entry that has it is whole
_WAITING_FRAMES = 4  # propagated but not yet written: enough to smooth over a slow one


@dataclass(frozen=True)
class Corrected:
    """The frames that were propagated again for some corrections, and which of them differ from what they were."""

    frames: Sequence[int]  # that were corrected
    first: int
    last: int
    changed: Sequence[int]


@dataclass(frozen=True, eq=False)
class Correcting:
    """What correcting needs besides the folder: the video, and the encoder that carried the labels."""

    video: Video
    encoder: Encoder


def correct(
    folder: Path,
    corrections: Mapping[int, Labels],
    *,
    video: Video | None = None,
    encoder: Encoder | None = None,
    object_id: int | None = None,
    progress: Progress | None = None,
) -> list[Corrected]:
    """Annotate frames of a finished run again. Video and encoder are those of the run.

    Corrections between the same two annotated frames are propagated together. All of them are one entry of the history.
    A mask of one object is of the object `object_id`, which may be new; without it, of the one it is saved as, or of
    the run's only object. An empty mask says that no object is on its frame.
    """
    refuse_links(folder)
    read_run(folder)
    with lock(folder):
        recover(folder)
        record = read_run(folder)
        with _sources(folder, record, video, encoder) as sources:
            fitted = fit_labels(sources.video, corrections)
            _check_kind(folder, record, corrections)
            known = partial(_known, folder, record, sources.video.numbers)
            annotated, numbers = record["labels"]["frames"], sources.video.numbers
            colours = colours_of(record)
            meant = as_in_run(fitted, known, annotated, numbers, object_id=object_id, colours=colours)
            return _correct(folder, record, meant, sources, progress)


def undo(folder: Path) -> list[int]:
    """Take the last corrections back, all that were given together, to the byte; returns the frames they were made on.

    Corrections that were interrupted half-way count as the last.
    """
    refuse_links(folder)
    read_run(folder)
    with lock(folder):
        taken_back = recover(folder)
        if taken_back is not None:
            return taken_back
        record, entries = read_run(folder), _entries(folder)
        if not entries:
            raise OutputError(f"{folder} has no correction to undo", remedy="make one first: timecycle correct")
        # From here on it counts as begun: whoever comes next would finish the undoing.
        write_record(folder, {**record, "corrections": int(entries[-1].name) - 1})
        return _restore(folder, entries[-1])


def refuse_interrupted(folder: Path) -> None:
    """Refuse a run whose last correction was interrupted half-way: its files are of two states."""
    entries = _entries(folder)
    if entries and read_run(folder).get("corrections", 0) < int(entries[-1].name):
        raise OutputError(
            f"a correction of {folder} was interrupted", remedy=f"take it back first: timecycle correct {folder} --undo"
        )


def recover(folder: Path) -> list[int] | None:
    """Clear what a killed process left: take its corrections back. Returns the frames that were being corrected."""
    for place in (folder, folder / "labels", folder / "confidence"):
        clear_parts(place)
    shutil.rmtree(folder / _ASIDE, ignore_errors=True)
    for entry in (folder / _HISTORY).glob("*"):
        if not (entry / _ENTRY).is_file():
            shutil.rmtree(entry)
    _remove_empty_history(folder)
    entries = _entries(folder)
    if not entries or read_run(folder).get("corrections", 0) >= int(entries[-1].name):
        return None
    return _restore(folder, entries[-1])


@dataclass(frozen=True)
class Correction:
    """Corrections that were given together: their frames, the frames that were propagated again, and what was there."""

    objects: Mapping[int, Objects]  # that were annotated, by frame
    numbers: Sequence[int]  # of the frames that were propagated again
    folder: Path

    @property
    def frames(self) -> list[int]:
        return list(self.objects)


def history(folder: Path) -> list[Correction]:
    """The corrections of a run, the oldest first."""
    return [_read_entry(entry) for entry in _entries(folder)]


def _correct(
    folder: Path,
    record: dict[str, Any],
    corrections: Mapping[int, Labels],
    sources: Correcting,
    progress: Progress | None,
) -> list[Corrected]:
    kind, names = KINDS[record["labels"]["kind"]], record.get("names", {})
    annotated, numbers = _annotated(record), sources.video.numbers
    known = partial(_known, folder, record, numbers)
    given = {
        index: _over(labels, known(index), annotated[index]) if index in annotated else labels
        for index, labels in corrections.items()
    }
    config = read_settings(record, "config", PropagateConfig)
    parts = intervals_of(sources.video, given, known, annotated, config, sure=_sure(folder, annotated))
    aside = make_folder(folder / _ASIDE)
    written = _Written(aside, kind, names, record.get("outputs", {}).get("label_files", "palette"))
    redraw = Redraw(folder, aside, sources.video, kind, annotated.keys() | given.keys())
    done, total = count(1), sum(part.steps for part in parts)
    for part in parts:
        frames = propagate_interval(
            part,
            encoder=sources.encoder,
            config=config,
            trust=read_settings(record, "trust", TrustConfig) if record["trust"] else None,
            work=WorkFolder(aside / "work" / str(part.first)),
            maps=PassMaps(folder / PASSES, offset=part.start),
            on_step=lambda: progress(next(done), total) if progress is not None else None,
        )
        with redraw.span(part.first, part.last) as draw, Behind(_WAITING_FRAMES) as behind:
            for frame in frames:
                behind(partial(written.add, frame, draw))
    _replace_rows(folder / "frames.csv", written.frame_rows, aside / "frames.csv")
    _replace_rows(folder / "objects.csv", written.object_rows, aside / "objects.csv")
    redraw.finish(names)

    digests = _digests(record, known) | {index: annotation_sha256(labels) for index, labels in given.items()}
    again = [index for part in parts for index in range(part.first, part.last + 1)]
    annotated |= {index: annotated_objects(labels) for index, labels in given.items()}
    about = {index: annotated_objects(labels) for index, labels in sorted(corrections.items())}
    entry = _keep(folder, about, [numbers[index] for index in again], kind)
    changed = _move(aside, folder)
    if kind is Keypoints:
        collect_keypoints(folder / "labels", folder / "keypoints.csv", numbers)
    for name in REVIEW_FILES:
        (folder / name).unlink(missing_ok=True)
    write_record(
        folder, {**record, "labels": annotations_record(kind, digests, annotated), "corrections": int(entry.name)}
    )
    return [
        Corrected(
            part.corrected,
            part.first,
            part.last,
            [index for index in range(part.first, part.last + 1) if numbers[index] in changed],
        )
        for part in parts
    ]


def _known(folder: Path, record: Mapping[str, Any], numbers: Sequence[int], frame: int) -> Labels:
    """The labels that a frame of the run has now."""
    kind = KINDS[record["labels"]["kind"]]
    return kind.read(label_path(folder / "labels", numbers[frame], kind))


def _annotated(record: Mapping[str, Any]) -> dict[int, Objects]:
    """The objects that are annotated on each annotated frame of a run."""
    told = record["labels"].get("objects_by_frame") or {}
    return {
        index: None if told.get(str(index)) is None else frozenset(told[str(index)])
        for index in record["labels"]["frames"]
    }


def _sure(folder: Path, annotated: Mapping[int, Objects]) -> Sure:
    """How sure objects are on annotated frames, by objects.csv; nothing where nothing was judged."""
    values: dict[int, dict[str, float]] = {}
    path = folder / "objects.csv"
    if path.is_file():
        for index, objects in read_objects(path).items():
            if index in annotated:
                values[index] = {name: one.confidence for name, one in objects.items() if not one.annotated}
    return lambda index: values.get(index, {})


def _digests(record: Mapping[str, Any], known: Callable[[int], Labels]) -> dict[int, str]:
    """The checksums of the annotations so far; of runs that recorded none, of the labels on the annotated frames."""
    recorded = record["labels"].get("sha256_by_frame", {})
    return {
        index: recorded.get(str(index)) or annotation_sha256(complete(known(index)))
        for index in record["labels"]["frames"]
    }


def _over(new: Labels, old: Labels, objects: Objects) -> Labels:
    """A frame on which `objects` were annotated, annotated again: those that are not on the new annotation stay."""
    if annotated_objects(new) is None:
        return new
    kept = only(old, objects)
    if isinstance(new, Keypoints) and isinstance(kept, Keypoints):
        more = [i for i, name in enumerate(kept.names) if name not in new.names]
        return Keypoints(
            new.names + tuple(kept.names[i] for i in more),
            np.concatenate([new.xy, kept.xy[more]]),
            np.concatenate([new.visible, kept.visible[more]]),
        )
    merged: Labels = space_of({0: kept, 1: new}).put_back(new, kept)
    return complete(merged) if objects is None else merged


@dataclass(frozen=True, eq=False)
class _Written:
    """New labels and confidence, kept aside until all of them are there, and new lines of the two tables by frame."""

    aside: Path
    kind: type[Labels]
    names: Mapping[str, str]
    label_files: LabelFiles
    frame_rows: dict[int, str] = field(default_factory=dict)
    object_rows: dict[int, str] = field(default_factory=dict)

    def add(self, frame: LabelledFrame, draw: Draw) -> None:
        path = label_path(make_folder(self.aside / "labels"), frame.number, self.kind)
        write_labels(path, frame.labels, self.label_files)
        self.frame_rows[frame.index] = frame_row(frame)
        if frame.confidence is not None:
            write_confidence(self.aside, frame.number, frame.confidence)
            self.object_rows[frame.index] = object_rows(frame, self.names)
        draw(frame)


def _move(aside: Path, folder: Path) -> set[int]:
    """Put the new files in the place of the old; returns the numbers of frames whose labels are not what they were."""
    changed = set()
    for place in ("labels", "confidence"):
        for file in sorted((aside / place).glob("*")):
            target = make_folder(folder / place) / file.name
            if place == "labels" and not filecmp.cmp(file, target, shallow=False):
                changed.add(number_of(file))
            file.replace(target)
    for name in ("frames.csv", "objects.csv", "overlay.mp4", "contact.png"):
        (aside / name).replace(folder / name)
    shutil.rmtree(aside)
    return changed


def _replace_rows(path: Path, fresh: Mapping[int, str], target: Path) -> None:
    """Write a table with new lines in the place of those of the same frames."""
    header, _, rest = path.read_text(encoding="utf-8").partition("\n")
    kept: dict[int, str] = {}
    for row in csv.reader(io.StringIO(rest)):
        kept[int(row[0])] = kept.get(int(row[0]), "") + csv_lines([row])
    kept |= fresh
    write_text(target, f"{header}\n" + "".join(kept[index] for index in sorted(kept)))


# History


def _entries(folder: Path) -> list[Path]:
    return sorted(path.parent for path in (folder / _HISTORY).glob(f"{'[0-9]' * 4}/{_ENTRY}"))


def _read_entry(entry: Path) -> Correction:
    """An entry of the history, held against its checksums: what is damaged is never put back."""
    try:
        about = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))
        objects = {
            int(index): None if of is None else frozenset(map(str, of)) for index, of in about["objects"].items()
        }
        numbers, kept = list(map(int, about["numbers"])), dict(about["sha256"])
        there = {path.relative_to(entry).as_posix() for path in entry.rglob("*") if path.is_file()}
        if there != {*kept, _ENTRY} or any(sha256([entry / name]) != digest for name, digest in kept.items()):
            raise ValueError("its files are not those that were kept")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OutputError(
            f"the history in {entry} is damaged: {first_line(error)}",
            remedy=f"remove {entry.parent}: corrections stay, but can no longer be undone",
        ) from error
    return Correction(objects, numbers, entry)


def _keep(folder: Path, corrected: Mapping[int, Objects], numbers: Sequence[int], kind: type[Labels]) -> Path:
    """Copy everything that corrections will replace into a new entry of the history."""
    entry = folder / _HISTORY / f"{len(_entries(folder)) + 1:04d}"
    names = [*FILES, RECORD]
    for number in numbers:
        names.append(f"labels/{label_path(Path(), number, kind).name}")
        names.append(f"confidence/{confidence_path(Path(), number).name}")
    kept = {}
    for name in names:
        if (folder / name).is_file():
            make_folder((entry / name).parent)
            shutil.copyfile(folder / name, entry / name)
            kept[name] = sha256([entry / name])
    objects = {str(index): None if of is None else sorted(of) for index, of in corrected.items()}
    about = {"objects": objects, "numbers": list(numbers), "sha256": kept}
    write_text(entry / _ENTRY, json.dumps(about) + "\n")
    return entry


def _restore(folder: Path, entry: Path) -> list[int]:
    """Put everything back, run.json last; an undoing that is killed can be done again. Returns the corrected frames."""
    about = _read_entry(entry)
    again = set(about.numbers)
    for place in ("labels", "confidence"):
        for file in sorted((folder / place).glob("*")):
            if number_of(file) in again and not (entry / place / file.name).is_file():
                file.unlink()
        for file in sorted((entry / place).glob("*")):
            copy_file(file, folder / place / file.name)
    for name in REVIEW_FILES:  # not put back: they link to files of review/, which follows the last `check`
        (folder / name).unlink(missing_ok=True)
    for name in FILES:
        if (entry / name).is_file():
            copy_file(entry / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    copy_file(entry / RECORD, folder / RECORD)
    (entry / _ENTRY).unlink()  # from here on it is no entry
    shutil.rmtree(entry)
    _remove_empty_history(folder)
    return about.frames


def _remove_empty_history(folder: Path) -> None:
    if (folder / _HISTORY).is_dir() and not any((folder / _HISTORY).iterdir()):
        (folder / _HISTORY).rmdir()


# Sources


@contextmanager
def _sources(
    folder: Path, record: Mapping[str, Any], video: Video | None, encoder: Encoder | None
) -> Iterator[Correcting]:
    """The run's own video and encoder, opened again where they are not given; others are refused."""
    origin = record.get("origin") or {}
    if (video is None or encoder is None) and not origin:
        raise OutputError(
            f"{folder} does not say where its video lies",
            remedy="in Python, pass video and encoder; or carry the labels again from a file",
        )
    damaged = bool(record["video"].get("damage"))  # which was accepted when the labels were propagated
    opened = open_video(origin["video"], fps=origin["fps"], allow_damaged=damaged) if video is None else None
    try:
        source = video or opened
        if source is None or source.fingerprint() != record["video"]["sha256"]:
            raise OutputError(
                f"the video is not the one that was labelled in {folder}",
                remedy="put the video back where it was, unchanged, or carry the labels again",
            )
        if encoder is None:
            # Where the folder came from is not known: it must not choose what is asked of the network.
            with offline():
                encoder = load_encoder(origin["encoder"], device=origin["device"], precision=origin["precision"])
        if encoder.sha256 != record["encoder"]["sha256"]:
            raise OutputError(
                f"the encoder {encoder.name} is not the one that carried the labels in {folder}",
                remedy="give the same weights, or carry the labels again",
            )
        yield Correcting(source, encoder)
    finally:
        if opened is not None:
            opened.close()


def _check_kind(folder: Path, record: Mapping[str, Any], corrections: Mapping[int, Labels]) -> None:
    kind = record["labels"]["kind"]
    if kind in ONE_FRAME_KINDS:
        raise LabelError(
            f"the labels in {folder} are {kind}, which refer to one frame only",
            remedy="carry them again from a better frame",
        )
    for index, labels in corrections.items():
        if labels.kind != kind:
            raise LabelError(
                f"frame {index} was given {labels.kind} but the labels in {folder} are {kind}",
                remedy=f"draw {kind}",
            )
