"""What a person annotated, with the history of edits, as files that survive a reload and a killed server.

The annotations are a table of values by key: the kind of labels, the objects with their names, the skeleton, and one
value for each annotated frame. An edit replaces the value of one key, and of others that follow from it; undo and redo
put values back. Masks are files that are named by their content, so a value only names its file and the history of
hundreds of edits stays small.

    FOLDER/session.json   the table, the history and the revision, written atomically after every edit
    FOLDER/edits/*.png    masks, by content
    FOLDER/masks/         what the run was started with, as the command line reads it; FOLDER/points/ for keypoints

Every edit names the revision it was made on. An edit on an older revision is refused: another tab was faster.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from timecycle.errors import InUseError, LabelError, OutputError, first_line
from timecycle.files import make_folder, write_text

Value = Any  # of JSON; None: the key has no value

KINDS = ("masks", "parts", "keypoints")
FIRST_ID = {"masks": 1, "parts": 1001, "keypoints": 1}  # the id of a part is part * 1000 + person
_MAX_HISTORY = 500
_FRAME = "frame/"


class Annotations:
    """The annotations of one video in their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edits = make_folder(folder / "edits")
        self._file = folder / "session.json"
        saved = _read(self._file)
        self.values: dict[str, Value] = saved.get("values", {"kind": "masks", "objects": [{"id": 1, "name": ""}]})
        self.submitted: dict[str, Value] = saved.get("submitted", {})
        self.revision: int = saved.get("revision", 0)
        self.discarded: bool = saved.get("discarded", False)  # the unfinished run in the output folder was cancelled
        self._corrections: list[dict[str, Value]] = saved.get("corrections", [])
        self._history: list[dict[str, Value]] = saved.get("history", [])
        self._position: int = saved.get("position", 0)
        self._remove_unused()

    @property
    def kind(self) -> str:
        return str(self.values["kind"])

    @property
    def frames(self) -> dict[int, Value]:
        """The annotated frames by index."""
        return dict(sorted(_frames(self.values)))

    @property
    def names(self) -> dict[str, str]:
        """The names that people gave, by object id."""
        return {str(one["id"]): one["name"] for one in self.values["objects"] if one["name"]}

    @property
    def can_undo(self) -> bool:
        return self._position > 0

    @property
    def can_redo(self) -> bool:
        return self._position < len(self._history)

    def pending(self) -> list[int]:
        """Return the frames that were annotated after the run was started, or again: corrections to be applied."""
        return [index for index, value in self.frames.items() if self.submitted.get(f"{_FRAME}{index}") != value]

    # Edits

    def edit(self, key: str, value: Value, *, revision: int, also: Mapping[str, Value] | None = None) -> None:
        """Replace the value of a key; None removes it. `also` are values of other keys that belong to the same edit."""
        self._check(revision)
        if self.values.get(key) == value:
            return
        edit = self._change(key, value)
        if also:
            edit["also"] = [self._change(*one) for one in also.items()]
        self._history[self._position :] = [edit]
        self._history = self._history[-_MAX_HISTORY:]
        self._position = len(self._history)
        for change in _changes(edit):
            self._set(change["key"], change["after"])
        self._save()

    def _change(self, key: str, value: Value) -> dict[str, Value]:
        return {"key": key, "before": self.values.get(key), "after": value}

    def edit_frame(self, index: int, value: Value, *, revision: int) -> None:
        self.edit(f"{_FRAME}{index}", value, revision=revision)

    def edit_objects(self, objects: list[dict[str, Any]], *, revision: int) -> None:
        """Replace the list of objects; a keypoint of another name has it on every frame and in the skeleton."""
        names = self.renamed_points(objects)
        also: dict[str, Value] = {
            f"{_FRAME}{index}": {**value, "points": _renamed(value["points"], names)}
            for index, value in self.frames.items()
            if names.keys() & value.get("points", {}).keys()
        }
        skeleton = self.values.get("skeleton", [])
        if any(name in names for line in skeleton for name in line):
            also["skeleton"] = [[names.get(name, name) for name in line] for line in skeleton]
        self.edit("objects", objects, revision=revision, also=also)

    def renamed_points(self, objects: list[dict[str, Any]]) -> dict[str, str]:
        """Return the new name of each keypoint that a list of objects calls otherwise, by the name it has now."""
        if self.kind != "keypoints":
            return {}
        names = {one["id"]: point_name(one) for one in self.values["objects"]}
        renamed = {names[one["id"]]: point_name(one) for one in objects if one["id"] in names}
        return {old: new for old, new in renamed.items() if old != new}

    def undo(self, *, revision: int) -> str | None:
        """Take the last edit back; returns its key, None where there is none."""
        self._check(revision)
        if not self.can_undo:
            return None
        self._position -= 1
        return self._replay("before")

    def redo(self, *, revision: int) -> str | None:
        """Make the edit again that was undone last."""
        self._check(revision)
        if not self.can_redo:
            return None
        self._position += 1
        return self._replay("after", self._position - 1)

    def _replay(self, side: str, at: int | None = None) -> str:
        entry = self._history[self._position if at is None else at]
        for change in _changes(entry):
            self._set(change["key"], change[side])
        self._save()
        return str(entry["key"])

    # The run

    def submit(self) -> None:
        """Remember what the run is started with: later edits are corrections of it."""
        self.submitted = {key: value for key, value in self.values.items() if key.startswith(_FRAME)}
        self._corrections, self.discarded = [], False
        self._save()

    def submit_corrections(self, corrected: Mapping[int, Value]) -> None:
        """Remember that the values of frames were applied as corrections, and what they replaced."""
        applied = {f"{_FRAME}{index}": value for index, value in corrected.items()}
        self._corrections.append({key: self.submitted.get(key) for key in applied})
        self.submitted |= applied
        self._save()

    def take_back_correction(self) -> None:
        """Return to the annotations before the last correction; an edit, so that it can be undone itself."""
        if not self._corrections:
            return
        for key, before in self._corrections.pop().items():
            if before is None:
                self.submitted.pop(key, None)
            else:
                self.submitted[key] = before
            self.edit(key, before, revision=self.revision)
        self._save()

    def discard_run(self) -> None:
        """Forget the unfinished run: what is annotated is where to start from."""
        self.submitted, self.discarded = {}, True
        self._save()

    # Files

    def _set(self, key: str, value: Value) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def _check(self, revision: int) -> None:
        if revision != self.revision:
            raise InUseError(
                "the annotations were changed in another tab", remedy="look at the frame again and repeat the edit"
            )

    def _save(self) -> None:
        self.revision += 1
        saved = {
            "revision": self.revision,
            "values": self.values,
            "submitted": self.submitted,
            "corrections": self._corrections,
            "discarded": self.discarded,
            "history": self._history,
            "position": self._position,
        }
        write_text(self._file, json.dumps(saved) + "\n")

    def _remove_unused(self) -> None:
        """Remove masks that neither the annotations nor the history names any more."""
        used = {name for value in self._all_values() if isinstance(value, dict) and (name := value.get("mask"))}
        for path in self.edits.glob("*.png"):
            if path.name not in used:
                path.unlink()

    def _all_values(self) -> Iterator[Value]:
        yield from self.values.values()
        yield from self.submitted.values()
        for change in (change for entry in self._history for change in _changes(entry)):
            yield from (change["before"], change["after"])
        for correction in self._corrections:
            yield from correction.values()


