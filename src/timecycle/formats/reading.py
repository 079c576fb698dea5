"""Read the labels that a command was given, whether they are our own files or those of another tool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timecycle.formats.format import Format
from timecycle.formats.registry import NATIVE, find_format, read_file, recognise
from timecycle.formats.video_labels import VideoFacts, VideoLabels
from timecycle.formats.youtube_vos import read_names
from timecycle.labels import Keypoints, Labels, read_labels
from timecycle.labels.file import frames_in_words, note
from timecycle.labels.reading import path_of


@dataclass(frozen=True)
class ReadLabels:
    """Labels by frame index, and the names of their objects."""

    labels: dict[int, Labels]
    names: Mapping[str, str] = field(default_factory=dict)


def outside_format(arguments: Sequence[str | Path], name: str | None = None) -> Format | None:
    """Return the format of a single file or folder of another tool; None for our own files.

    name: the format, if the user says which.
    """
    if len(arguments) != 1:
        return None
    path = Path(arguments[0])
    if name is not None:
        found: Format | None = find_format(name)
    else:
        try:
            found = recognise(path) if path.exists() else None
        except OSError:  # a name that is too long for the system
            return None
    return None if found is None or found.name in NATIVE else found


def read_any(
    arguments: Sequence[str | Path],
    video: VideoFacts,
    *,
    kind: str | None = None,
    exhaustive: bool = False,
    together: bool = True,
    every_frame: bool = False,
) -> ReadLabels:
    """Read labels as `read_labels` does, or a single file or folder in any format.

    every_frame: keep frames of another tool's file without any object. Otherwise they are left out, unless labels are
        `exhaustive`: such files list frames that nobody looked at. Of a file that tells annotated frames from
        interpolated ones, only the annotated ones are read.
    """
    found = outside_format(arguments)
    if found is None:
        size = video.size if together else None
        labels = read_labels(
            arguments, kind=kind, exhaustive=exhaustive, numbers=video.numbers, size=size, together=together
        )
        return ReadLabels(labels, read_names([path_of(argument) for argument in arguments]))
    read = read_file(Path(arguments[0]), video, name=found.name)
    labels = dict(read.labels) if every_frame else _annotated(read, keep_empty=exhaustive)
    if exhaustive:
        labels = {index: one.as_exhaustive() for index, one in labels.items()}
    return ReadLabels(labels, read.names)


def _annotated(read: VideoLabels, *, keep_empty: bool) -> dict[int, Labels]:
    """Return the labels of the frames that a person annotated, as far as the file tells."""
    keyframes = [index for index, objects in read.known.items() if any(known.annotated for known in objects.values())]
    labels = {index: read.labels[index] for index in keyframes or read.labels if index in read.labels}
    if keyframes and len(keyframes) < len(read.labels):
        note(f"{read.video.name}: only its {len(keyframes)} annotated frames are used, of {len(read.labels)}")
    empty = [index for index, one in labels.items() if one.is_empty()]
    if not empty or keep_empty or len(empty) == len(labels):
        return labels
    if not issubclass(read.kind, Keypoints):
        note(
            f"{read.video.name} shows nothing on {frames_in_words(map(read.video.number, empty))}: they count as not "
            "annotated; with --exhaustive the objects are absent there"
        )
    return {index: one for index, one in labels.items() if index not in empty}
