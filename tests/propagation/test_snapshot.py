"""A restored state continues exactly as the original would have, wherever it is cut and whatever it propagates."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import OracleEncoder
from timecycle.errors import LabelError, VideoError
from timecycle.labels import Coordinates, Keypoints, Labels, Masks, Parts, striped
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world

FRAMES = 8
WORLD = make_world(WorldConfig(height_px=48, width_px=64, frames=FRAMES, objects=3))
KINDS = ("masks", "parts", "keypoints", "texture", "coordinates")


@cache
def encoder() -> OracleEncoder:
    return OracleEncoder(WORLD, stride_px=8)


def labels_of(kind: str, t: int, *, late: bool = False) -> Labels:
    """Labels of the first frame, or of a later one with an object that was not annotated before."""
    mask = WORLD.mask(t)
    few = np.where(mask == (2 if late else 1), mask, 0).astype(np.uint16)
    match kind:
        case "masks":
            return Masks(few)
        case "parts":
            return Parts((few > 0).astype(np.uint16) * np.uint16(2 if late else 1), few)
        case "keypoints":
            ground_truth = WORLD.keypoints(t)
            chosen = slice(2, 4) if late else slice(0, 2)
            return Keypoints(ground_truth.names[chosen], ground_truth.xy[chosen], ground_truth.visible[chosen])
        case "texture":
            return striped(Masks(few))
        case _:
            return Coordinates.of_image(48, 64)


def values_of(labels: Labels) -> list[bytes | str]:
    return [
        value.tobytes() if isinstance(value, np.ndarray) else repr(value)
        for value in (getattr(labels, name) for name in labels.__dataclass_fields__)
    ]


def annotated_at(kind: str, t: int, late: int) -> Labels | None:
    if t == 0:
        return labels_of(kind, 0)
    several = kind in ("masks", "parts", "keypoints")  # the others refer to one frame
    return labels_of(kind, t, late=True) if several and t == late else None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, deadline=None)
@given(
    cut=st.integers(1, FRAMES - 1),
    late=st.integers(1, FRAMES - 1),
    past=st.integers(0, 3),
    anchors=st.integers(1, 3),
    subcells=st.integers(1, 3),
    older=st.integers(0, 2),
    target=st.sampled_from([0.0, 0.5]),
)
def test_a_restored_propagator_continues_exactly(kind, cut, late, past, anchors, subcells, older, target):
    config = PropagateConfig(
        window_px=32,
        anchor_window_px=32,
        past_frames=past,
        anchor_frames=anchors,
        older_frames=older,
        older_interval=2,
        subcells=subcells,
        sharpening=subcells,
        target_weight=target,
        target_interval=2,
    )
    original = Propagator(encoder(), config)
    snapshots, stepped = [], []
    for t in range(FRAMES):
        if t == cut:
            snapshots.append(original.snapshot())
        stepped.append(values_of(original.step(WORLD.frame(t), annotated_at(kind, t, late))))
    (snapshot,) = snapshots
    restored = Propagator(encoder(), config)
    restored.restore(snapshot)
    for t in range(cut, FRAMES):
        assert values_of(restored.step(WORLD.frame(t), annotated_at(kind, t, late))) == stepped[t]
    assert restored.steps == original.steps == FRAMES
    assert [frame.index for frame in restored.memory] == [frame.index for frame in original.memory]


def test_restoring_forgets_later_steps():
    state = Propagator(encoder(), PropagateConfig(window_px=32, anchor_window_px=32))
    empty = state.snapshot()
    state.step(WORLD.frame(0), labels_of("masks", 0))
    start = state.snapshot()
    first = [values_of(state.step(WORLD.frame(t), annotated_at("masks", t, 3))) for t in range(1, 6)]
    state.restore(start)
    assert [values_of(state.step(WORLD.frame(t), annotated_at("masks", t, 3))) for t in range(1, 6)] == first
    state.restore(empty)
    with pytest.raises(LabelError, match="the stream has no labels yet"):
        state.step(WORLD.frame(1))


def test_a_restored_propagator_refuses_the_same_inputs():
    original = Propagator(encoder(), PropagateConfig(window_px=32, anchor_window_px=32))
    original.step(WORLD.frame(0), labels_of("masks", 0))
    restored = Propagator(encoder(), original.config)
    restored.restore(original.snapshot())
    with pytest.raises(LabelError, match="the stream propagates masks but frame 1 was annotated with keypoints"):
        restored.step(WORLD.frame(1), labels_of("keypoints", 1))
    with pytest.raises(VideoError, match="frame 1 is 40x48 but the frames before it are 64x48"):
        restored.step(WORLD.frame(1)[:, :40])
