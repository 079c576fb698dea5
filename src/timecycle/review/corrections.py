"""Corrections: a frame is drawn anew, the frames it controls are carried again, and nothing else is touched.

A correction controls the frames up to the next drawings on either side. These are carried from three sides: from the
correction, and from the labels of the two frames at the ends, which stay as they are. What was there before is kept in
OUT/history/NUMBER, so that every correction can be undone to the byte. One that is killed half-way is taken back by the
next command.
"""

import csv
import filecmp
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import LabelError, OutputError
from timecycle.files import clear_parts, lock, make_folder, write_text
from timecycle.labels import KINDS, Keypoints, Labels, Masks, Parts
from timecycle.model.encoder import Encoder
from timecycle.model.registry import load_encoder
from timecycle.outputs import (
    FILES,
    REVIEW_FILES,
    Show,
    csv_lines,
    frame_row,
    label_path,
    object_rows,
    write_confidence,
    write_record,
    write_summaries,
)
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.propagate import LabelledFrame, check_labels, propagate, space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.judged import read_run
from timecycle.review.queue import neighbours_of
from timecycle.runs import Progress
from timecycle.video import Video, VideoPart, VideoWriter, open_video

_HISTORY = "history"
_ASIDE = ".correction"
_ENTRY = "entry.json"  # written last: an entry that has it is whole


@dataclass(frozen=True)
class Corrected:
    """The frames that were carried again, and which of them differ from what they were."""

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
    progress: Progress | None = None,
) -> list[Corrected]:
    """Draw frames of a finished run anew, one after the other. Video and encoder are those of the run."""
    read_run(folder)
    with lock(folder):
        recover(folder)
        record = read_run(folder)
        with _sources(folder, record, video, encoder) as sources:
            check_labels(sources.video, corrections)
            _check_kind(folder, record, corrections)
            return [_correct_one(folder, index, corrections[index], sources, progress) for index in sorted(corrections)]


def undo(folder: Path) -> int:
    """Take the last correction back, to the byte; returns the frame it was made on. One that was killed half-way counts
    as the last."""
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


def recover(folder: Path) -> int | None:
    """Finish what a killed process left: take its correction back. Returns the frame that was being corrected."""
    clear_parts(folder)
    shutil.rmtree(folder / _ASIDE, ignore_errors=True)
    entries = _entries(folder)
    if not entries or read_run(folder).get("corrections", 0) >= int(entries[-1].name):
        return None
    return _restore(folder, entries[-1])


@dataclass(frozen=True)
class Correction:
    """One that was made: the frame that was drawn, the frames that were carried again, and what they were before."""

    index: int
    first: int
    last: int
    folder: Path


def history(folder: Path) -> list[Correction]:
    """The corrections of a run, the oldest first."""
    return [
        Correction(**json.loads((entry / _ENTRY).read_text(encoding="utf-8")), folder=entry)
        for entry in _entries(folder)
    ]


def _correct_one(folder: Path, index: int, labels: Labels, sources: Correcting, progress: Progress | None) -> Corrected:
    record = read_run(folder)
    kind = KINDS[record["labels"]["kind"]]
    drawings = set(record["labels"]["frames"])

    def known(frame: int) -> Labels:
        return kind.read(label_path(folder / "labels", frame, kind))

    again = carry_again(
        sources.video,
        index,
        labels,
        known,
        drawings,
        encoder=sources.encoder,
        config=PropagateConfig(**record["config"]),
        trust=TrustConfig(**record["trust"]) if record["trust"] else None,
    )
    aside = folder / _ASIDE
    rows = _Rows({}, {})
    for done, frame in enumerate(again.frames, 1):
        _write(aside, frame, kind, rows)
        if progress is not None:
            progress(done, again.last - again.first + 1)
    entry = _keep(folder, index, range(again.first, again.last + 1), kind)
    changed = _move(aside, folder)
    _replace_rows(folder / "frames.csv", rows.frames)
    _replace_rows(folder / "objects.csv", rows.objects)
    _draw_again(folder, sources.video, kind)
    for name in REVIEW_FILES:
        (folder / name).unlink(missing_ok=True)
    record["labels"]["frames"] = sorted(drawings | {index})
    write_record(folder, {**record, "corrections": int(entry.name)})
    return Corrected(again.first, again.last, changed)


@dataclass(frozen=True, eq=False)
class Again:
    """The frames that a correction controls, carried again."""

    first: int
    last: int
    frames: Iterator[LabelledFrame]


def carry_again(
    video: Video,
    index: int,
    labels: Labels,
    known: Callable[[int], Labels],
    drawings: Set[int],
    *,
    encoder: Encoder,
    config: PropagateConfig,
    trust: TrustConfig | None,
) -> Again:
    """Carry a correction as far as it counts; `known` gives the labels that a frame has now.

    Where labels go forward only, a correction changes nothing before it.
    """
    count, forward = len(video), config.direction == "forward"
    before, after = neighbours_of(index, set(drawings), count)
    first, last = (index if forward else max(before + 1, 0)), min(after - 1, count - 1)
    start, stop = max(before, 0), min(after if forward else after + 1, count)
    given = {index - start: _over(labels, known(index)) if index in drawings else labels}
    for end in (before, after):
        if start <= end < stop:
            given[end - start] = _complete(known(end))
    part = propagate(VideoPart(video, start, stop), given, encoder=encoder, config=config, trust=trust)
    frames = (replace(frame, index=frame.index + start) for frame in part)
    return Again(first, last, (frame for frame in frames if first <= frame.index <= last))


