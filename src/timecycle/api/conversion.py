"""Convert label files between the formats of many tools."""

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from timecycle.errors import OutputError
from timecycle.extras import install_command, is_installed
from timecycle.files import clear_unfinished, lock, make_folder, sync_folder, write_text, writing
from timecycle.formats import matte
from timecycle.formats.format import Format
from timecycle.formats.registry import FORMATS, find_format, format_for, read_file, recognise, write_file
from timecycle.formats.video_labels import LazyLabels, VideoFacts, VideoLabels, facts_of
from timecycle.formats.youtube_vos import merged_meta, meta_file
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
        _check_target(source, target, chosen, overwrite=overwrite)
        make_folder(target.parent)
        bar = stack.enter_context(bars_for(progress))(f"writing {chosen.name}")
        with _replacing(target) if chosen.is_folder else nullcontext(target) as new:  # files are replaced when written
            write_file(_counted(labels, bar), new, name=chosen.name)
        return Conversion(read_as, chosen.name, labels.kind.kind, len(labels.labels), chosen.loses)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a folder to write to, which replaces the target at the end; on any failure the target stays as it was.

    The folder has the names of the target and of its parent, by which formats know their layout. One of them has a
    file above both, meta.json, in which the entry of the video is replaced with the folder.
    """
    target = target.resolve()  # the folder and not a link to it
    meta = meta_file(target)
    is_new = not target.exists()
    with _work_folder(target) as work:
        top, old = work / "new", work / "old"
        new = top / target.parent.name / target.name
        with writing(target):
            new.mkdir(parents=True)
        yield new
        is_named = meta is not None and (top / meta.name).is_file()
        entry = merged_meta(meta, top / meta.name) if meta is not None and is_named else None
        with writing(target):
            if work.parent == target:
                old.mkdir()
                before = [one for one in target.iterdir() if not _is_temporary(one, target)]
                moves = [(one, old / one.name) for one in before]
                moves += [(one, target / one.name) for one in new.iterdir()]
            else:
                moves = [(new, target)] if is_new else [(target, old), (new, target)]
            _rename_all(moves)
            shutil.rmtree(work, ignore_errors=True)
            sync_folder(work.parent)
        if meta is not None and entry is not None:
            write_text(meta, entry)


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """Make a temporary folder beside a target. Where that cannot be, or the target is mounted, it lies in the target.

    Then the contents of the target are replaced and not the target, so other processes must wait for the end.
    """
    name = f".{target.name}.{secrets.token_hex(8)}.part"
    with ExitStack() as stack:
        work = target.with_name(name)
        with writing(target):
            try:
                is_beside = not target.is_mount()
                if is_beside:
                    work.mkdir()
            except OSError:  # the folder above belongs to others
                if not target.is_dir():
                    raise
                is_beside = False
        if not is_beside:
            stack.enter_context(lock(target))
            work = target / name
            with writing(target):
                clear_unfinished(target, target.name)
                work.mkdir()
        stack.callback(_remove_work, work)
        yield work


def _remove_work(work: Path) -> None:
    """Remove a temporary folder, but never what of the target could not be put back."""
    old = work / "old"
    if not (any(old.iterdir()) if old.is_dir() else old.exists()):
        shutil.rmtree(work, ignore_errors=True)


def _is_temporary(path: Path, target: Path) -> bool:
    """Return whether a path in a target is what a conversion, perhaps a killed one, needs while it runs."""
    return path.name == ".lock" or (path.name.startswith(f".{target.name}.") and path.suffix == ".part")


def _rename_all(moves: Sequence[tuple[Path, Path]]) -> None:
    """Rename paths one after the other; on any failure those before it get their names back."""
    try:
        for source, to in moves:
            source.rename(to)
    except BaseException:
        # Later another process may have moved the target away, to replace it too.
        for source, to in reversed(moves):
            if to.exists() and not source.exists():
                to.rename(source)
        raise


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


def _check_target(source: Path, target: Path, chosen: Format, *, overwrite: bool) -> None:
    """Refuse to replace files that nobody asked to replace, and never the source itself."""
    if target.exists() and target.resolve() == source.resolve():
        raise OutputError(f"{target} is the file to convert itself", remedy="give another name for the result")
    if source.is_dir() and target.resolve().is_relative_to(source.resolve()):
        raise OutputError(f"{target} lies in the folder to convert", remedy="give a path outside of it")
    if target.exists() and source.resolve().is_relative_to(target.resolve()):
        raise OutputError(f"{source} lies in {target}, which would be replaced", remedy="give another path")
    if target.is_dir() and not chosen.is_folder:
        raise OutputError(f"{target} is a folder, but {chosen.title} is a file", remedy="give the name of a file")
    is_folder = target.is_dir()
    used = any(not _is_temporary(one, target) for one in target.iterdir()) if is_folder else target.exists()
    if used and not overwrite:
        raise OutputError(f"{target} already exists", remedy="choose another name, or pass --overwrite")
