"""All formats: find one by its name, or by what a file holds; read and write files."""

from pathlib import Path

from timecycle.errors import LabelError, SettingsError
from timecycle.formats import (
    coco,
    cvat,
    deeplabcut,
    indexed_png,
    matte,
    points_csv,
    sleap,
    tap_vid,
    tiff_stack,
    yolo,
    youtube_vis,
)
from timecycle.formats.format import Format
from timecycle.formats.video_labels import VideoFacts, VideoLabels
from timecycle.labels.file import check_label_file

# In the order in which they are tried on a file.
FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        indexed_png,
        points_csv,
        coco,
        youtube_vis,
        cvat,
        yolo,
        deeplabcut,
        tiff_stack,
        sleap,
        tap_vid,
        matte,
    )
}
NATIVE = ("png", "csv")  # read by `read_labels` as well, which also takes single files


def find_format(name: str) -> Format:
    """Return the format of this name."""
    if name not in FORMATS:
        raise SettingsError(f"there is no format {name[:80]!r}", remedy=f"choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def recognise(path: Path) -> Format | None:
    """Return the format that a file or folder is of, or None."""
    suffix = path.suffix.lower()
    for one in FORMATS.values():
        if one.read is None or one.is_folder != path.is_dir() or (not one.is_folder and suffix not in one.suffixes):
            continue
        try:
            if one.recognises(path):
                return one
        except (OSError, ValueError):
            continue
    return None


def read_file(path: Path, video: VideoFacts | None = None, *, name: str | None = None) -> VideoLabels:
    """Read the labels of a file or folder, of the format `name` or of the one it is recognised as.

    video: what is known of the video, which names frames; labels that do not fit it are refused.
    """
    if not path.is_dir():
        check_label_file(path)
    found = find_format(name) if name is not None else recognise(path)
    if found is None:
        readable = ", ".join(one.name for one in FORMATS.values() if one.read is not None)
        raise LabelError(f"{path} is of no known format", remedy=f"name its format with --from: {readable}")
    if found.read is None:
        raise LabelError(f"{found.title} can be written but not read", remedy="give the labels in another format")
    labels = found.read(path, video or VideoFacts())
    return labels if video is None else labels.on_video(video)


def format_for(path: Path, kind: str) -> Format:
    """Return the format to write by the suffix of a path; a path without a suffix is a folder."""
    fitting = [one for one in FORMATS.values() if one.write is not None and kind in one.kinds]
    suffix = path.suffix.lower()
    chosen = [one for one in fitting if (suffix in one.suffixes if suffix else one.is_folder)]
    if not chosen:
        raise SettingsError(
            f"the name {path.name!r} does not say which format of {kind} to write",
            remedy=f"name the format with --to: {', '.join(one.name for one in fitting)}",
        )
    return chosen[0]


def write_file(labels: VideoLabels, path: Path, *, name: str | None = None) -> Format:
    """Write labels to a file or folder in the format `name`, or in the one of its suffix; returns the format."""
    found = find_format(name) if name is not None else format_for(path, labels.kind.kind)
    if found.write is None:
        raise SettingsError(f"{found.title} can be read but not written", remedy="choose another format with --to")
    found.check_kind(labels)
    found.write(labels, path)
    return found
