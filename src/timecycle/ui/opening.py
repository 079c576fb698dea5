"""Open a video or a run as a project of the page."""

import asyncio
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError
from timecycle.ui.annotations import KINDS, Annotations, point_name
from timecycle.ui.jobs import Jobs
from timecycle.ui.project import Paths, Project
from timecycle.ui.workers import Workers

_OPEN_SECONDS = 600  # counting the frames of some files means decoding them


async def open_project(path: Path, out: Path | None, workers: Workers, jobs: Jobs, *, root: Path | None) -> Project:
    """Open a video or a run; below a `root`, the video of a run must be there too."""
    folder = out
    if (path / "run.json").is_file():
        run, _ = await workers.labels.call("run_state", {"folder": str(path)})
        if not run.get("origin"):
            raise OutputError(f"{path} does not say where its video is", remedy="open the video itself, with -o FOLDER")
        folder, path = path, Path(run["origin"]["video"])
        if root is not None and not path.resolve().is_relative_to(root.resolve()):
            raise OutputError(
                f"the video of {folder.name} is outside of the folder that was opened",
                remedy=f"open the run by itself: timecycle ui {folder}",
            )
    video, _ = await workers.frames.call("open", {"path": str(path.absolute())}, seconds=_OPEN_SECONDS)
    if folder is None:
        named = (path.parent if "*" in path.name else path).absolute()
        # As `propagate` names it; below a root, beside the video.
        folder = (Path() if root is None else named.parent) / f"{named.stem}_timecycle"
    project = Project(Paths(path.absolute(), folder.absolute()), video, workers, jobs)
    try:
        if (folder / "run.json").is_file():
            run, _ = await workers.labels.call("run_state", {"folder": str(folder)})
            _check_run(folder, run, video)
            await asyncio.to_thread(_take_over, project.annotations, run)
    except BaseException:
        project.close()
        raise
    return project


def _check_run(folder: Path, run: dict[str, Any], video: dict[str, Any]) -> None:
    """Refuse a run of another video, and of labels that the page cannot draw."""
    if any(run["video"][size] != video[size] for size in ("frames", "width_px", "height_px")):
        raise OutputError(
            f"the run in {folder} is of another video",
            remedy="choose another output folder with -o, or put its video back",
        )
    if run["kind"] not in KINDS:
        raise OutputError(
            f"the labels in {folder} are {run['kind']}, which the page cannot draw",
            remedy=f"look at {folder / 'overlay.mp4'}, and correct them on the command line",
        )


def _take_over(annotations: Annotations, run: dict[str, Any]) -> None:
    """Take the kind and the objects of a run that was started elsewhere."""
    if run["kind"] != annotations.kind:
        annotations.edit("kind", run["kind"], revision=annotations.revision)
    objects = annotations.values["objects"]
    if run["kind"] == "keypoints":
        named = [{"id": number, "name": name} for number, name in enumerate(run["objects"], 1)]
        known = {point_name(one) for one in objects}
        unlisted = [name for name in run["objects"] if name not in known]
        last = max(one["id"] for one in objects)
        missing = [{"id": number, "name": name} for number, name in enumerate(unlisted, last + 1)]
    else:
        named = [{"id": int(name), "name": run["names"].get(name, "")} for name in run["objects"]]
        known = {one["id"] for one in objects}
        missing = [one for one in named if one["id"] not in known]
    if annotations.revision <= 1 and named:  # nobody has named anything here
        annotations.edit("objects", named, revision=annotations.revision)
    elif missing:
        annotations.edit("objects", [*objects, *missing], revision=annotations.revision)
