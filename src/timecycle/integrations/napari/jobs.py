"""What the widget does off the GUI thread: propagate, correct and undo, through the API."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import timecycle as tc
from timecycle.errors import LabelError, TimecycleError
from timecycle.integrations.remedies import without_commands

PRESETS = ("fast", "default", "best")
SUGGESTIONS = 10

Report = Callable[[int, int], None]  # steps done, steps in all; raises CancelledError once the person wants to stop


class CancelledError(Exception):
    """The person cancelled the work."""


@dataclass(frozen=True, eq=False)
class RunState:
    """What the widget shows of a run: its folder, the confidence of its frames, and the frames to check first."""

    folder: Path
    confidence: list[float | None]  # by frame; None where it is not known
    annotated: list[int]
    suggestions: list[Any]  # with index, confidence and reason; the best first
    corrected: bool  # whether there is a correction to undo
    note: str = ""  # why there are no suggestions


@dataclass(frozen=True, eq=False)
class Result:
    """A run after some work, with the labels to show: of the frames that changed, or of all frames for points."""

    state: RunState
    labels: "Mapping[int, tc.Labels]"
    message: str


def propagate(
    video: "tc.Video",
    labels: "Mapping[int, tc.Labels]",
    folder: Path,
    *,
    preset: str,
    resume: bool = False,
    overwrite: bool = False,
    report: Report,
) -> Result:
    """Propagate annotations through a video, which is closed at the end, into a new output folder."""
    with video:
        run = tc.propagate_to_folder(
            video,
            labels,
            folder,
            encoder=_encoder(),
            config=preset,
            resume=resume,
            overwrite=overwrite,
            progress=report,
        )
    state = state_of(run)
    annotated = "1 annotated frame" if len(labels) == 1 else f"{len(labels)} annotated frames"
    return Result(state, _labels(run, range(len(run))), f"propagated {annotated} through {len(run)} frames")


def correct(video: "tc.Video | str", corrections: "Mapping[int, tc.Labels]", folder: Path, *, report: Report) -> Result:
    """Propagate again the frames that depend on corrected ones; the video is closed at the end.

    A file is opened as it was for the run, with its frame rate.
    """
    run = tc.Run(folder)
    encoder = None if run.record.get("origin") else _encoder()  # None: the one that the record names
    with nullcontext() if isinstance(video, str) else video:
        intervals = tc.correct(run, corrections, video=video, encoder=encoder, progress=report)
    again = sorted({index for one in intervals for index in range(one.first, one.last + 1)})
    changed = sorted({index for one in intervals for index in one.changed} | set(corrections))
    message = f"propagated frames {again[0]} to {again[-1]} again; {len(changed)} of {len(run)} frames changed"
    return Result(state_of(run), _labels(run, changed), message)


def undo(folder: Path, *, report: Report) -> Result:
    """Take the last corrections back."""
    frames = tc.undo(folder)
    run = tc.Run(folder)
    message = f"took the correction of {', '.join(f'frame {index}' for index in frames)} back"
    return Result(state_of(run), _labels(run, range(len(run))), message)


def open_run(folder: str | Path) -> "tc.Run":
    """Open the folder of a run whose labels a layer can show."""
    run = tc.Run(folder)
    kind = run.record["labels"]["kind"]
    if kind not in (tc.Masks.kind, tc.Keypoints.kind):
        raise LabelError(
            f"the labels in {run.folder} are {kind}, which no layer of napari can show",
            remedy="open a run of masks or keypoints, or the overlay video of this one",
        )
    return run


def state_of(run: "tc.Run") -> RunState:
    """Read the confidence of a run and rank the frames to check."""
    confidence = [frame.confidence for frame in run.frames]
    annotated = [frame.index for frame in run.frames if frame.annotated]
    corrected = bool(run.record.get("corrections"))
    try:
        return RunState(run.folder, confidence, annotated, list(tc.check(run, count=SUGGESTIONS).queue), corrected)
    except TimecycleError as error:  # a run without confidence is a result all the same
        return RunState(run.folder, confidence, annotated, [], corrected, str(without_commands(error)))


def free_folder(video: str | None, name: str) -> Path:
    """Propose a new output folder: beside the file of the video, or in the home folder if it has no file."""
    stem = "".join(one if one.isalnum() else "_" for one in name)
    base = Path.home() / stem if video is None else Path(video)
    first = base.with_name(f"{base.stem}_timecycle")
    following = (first.with_name(f"{first.name}_{number}") for number in count(2))
    return first if not first.exists() else next(one for one in following if not one.exists())


def _labels(run: "tc.Run", frames: Any) -> "dict[int, tc.Labels]":
    """Read the labels of some frames; of points those of all frames, as a Points layer has one array for all."""
    keypoints = run.record["labels"]["kind"] == tc.Keypoints.kind
    return {index: run.labels[index] for index in (range(len(run)) if keypoints else frames)}


@cache
def _encoder() -> "tc.Encoder":
    return tc.load_encoder()