def _over(new: Labels, old: Labels) -> Labels:
    """A frame that was drawn before, drawn anew: objects that are not on the new drawing stay as they were."""
    if isinstance(new, Keypoints) and isinstance(old, Keypoints):
        more = [i for i, name in enumerate(old.names) if name not in new.names]
        return Keypoints(
            new.names + tuple(old.names[i] for i in more),
            np.concatenate([new.xy, old.xy[more]]),
            np.concatenate([new.visible, old.visible[more]]),
        )
    kept: Labels = space_of({0: old, 1: new}).put_back(new, old)
    return _complete(kept)


def _complete(labels: Labels) -> Labels:
    """Labels that speak for every object: they are all that is known of their frame."""
    return replace(labels, complete=True) if isinstance(labels, Masks | Parts) else labels


@dataclass(frozen=True)
class _Rows:
    """New lines of the two tables, by frame."""

    frames: dict[int, str]
    objects: dict[int, str]


def _write(aside: Path, frame: LabelledFrame, kind: type[Labels], rows: _Rows) -> None:
    """Keep a frame aside until all of them are there."""
    frame.labels.write(label_path(make_folder(aside / "labels"), frame.index, kind))
    rows.frames[frame.index] = frame_row(frame)
    if frame.confidence is not None:
        write_confidence(aside, frame.index, frame.confidence)
        rows.objects[frame.index] = object_rows(frame.index, frame.confidence)


def _move(aside: Path, folder: Path) -> list[int]:
    """Put the new files in the place of the old; returns the frames whose labels differ from what they were."""
    changed = []
    for place in ("labels", "confidence"):
        for file in sorted((aside / place).glob("*")):
            target = make_folder(folder / place) / file.name
            if place == "labels" and not filecmp.cmp(file, target, shallow=False):
                changed.append(int(file.stem))
            file.replace(target)
    shutil.rmtree(aside)
    return changed


def _replace_rows(path: Path, fresh: Mapping[int, str]) -> None:
    header, _, rest = path.read_text(encoding="utf-8").partition("\n")
    kept: dict[int, str] = {}
    for row in csv.reader(io.StringIO(rest)):
        kept[int(row[0])] = kept.get(int(row[0]), "") + csv_lines([row])
    kept |= fresh
    write_text(path, f"{header}\n" + "".join(kept[index] for index in sorted(kept)))


def _draw_again(folder: Path, video: Video, kind: type[Labels]) -> None:
    """The film, the sheet and the table of points, from the labels as they are now."""
    with VideoWriter(folder / "overlay.mp4", video.size, video.time_base) as movie:
        show = Show(movie, len(video))
        for frame in video.frames():
            labels = kind.read(label_path(folder / "labels", frame.index, kind))
            show.add(LabelledFrame(frame.index, frame.pts, frame.time_seconds, frame.image, labels, "carried"))
    write_summaries(folder, show, kind, len(video))


# History


def _entries(folder: Path) -> list[Path]:
    return sorted(path.parent for path in (folder / _HISTORY).glob(f"*/{_ENTRY}"))


def _keep(folder: Path, index: int, frames: Sequence[int], kind: type[Labels]) -> Path:
    """Copy everything a correction will replace into a new entry of the history."""
    number = len(_entries(folder)) + 1
    entry = folder / _HISTORY / f"{number:04d}"
    shutil.rmtree(entry, ignore_errors=True)
    make_folder(entry)
    for name in (*FILES, *REVIEW_FILES, "run.json"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, entry / name)
    for place, suffix in (("labels", kind.suffix), ("confidence", ".png")):
        make_folder(entry / place)
        for frame in frames:
            file = folder / place / f"{frame:05d}{suffix}"
            if file.is_file():
                shutil.copyfile(file, entry / place / file.name)
    about = {"index": index, "first": frames[0], "last": frames[-1]}
    write_text(entry / _ENTRY, json.dumps(about, indent=2) + "\n")
    return entry


def _restore(folder: Path, entry: Path) -> int:
    """Put everything back, run.json last; an undoing that is killed can be done again. Returns the corrected frame."""
    about = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))
    for place in ("labels", "confidence"):
        for file in sorted((folder / place).glob("*")):
            if about["first"] <= int(file.stem) <= about["last"] and not (entry / place / file.name).is_file():
                file.unlink()
        for file in sorted((entry / place).iterdir()):
            shutil.copyfile(file, folder / place / file.name)
    for name in (*REVIEW_FILES, *FILES):
        if (entry / name).is_file():
            shutil.copyfile(entry / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    write_text(folder / "run.json", (entry / "run.json").read_text(encoding="utf-8"))
    (entry / _ENTRY).unlink()  # from here on it is no entry
    shutil.rmtree(entry)
    if not any((folder / _HISTORY).iterdir()):
        (folder / _HISTORY).rmdir()
    index: int = about["index"]
    return index


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
    opened = open_video(origin["video"], fps=origin["fps"]) if video is None else None
    try:
        source = video or opened
        if source is None or source.fingerprint() != record["video"]["sha256"]:
            raise OutputError(
                f"the video is not the one that was labelled in {folder}",
                remedy="put the video back where it was, unchanged, or carry the labels again",
            )
        if encoder is None:
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
    if kind in ("texture", "coordinates"):
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
