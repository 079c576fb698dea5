"""Convert label files between the formats of many tools."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from timecycle.errors import OutputError
from timecycle.extras import install_command, is_installed
from timecycle.files import copy_file, make_folder, sync_folder, writing
from timecycle.formats import matte
from timecycle.formats.registry import FORMATS, find_format, format_for, read_file, recognise, write_file
from timecycle.formats.video_labels import LazyLabels, VideoFacts, VideoLabels, facts_of
from timecycle.formats.youtube_vos import meta_file
from timecycle.inputs import VideoLike, opened
from timecycle.labels import Labels
from timecycle.progress import Bar, ProgressLike, bars_for
from timecycle.runs.exporting import labels_of_run
from timecycle.runs.folder import OutputFolder, is_run
from timecycle.runs.opened import Run


@dataclass(frozen=True)
class Conversion:
    """What was converted: the formats by name, the kind of labels, and how many frames have labels."""

    source_format: str
    target_format: str
    kind: str
    frames: int
    loses: str  # what the target's format cannot hold


@dataclass(frozen=True)
class TargetFormat:
    """A way to write labels: a format and the suffix of its files, which is empty for a folder.

    install: the command that installs what it needs; None if everything is there.
    """

    name: str
    title: str
    suffix: str
    loses: str
    install: str | None


def target_formats(kind: str) -> list[TargetFormat]:
    """List the formats that labels of a kind can be written in: of each the files that `propagate --format` writes.

    Files of another suffix are listed too where they are of another kind, as DeepLabCut's HDF5 beside its CSV.
    """
    listed = []
    for one in FORMATS.values():
        if one.write is None or kind not in one.kinds:
            continue
        modules = {one.suffixes[0] if one.suffixes else "": one.module, **one.modules_by_suffix}
        for suffix, module in modules.items():
            missing = module is not None and one.extra is not None and not is_installed(module)
            install = install_command(one.extra) if missing and one.extra is not None else None
            listed.append(TargetFormat(one.name, one.title, suffix, one.loses, install))
    return listed


def convert(
    source: str | Path | Run,
    target: str | Path,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    video: VideoLike | None = None,
    overwrite: bool = False,
    progress: ProgressLike = None,
) -> Conversion:
    """Convert labels from one format to another.

    source: a file or folder of labels in any format, or a run or its output folder.
    target: the file or folder to write; its suffix says the format unless `target_format` does.
    source_format, target_format: names of formats, as "coco", "cvat" or "yolo".
    video: the video of the labels: they must fit it, and formats that need its size, rate or frames take them from it.
    overwrite: replace an existing target.
    progress: True for a bar, or a function called with (frames read, all frames); some formats read all twice.
    """
    source, target = source.folder if isinstance(source, Run) else Path(source), Path(target)
    with ExitStack() as stack:
        facts = None if video is None else facts_of(stack.enter_context(opened(video)))
        if facts is None and target.suffix.lower() in matte.FORMAT.suffixes and is_run(source):
            facts = facts_of(stack.enter_context(OutputFolder(source).open_video()))  # a matte shows the video
        labels, read_as = _read(source, facts, source_format)
        chosen = format_for(target, labels.kind.kind) if target_format is None else find_format(target_format)
        _check_target(source, target, overwrite=overwrite)
        make_folder(target.parent)
        bar = stack.enter_context(bars_for(progress))(f"writing {chosen.name}")
        with _replacing(target) as new:
            write_file(_counted(labels, bar), new, name=chosen.name)
        return Conversion(read_as, chosen.name, labels.kind.kind, len(labels.labels), chosen.loses)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a path to write to, which replaces an existing folder at the end; on any failure the old folder stays.

    The path has the names of the target and of its parent, by which formats know their layout. One of them has a
    file above both, meta.json, which is replaced with the folder.
    """
    if not target.is_dir():
        yield target
        return
    target = target.resolve()  # the folder and not a link to it
    meta = meta_file(target)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    new, old = beside / target.parent.name / target.name, beside / "old"
    is_replaced = False
    try:
        with writing(target):
            make_folder(new.parent)
            if meta is not None and meta.is_file():
                copy_file(meta, beside / meta.name)
        yield new
        with writing(target):
            target.rename(old)
            new.rename(target)
            is_replaced = True
            if meta is not None and (beside / meta.name).is_file():
                copy_file(beside / meta.name, meta)
            sync_folder(target.parent)
    finally:
        # Stopped between the two renames. Later another process may have moved the target away, to replace it too.
        if not is_replaced and old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(beside, ignore_errors=True)


def _read(source: Path, facts: VideoFacts | None, name: str | None) -> tuple[VideoLabels, str]:
    if name is None and is_run(source):
        folder = OutputFolder(source)
        folder.refuse_links()
        labels = labels_of_run(folder)
        return (labels if facts is None else labels.on_video(facts)), "run"
    found = find_format(name) if name is not None else recognise(source)
    return read_file(source, facts, name=found.name if found else None), found.name if found else ""


def _counted(labels: VideoLabels, bar: Bar) -> VideoLabels:
    """Return labels that report how many frames have been read of them."""
    counts = {index: count for count, index in enumerate(labels.labels, 1)}

    def read(index: int) -> Labels:
        bar(counts[index], len(counts))
        return labels.labels[index]

    return replace(labels, labels=LazyLabels(list(counts), read))


def _check_target(source: Path, target: Path, *, overwrite: bool) -> None:
    """Refuse to replace files that nobody asked to replace, and never the source itself."""
    if target.exists() and target.resolve() == source.resolve():
        raise OutputError(f"{target} is the file to convert itself", remedy="give another name for the result")
    if source.is_dir() and target.resolve().is_relative_to(source.resolve()):
        raise OutputError(f"{target} lies in the folder to convert", remedy="give a path outside of it")
    if target.exists() and source.resolve().is_relative_to(target.resolve()):
        raise OutputError(f"{source} lies in {target}, which would be replaced", remedy="give another path")
    used = any(target.iterdir()) if target.is_dir() else target.exists()
    if used and not overwrite:
        raise OutputError(f"{target} already exists", remedy="choose another name, or pass --overwrite")
