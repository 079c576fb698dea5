"""A project: one video, its annotations and its run, opened by the page."""

import asyncio
import json
import secrets
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from timecycle.errors import LabelError, OutputError, VideoError
from timecycle.files import lock, make_folder, write_text
from timecycle.ui.annotations import (
    FIRST_ID,
    KINDS,
    Annotations,
    checked_objects,
    checked_points,
    checked_skeleton,
    point_name,
)
from timecycle.ui.cache import PictureCache
from timecycle.ui.exports import available
from timecycle.ui.jobs import Jobs, Prepare
from timecycle.ui.messages import Answer
from timecycle.ui.workers import Worker, Workers

PRESETS = {
    "fast": "quickest",
    "default": "most videos",
    "best": "finest, slowest",
}
DIRECTIONS = {"both": "both ways in time", "forward": "forward only"}
_CACHE_BYTES = 96 << 20
_THUMBNAIL_PX = 128


@dataclass(frozen=True)
class Paths:
    """Where a project is: the video, and the output folder beside which its annotations are kept."""

    video: Path
    folder: Path

    @property
    def annotations(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}_annotations")

    @property
    def audit(self) -> Path:
        return self.annotations / "audit.json"

    @property
    def exports(self) -> Path:
        return self.annotations / "exports"


class Project:
    """An open video with its annotations and its run."""

    def __init__(self, paths: Paths, video: dict[str, Any], workers: Workers, jobs: Jobs) -> None:
        self.key = secrets.token_hex(4)  # in the addresses of frames, which browsers keep
        self.paths, self.video = paths, video
        self._workers, self._jobs = workers, jobs
        self._cache = PictureCache(_CACHE_BYTES)
        self.lock = asyncio.Lock()  # held while annotations change
        self._stack = ExitStack()
        make_folder(paths.annotations)
        self._stack.enter_context(lock(paths.annotations))
        self.annotations = Annotations(paths.annotations)

    def close(self) -> None:
        self._stack.close()

    def number(self, index: int) -> int:
        """Return the number by which files name a frame."""
        numbers = self.video["numbers"]
        return int(index if numbers is None else numbers[index])

    def check_index(self, index: int) -> int:
        if not 0 <= index < self.video["frames"]:
            raise VideoError(
                f"there is no frame {index}: the video has {self.video['frames']}", remedy="choose another frame"
            )
        return index

    # Frames

    async def frame(self, index: int) -> bytes:
        """Return a frame as JPEG."""
        return await self._picture(self._workers.frames, {"index": self.check_index(index)})

    async def thumbnail(self, index: int) -> bytes:
        return await self._picture(
            self._workers.thumbnails, {"index": self.check_index(index), "width_px": _THUMBNAIL_PX}
        )

    async def _picture(self, worker: Worker, arguments: dict[str, Any]) -> bytes:
        key = (worker.kind, arguments["index"])
        kept = self._cache.get(key)
        if kept is None:
            _, kept = await worker.call("frame", {"path": str(self.paths.video), **arguments})
            self._cache.put(key, kept)
        return kept

    async def assist(self, index: int, hints: dict[str, Any]) -> tuple[list[int], bytes]:
        """Segment what the hints mark on a frame; returns the region and a PNG of zeros and ones of it."""
        size = {"height_px": self.video["height_px"], "width_px": self.video["width_px"]}
        answer, _ = await self._workers.labels.call("region", {"hints": hints, **size})
        region = answer["region"]
        arguments = {"path": str(self.paths.video), "index": self.check_index(index), "box": region}
        _, pixels = await self._workers.frames.call("crop", arguments)
        _, mask = await self._workers.labels.call("assist", {"region": region, "hints": hints}, pixels)
        return region, mask

    # Annotations

    async def save_mask(self, index: int, png: bytes, objects: list[int], revision: int) -> None:
        """Keep the mask of a frame; `objects` are those that the person edited on it."""
        size = {"height_px": self.video["height_px"], "width_px": self.video["width_px"]}
        folder = str(self.annotations.edits)
        answer, _ = await self._workers.labels.call("save_mask", {**size, "folder": folder}, png)
        value = {"mask": answer["name"], "objects": sorted(objects), "pixels": answer["pixels"]}
        async with self.lock:
            before = self.annotations.frames.get(self.check_index(index))
            if not answer["pixels"] and before is None and not objects:
                return
            await asyncio.to_thread(self.annotations.edit_frame, index, value, revision=revision)

    async def save_points(self, index: int, points: dict[str, Any], revision: int) -> None:
        """Keep the points of a frame."""
        value = {"points": checked_points(points)} if points else None
        async with self.lock:
            await asyncio.to_thread(self.annotations.edit_frame, self.check_index(index), value, revision=revision)

    async def save_setting(self, key: str, value: Any, revision: int) -> None:
        """Keep the kind, the objects or the skeleton."""
        if key == "objects":
            await self._save_objects(checked_objects(value), revision)
            return
        if key == "skeleton":
            value = checked_skeleton(value)
        elif key != "kind" or value not in KINDS:
            raise LabelError("there is no such setting", remedy="reload the page")
        elif value != self.annotations.kind and self.annotations.frames:
            raise LabelError(
                f"frames are annotated with {self.annotations.kind} already",
                remedy="undo that first, or open the video again with another output folder (-o)",
            )
        async with self.lock:
            await asyncio.to_thread(self.annotations.edit, key, value, revision=revision)
            first = [{"id": FIRST_ID[self.annotations.kind], "name": ""}]
            if key == "kind" and not self.annotations.names:  # ids of parts are others
                await asyncio.to_thread(self.annotations.edit, "objects", first, revision=self.annotations.revision)

    async def _save_objects(self, objects: list[dict[str, Any]], revision: int) -> None:
        """Keep the objects with their names; a keypoint that a run has keeps the name by which the run knows it."""
        async with self.lock:
            points = self.annotations.kind == "keypoints"
            names = {one["id"]: point_name(one) if points else one["name"] for one in objects}
            await self._workers.labels.call(
                "check_names", {"names": {number: name for number, name in names.items() if name}}
            )
            if renamed := self.annotations.renamed_points(objects):
                kept = sorted(renamed.keys() & await self._points_of_run())
                if kept:
                    raise LabelError(
                        f"the run knows the point {kept[0]!r} by this name",
                        remedy="keep the name, or open the video again with another output folder (-o)",
                    )
            await asyncio.to_thread(self.annotations.edit_objects, objects, revision=revision)

    async def _points_of_run(self) -> set[str]:
        """Return the names of the keypoints that a run has, or was started with."""
        run = await self.run_state(since=self.video["frames"])
        submitted = (value.get("points", {}) for value in self.annotations.submitted.values())
        return set(run.get("objects", ())).union(*submitted)

    def mask_file(self, index: int) -> Path:
        """Return the file of an annotated mask."""
        value = self.annotations.frames.get(index)
        if value is None or "mask" not in value:
            raise LabelError(f"frame {index} is not annotated", remedy="draw on it first")
        return self.annotations.edits / str(value["mask"])

    # The run

    async def run_state(self, since: int = 0) -> dict[str, Any]:
        """Describe the run in the output folder, with its review queue and its audit."""
        if self.annotations.discarded:
            return {"status": "none"}
        state, _ = await self._workers.labels.call("run_state", {"folder": str(self.paths.folder), "since": since})
        if state["status"] != "none":
            finished = state["status"] == "finished"
            state["formats"] = available(self.paths.folder, state.pop("formats")) if finished else []
            state["audit"] = self._findings(state["version"])
        return state

    async def labels(self, index: int, *, before: bool) -> Answer:
        """Return the labels that the run has for a frame."""
        arguments = {"folder": str(self.paths.folder), "index": self.check_index(index), "before": before}
        return await self._workers.labels.call("labels", arguments)

    def _findings(self, version: str) -> list[dict[str, Any]] | None:
        """Read the findings of an audit; None if there was none since the labels changed."""
        try:
            saved = json.loads(self.paths.audit.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return list(saved["findings"]) if saved.get("version") == version else None

    # Jobs

    async def propagate(self, preset: str, direction: str, *, resume: bool, overwrite: bool) -> None:
        """Start to propagate the annotations, or resume; a resumed run has the annotations it was started with."""
        if preset not in PRESETS or direction not in DIRECTIONS:
            raise LabelError("there is no such preset or direction", remedy="reload the page")
        async with self.lock:
            if resume:
                arguments = {**self._saved_settings(), "overwrite": overwrite}
                prepare = None
            else:
                settings = {
                    "preset": preset,
                    "direction": direction,
                    "labels": self._annotation_files(),
                    "kind": self.annotations.kind,
                    "names": self.annotations.names if self.annotations.kind != "keypoints" else {},
                }
                arguments = {**settings, "overwrite": overwrite or self.annotations.discarded}
                prepare = partial(self._write_annotations, settings)
            await self._start(
                "propagate", {**arguments, "video": str(self.paths.video), "resume": resume}, prepare=prepare
            )
            if not resume:
                await asyncio.to_thread(self.annotations.submit)

    @property
    def _settings_file(self) -> Path:
        """What the run was started with: a resumed run needs the same."""
        return self.paths.annotations / "started.json"

    def _saved_settings(self) -> dict[str, Any]:
        try:
            settings: dict[str, Any] = json.loads(self._settings_file.read_text())
        except (OSError, ValueError) as error:
            raise OutputError(
                "this run was not started on this page", remedy="resume it on the command line, with --resume"
            ) from error
        return settings

    async def correct(self) -> None:
        """Apply the frames that were annotated since the run was started as corrections."""
        pending = self.annotations.pending()
        if not pending:
            raise LabelError("no frame was changed", remedy="correct a frame first")
        frames = self.annotations.frames
        corrected = {index: frames[index] for index in pending}  # a frame that is edited from here on stays pending
        corrections = {
            index: {**value, "path": str(self.annotations.edits / value.get("mask", ""))}
            for index, value in corrected.items()
        }

        async def applied(_: dict[str, Any]) -> None:
            async with self.lock:
                await asyncio.to_thread(self.annotations.submit_corrections, corrected)

        await self._start("correct", {"kind": self.annotations.kind, "corrections": corrections}, applied)

    async def undo_correction(self) -> None:
        """Undo the last correction of the run."""

        async def undone(_: dict[str, Any]) -> None:
            async with self.lock:
                await asyncio.to_thread(self.annotations.take_back_correction)

        await self._start("undo", {}, undone)

    async def audit(self) -> None:
        state = await self.run_state()
        await self._start("audit", {"audit_file": str(self.paths.audit), "version": state.get("version")})

    async def check(self) -> None:
        await self._start("check", {})

    async def export(self, name: str) -> None:
        """Write an export to a file that is downloaded afterwards."""
        state = await self.run_state(since=self.video["frames"])
        formats = {one["name"]: one for one in state.get("formats", ())}
        if name not in formats:
            listed = ", ".join(formats) or "propagate first"
            raise OutputError(f"this run has no export {name[:40]!r}", remedy=f"choose one of these: {listed}")
        if formats[name]["install"]:
            raise OutputError(f"{formats[name]['title']} needs a package", remedy=formats[name]["install"])
        suffix = formats[name]["suffix"]
        target = self.paths.exports / f"{self.paths.folder.name}_{name.removesuffix(suffix)}{suffix}"

        async def make_room() -> None:
            shutil.rmtree(self.paths.exports, ignore_errors=True)  # the last one was downloaded
            make_folder(self.paths.exports)

        await self._start("export", {"format": name, "path": str(target)}, prepare=make_room)

    def exported(self, name: str) -> Path:
        """Return an exported file by its name."""
        path = self.paths.exports / Path(name).name
        if not path.is_file() or path.is_symlink():
            raise OutputError("there is no such export", remedy="export it again")
        return path

    async def _start(
        self, verb: str, arguments: dict[str, Any], when_done: Any = None, *, prepare: Prepare | None = None
    ) -> None:
        async def nothing(_: dict[str, Any]) -> None:
            pass

        arguments = {"folder": str(self.paths.folder), **arguments}
        await self._jobs.start(verb, arguments, prepare=prepare, when_done=when_done or nothing)

    # Files for the command line

    async def _write_annotations(self, settings: dict[str, Any]) -> None:
        """Write the annotations as a folder that the command line reads: the same labels, the same names.

        The `settings` of the run are kept beside them.
        """
        for name in ("masks", "points"):
            shutil.rmtree(self.paths.annotations / name, ignore_errors=True)
        files = self._annotation_files()
        for index, path in files.items():
            make_folder(Path(path).parent)
            value = self.annotations.frames[index]
            if "mask" in value:
                shutil.copyfile(self.annotations.edits / value["mask"], path)
            else:
                await self._workers.labels.call("write_points", {"path": path, "points": value["points"]})
        if files and self.annotations.kind != "keypoints" and self.annotations.names:
            write_text(self.paths.annotations / "masks" / "names.json", json.dumps(self.annotations.names) + "\n")
        write_text(self._settings_file, json.dumps(settings))

    def _annotation_files(self) -> dict[int, str]:
        """Return the file of each annotated frame; a mask without an object says nothing before there is a run."""
        folder, suffix = ("points", ".csv") if self.annotations.kind == "keypoints" else ("masks", ".png")
        return {
            index: str(self.paths.annotations / folder / f"{self.number(index):05d}{suffix}")
            for index, value in self.annotations.frames.items()
            if value.get("pixels") or value.get("points")
        }