def _frames(values: dict[str, Value]) -> Iterator[tuple[int, Value]]:
    return ((int(key.removeprefix(_FRAME)), value) for key, value in values.items() if key.startswith(_FRAME))


def _changes(entry: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """Yield what an entry of the history changes: the value of its key, and those that were edited with it."""
    yield from (entry, *entry.get("also", ()))


def _renamed(points: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): point for name, point in points.items()}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        frames = dict(_frames(saved["values"]))
        masks = [Path(str(value["mask"])).name == value["mask"] for value in frames.values() if "mask" in value]
        whole = isinstance(saved["revision"], int) and saved["values"]["kind"] in KINDS and all(masks)
        objects = [(int(one["id"]), str(one["name"])) for one in saved["values"]["objects"]]
        if not whole or not objects or not 0 <= saved["position"] <= len(saved["history"]):
            raise ValueError("a value is missing")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OutputError(
            f"{path} cannot be read: {first_line(error)}", remedy=f"move {path.parent} away to start again"
        ) from error
    read: dict[str, Any] = saved
    return read


def point_name(one: Value) -> str:
    """Return what a keypoint of the list of objects is called on frames and in files, also if nobody has named it."""
    return str(one["name"] or f"point {one['id']}")


# What the page sends


def checked_objects(objects: Any) -> list[dict[str, Any]]:
    """Check the list of objects; their names are checked by the labels' own rules elsewhere."""
    try:
        listed: list[dict[str, Any]] = [{"id": int(one["id"]), "name": str(one["name"]).strip()} for one in objects]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise LabelError("the objects cannot be read", remedy="reload the page") from error
    ids = [one["id"] for one in listed]
    if not listed or len(set(ids)) < len(ids) or not all(1 <= one <= 65535 for one in ids):
        raise LabelError("an object id is used twice or out of range", remedy="number objects from 1 to 65535")
    return listed


def checked_points(points: Any) -> dict[str, list[Any]]:
    """Check the points of a frame: {name: [x, y, visible]}."""
    try:
        read = {str(name): [float(x), float(y), bool(visible)] for name, (x, y, visible) in points.items()}
        if not all(math.isfinite(value) for point in read.values() for value in point):
            raise ValueError("a coordinate is infinite")
        return read
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise LabelError("the points cannot be read", remedy="reload the page and place them again") from error


def checked_skeleton(lines: Any) -> list[list[str]]:
    """Check the lines of a skeleton: pairs of names."""
    try:
        return [[str(one), str(other)] for one, other in lines]
    except (TypeError, ValueError) as error:
        raise LabelError("the skeleton cannot be read", remedy="reload the page") from error
