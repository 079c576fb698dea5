"""Corrections: frames are annotated again, the frames they control are propagated again, and nothing else is touched.

A correction controls the frames up to the nearest annotated frames on either side, which stay as they are. Labels are
propagated from all of them: from the corrections between two such frames, together and once, and from the labels of the
frames at both ends. What was there before is kept in OUT/history/NUMBER, so that the corrections given together can be
undone, to the byte. Corrections that are interrupted half-way are taken back by the next command.
"""

import csv
import filecmp
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.behind import Behind
from timecycle.errors import LabelError, OutputError
from timecycle.files import clear_parts, lock, make_folder, write_text
from timecycle.labels import KINDS, Keypoints, Labels, Masks, Parts
from timecycle.model.encoder import Encoder
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
from timecycle.propagation.propagate import LabelledFrame, count_steps, fit_labels, propagate, space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.workfolder import WorkFolder
from timecycle.review.judged import read_run
from timecycle.review.meaning import as_in_run
from timecycle.review.queue import neighbours_of
from timecycle.review.redraw import Draw, Redraw
from timecycle.runs import ONE_FRAME_KINDS, Progress, annotation_sha256, annotations_record
from timecycle.video import Video, VideoPart, open_video

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
    read_run(folder)
    with lock(folder):
        recover(folder)
        record = read_run(folder)
        with _sources(folder, record, video, encoder) as sources:
            fitted = fit_labels(sources.video, corrections)
            _check_kind(folder, record, corrections)
            known = partial(_known, folder, record, sources.video.numbers)
            meant = as_in_run(fitted, known, record["labels"]["frames"], sources.video.numbers, object_id=object_id)
            return _correct(folder, record, meant, sources, progress)


def undo(folder: Path) -> list[int]:
    """Take the last corrections back, all that were given together, to the byte; returns the frames they were made on.

    Corrections that were interrupted half-way count as the last.
    """
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


def recover(folder: Path) -> list[int] | None:
    """Clear what a killed process left: take its corrections back. Returns the frames that were being corrected."""
    clear_parts(folder)
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

    frames: Sequence[int]
    numbers: Sequence[int]  # of the frames that were propagated again
    folder: Path


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
    annotated, numbers = set(record["labels"]["frames"]), sources.video.numbers
    known = partial(_known, folder, record, numbers)
    given = {
        index: _over(labels, known(index)) if index in annotated else labels for index, labels in corrections.items()
    }
    config = PropagateConfig(**record["config"])
    parts = intervals_of(sources.video, given, known, annotated, config)
    aside = make_folder(folder / _ASIDE)
    written = _Written(aside, kind, names, record.get("outputs", {}).get("label_files", "palette"))
    redraw = Redraw(folder, aside, sources.video, kind, annotated | given.keys())
    done, total = count(1), sum(part.steps for part in parts)
    for part in parts:
        frames = propagate_interval(
            part,
            encoder=sources.encoder,
            config=config,
            trust=TrustConfig(**record["trust"]) if record["trust"] else None,
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
    entry = _keep(folder, sorted(given), [numbers[index] for index in again], kind)
    changed = _move(aside, folder)
    if kind is Keypoints:
        collect_keypoints(folder / "labels", folder / "keypoints.csv", numbers)
    for name in REVIEW_FILES:
        (folder / name).unlink(missing_ok=True)
    write_record(folder, {**record, "labels": annotations_record(kind, digests), "corrections": int(entry.name)})
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


def _digests(record: Mapping[str, Any], known: Callable[[int], Labels]) -> dict[int, str]:
    """The checksums of the annotations so far; of runs that recorded none, of the labels on the annotated frames."""
    recorded = record["labels"].get("sha256_by_frame", {})
    return {
        index: recorded.get(str(index)) or annotation_sha256(_complete(known(index)))
        for index in record["labels"]["frames"]
    }


@dataclass(frozen=True, eq=False)
class Interval:
    """Frames that some corrections control, in a part of the video that ends with the annotated frames around them."""

    corrected: Sequence[int]
    first: int
    last: int
    video: VideoPart
    start: int  # of the part
    annotations: Mapping[int, Labels]  # counted from the start of the part
    steps: int  # over both passes


def intervals_of(
    video: Video,
    corrections: Mapping[int, Labels],
    known: Callable[[int], Labels],
    annotated: Set[int],
    config: PropagateConfig,
) -> list[Interval]:
    """What corrections control: those between the same annotated frames that stay are together in one interval.

    `known` gives the labels that a frame has now. Where labels are propagated forward only, a correction changes
    nothing before it.
    """
    together: dict[tuple[int, int], list[int]] = {}
    for index in sorted(corrections):
        ends = neighbours_of(index, set(annotated) - corrections.keys(), len(video))
        together.setdefault(ends, []).append(index)

    def interval(before: int, after: int, corrected: Sequence[int]) -> Interval:
        forward = config.direction == "forward"
        first, last = (corrected[0] if forward else max(before + 1, 0)), min(after - 1, len(video) - 1)
        start, stop = max(before, 0), min(after if forward else after + 1, len(video))
        given = {index - start: corrections[index] for index in corrected}
        given |= {end - start: _complete(known(end)) for end in (before, after) if start <= end < stop}
        part = VideoPart(video, start, stop)
        return Interval(corrected, first, last, part, start, given, count_steps(part, given, config))

    return [interval(*ends, corrected) for ends, corrected in together.items()]


def propagate_interval(
    interval: Interval,
    *,
    encoder: Encoder,
    config: PropagateConfig,
    trust: TrustConfig | None,
    work: WorkFolder | None = None,
    maps: PassMaps | None = None,
    on_step: Callable[[], None] | None = None,
) -> Iterator[LabelledFrame]:
    """The frames that corrections control, from the annotations among and around them."""
    frames = propagate(
        interval.video,
        interval.annotations,
        encoder=encoder,
        config=config,
        trust=trust,
        work=work,
        maps=maps,
        on_step=on_step,
    )
    for frame in frames:
        if interval.first <= frame.index + interval.start <= interval.last:
            yield replace(frame, index=frame.index + interval.start)


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
    return sorted(path.parent for path in (folder / _HISTORY).glob(f"*/{_ENTRY}"))


def _read_entry(entry: Path) -> Correction:
    about = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))
    return Correction(about["frames"], about["numbers"], entry)


def _keep(folder: Path, corrected: Sequence[int], numbers: Sequence[int], kind: type[Labels]) -> Path:
    """Copy everything that corrections will replace into a new entry of the history."""
    entry = folder / _HISTORY / f"{len(_entries(folder)) + 1:04d}"
    make_folder(entry)
    for name in (*FILES, *REVIEW_FILES, "run.json"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, entry / name)
    for place in ("labels", "confidence"):
        make_folder(entry / place)
        for number in numbers:
            inside = folder / place
            file = label_path(inside, number, kind) if place == "labels" else confidence_path(inside, number)
            if file.is_file():
                shutil.copyfile(file, entry / place / file.name)
    about = {"frames": list(corrected), "numbers": list(numbers)}
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
    _remove_empty_history(folder)
    return list(about.frames)


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
