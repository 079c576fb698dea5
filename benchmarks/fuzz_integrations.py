"""What other programs hand to the integrations, for benchmarks/fuzz.py: shapes of CVAT, and prompts of SAM 2's calls.

The readers of files that the napari plugin opens, videos and output folders, are among the other kinds.
"""

import json
import math
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz_kind import Kind, expect
from fuzz_mutations import changed_json
from timecycle.integrations.cvat.shapes import begin
from timecycle.integrations.sam2_session import build_sam2_video_predictor
from timecycle.synthetic import WorldConfig, make_world

_WORLD = WorldConfig(height_px=32, width_px=48, frames=3)
_SHAPES: tuple[tuple[str, Any], ...] = (
    ("mask", [2, 3, 2, 5, 8, 4, 4, 8, 7]),  # run lengths, then left, top, right, bottom
    ("polygon", [4.0, 4.5, 30.0, 5.0, 28.0, 25.0, 6.0, 20.0]),
    ("rectangle", [4.0, 4.0, 30.5, 25.0]),
    ("points", [10.0, 10.0, 14.5, 12.0]),
)
_MASK = [[int(3 < row < 20 and 5 < column < 30) for column in range(48)] for row in range(32)]
_BOX, _CLICKS = [4, 4, 30, 25], {"points": [[10, 10], [14.5, 12]], "labels": [1, 0]}
_CALLS: tuple[tuple[str, Any], ...] = (
    ("add_new_mask", {"frame_idx": 0, "obj_id": 1, "mask": _MASK}),
    ("add_new_points_or_box", {"frame_idx": 1, "obj_id": 2, "box": _BOX}),
    ("add_new_points_or_box", {"frame_idx": 1, "obj_id": "dog", "box": _BOX, **_CLICKS, "normalize_coords": True}),
    ("add_new_points_or_box", {"frame_idx": 2, "obj_id": 3, **_CLICKS, "clear_old_points": False}),
)


def change_value(
    chance: Random, prepared: Any, folder: Path, *, wholes: tuple[tuple[str, Any], ...]
) -> tuple[Any, str, Any]:
    """Change one of these values as JSON, until it is JSON again."""
    word, value = chance.choice(wholes)
    while True:
        try:
            changed = json.loads(changed_json(chance, json.dumps(value).encode()))
        except (ValueError, RecursionError):
            continue
        (folder / "value.json").write_text(json.dumps({word: changed}), encoding="utf-8")
        return prepared, word, changed


def read_shape(case: tuple[np.ndarray, str, Any]) -> str:
    """Begin with a shape as CVAT's agent does, and make a shape of the labels again."""
    image, kind, points = case
    labels, to_shape = begin(kind, points, image)
    again = to_shape(labels)
    expect(again is not None, "an annotation has no shape")
    expect(all(math.isfinite(number) for number in again or ()), "a shape has numbers that are not finite")
    return kind


def read_prompt(case: tuple[Any, str, Any]) -> str:
    """Call the session with the changed arguments, and see that it can be used afterwards."""
    (predictor, state), call, arguments = case
    known: set[str] = set().union(*(one for name, one in _CALLS if name == call))
    needed = {"frame_idx", "obj_id", *(["mask"] if call == "add_new_mask" else [])}
    if not isinstance(arguments, dict) or not needed <= set(arguments) <= known:
        return "refused by Python"
    predictor.reset_state(state)
    mask = np.array(_MASK, bool)
    predictor.add_new_mask(state, frame_idx=2, obj_id=3, mask=mask)
    _, _, logits = getattr(predictor, call)(state, **arguments)
    expect(tuple(logits.shape[-2:]) == mask.shape, "masks have another size than the video")
    predictor.reset_state(state)
    _, ids, logits = predictor.add_new_mask(state, frame_idx=0, obj_id=7, mask=mask)
    expect(list(ids) == [7], "an object of an earlier call is left")
    expect(bool((np.asarray(logits[0, 0] > 0) == mask).all()), "a mask differs from what was passed")
    return call


def prepare_session(_: Path) -> tuple[Any, Any]:
    predictor = build_sam2_video_predictor(encoder="rgb", config="fast", device="cpu")
    return predictor, predictor.init_state(make_world(_WORLD).video())


_TRIED = {
    "cvat_shapes": (
        ("cv2", "cvat_sdk"),
        Kind(
            prepare=lambda _: make_world(_WORLD).frame(0), make=partial(change_value, wholes=_SHAPES), read=read_shape
        ),
    ),
    "sam2_prompts": (
        ("cv2",),
        Kind(prepare=prepare_session, make=partial(change_value, wholes=_CALLS), read=read_prompt),
    ),
}
KINDS = {name: kind for name, (packages, kind) in _TRIED.items() if all(map(find_spec, packages))}
