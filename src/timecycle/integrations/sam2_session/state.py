"""The state of a session: objects, prompts and results of one video, under the keys of SAM 2's `inference_state`."""

import zlib
from collections.abc import Hashable
from typing import Any

import numpy as np
from jaxtyping import UInt16

import timecycle as tc
from timecycle.errors import LabelError

State = dict[str, Any]


def frame_size(state: State) -> tuple[int, int]:
    """Return the height and width of the video."""
    return state["video_height"], state["video_width"]


def tracked_ids(state: State, frame_idx: int) -> UInt16[np.ndarray, "height width"]:
    """Return the numbers of the objects on a frame that was yielded."""
    ids = np.frombuffer(zlib.decompress(state["tracked"][frame_idx]), np.uint16)
    return ids.reshape(frame_size(state)).copy()


def check_id(obj_id: Any) -> None:
    """Refuse what cannot name an object."""
    if not isinstance(obj_id, Hashable):
        raise LabelError(f"the object id is {obj_id!r}", remedy="pass a number or a text")


def number_of(state: State, obj_id: Any) -> int:
    """Return the number of an object in label maps; a new object gets the next one."""
    numbers: dict[Any, int] = state["numbers"]
    check_id(obj_id)
    if obj_id not in numbers:
        state["last_number"] = numbers[obj_id] = state.get("last_number", 0) + 1
        renew_ids(state)
    return numbers[obj_id]


def renew_ids(state: State) -> None:
    """Write the objects under the keys of SAM 2."""
    state["obj_ids"] = list(state["numbers"])
    state["obj_idx_to_id"] = dict(enumerate(state["obj_ids"]))
    state["obj_id_to_idx"] = {obj_id: index for index, obj_id in enumerate(state["obj_ids"])}


def frames_to_yield(start: int, most: int | None, frames: int, *, reverse: bool) -> range:
    """Return the frames to yield; as in SAM 2, `most` counts those after the start."""
    most = frames if most is None else most
    if reverse:
        return range(start, max(start - most, 0) - 1, -1) if start > 0 else range(0)
    return range(start, min(start + most, frames - 1) + 1)


def frames_to_process(annotations: dict[int, tc.Masks], low: int, high: int) -> tuple[int, int]:
    """Return the first and last frame to process: the wanted ones, and those from which each object is propagated."""
    first, last = low, high
    frames_of: dict[int, list[int]] = {}
    for frame, masks in annotations.items():
        for number in np.unique(masks.ids[masks.ids > 0]).tolist():
            frames_of.setdefault(number, []).append(frame)
    for frames in frames_of.values():
        first = min(first, max((frame for frame in frames if frame <= low), default=low))
        last = max(last, min((frame for frame in frames if frame >= high), default=high))
    return first, last
