"""The state of the server: the processes it has started, the open project, and the folder that may be browsed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from timecycle.errors import InUseError, LabelError, TimecycleError
from timecycle.ui import browse
from timecycle.ui.events import Events
from timecycle.ui.jobs import Jobs, described
from timecycle.ui.opening import open_project
from timecycle.ui.project import DIRECTIONS, PRESETS, Project
from timecycle.ui.workers import Workers
from timecycle.version import __version__


class Server:
    """What the handlers share: the processes, the open project, and the folder that may be browsed."""

    def __init__(self, path: Path, out: Path | None = None) -> None:
        is_folder = path.is_dir() and not (path / "run.json").is_file() and browse.holds_projects(path)
        self.root = path if is_folder else None
        self._first, self._out = (None if is_folder else path), out
        self.events = Events()
        self.workers, self.jobs = Workers(), Jobs(self.events)
        self.project: Project | None = None
        self.problem: TimecycleError | None = None  # why the video could not be opened
        self.colours: list[list[int]] = []

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._begin())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.jobs.close()
            await self.workers.close()
            if self.project is not None:
                self.project.close()

    async def _begin(self) -> None:
        """Open the video of the command line while the page loads, and warm up the process that reads labels."""
        await asyncio.gather(self._open_first(), self._warm_up())

    async def _open_first(self) -> None:
        if self._first is None:
            return
        try:
            await self.open(self._first, self._out)
        except TimecycleError as error:
            self.problem = error
            self.events.tell("opened")

    async def _warm_up(self) -> None:
        with suppress(TimecycleError):  # the next call tells what is wrong
            answer, _ = await self.workers.labels.call("warm_up", seconds=300)
            self.colours = answer["colours"]
            self.events.tell("opened")

    async def open(self, path: Path, out: Path | None = None) -> None:
        """Open a video or a run in place of the one that is open."""
        if self.jobs.last.runs:
            raise InUseError(f"{self.jobs.last.verb} is still running", remedy="wait until it is done, or pause it")
        if self.project is not None:
            self.project.close()
            self.project = None
        self.project = await open_project(path, out, self.workers, self.jobs, root=self.root)
        self.problem = None
        self.events.tell("opened")

    def state(self) -> dict[str, Any]:
        """Describe everything but the run."""
        base = {
            "version": __version__,
            "canBrowse": self.root is not None,
            "problem": None
            if self.problem is None
            else {"problem": self.problem.problem, "remedy": self.problem.remedy},
            "colours": self.colours,
            "presets": PRESETS,
            "directions": DIRECTIONS,
            "job": described(self.jobs.last),
        }
        if self.project is None:
            return {**base, "project": None}
        project, annotations = self.project, self.project.annotations
        return {
            **base,
            "project": {
                "key": project.key,
                "video": project.video,
                "folder": str(project.paths.folder),
                "revision": annotations.revision,
                "kind": annotations.kind,
                "objects": annotations.values["objects"],
                "skeleton": annotations.values.get("skeleton", []),
                "frames": annotations.frames,
                "pending": annotations.pending(),
                "canUndo": annotations.can_undo,
                "canRedo": annotations.can_redo,
            },
        }

    def opened(self) -> Project:
        if self.project is None:
            raise LabelError("no video is open", remedy="choose one on the first page")
        return self.project

    def tell_changed(self) -> None:
        """Tell every tab that the annotations have changed."""
        self.events.tell("annotations", revision=self.opened().annotations.revision)
