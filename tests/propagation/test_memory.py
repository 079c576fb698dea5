"""The memory bank has recent frames densely and older ones sparsely, and never more of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import OracleEncoder
from timecycle.labels import Masks
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world

FRAMES = 24
WORLD = make_world(WorldConfig(height_px=32, width_px=32, frames=FRAMES, objects=1))
ENCODER = OracleEncoder(WORLD, stride_px=16)


def memory_after(config, frames, *, annotated=(0,)):
    """Propagate over some frames of the world; return the indices in memory, in the order of votes."""
    propagator = Propagator(ENCODER, config)
    propagator.space = Masks.space([Masks(WORLD.mask(0))])
    for t in frames:
        propagator.advance(t, WORLD.frame(t), Masks(WORLD.mask(t), exhaustive=True) if t in annotated else None)
    return [frame.index for frame in propagator.memory]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5), st.integers(1, FRAMES))
def test_recent_frames_are_kept_densely_and_older_ones_sparsely(past, older, interval, count):
    config = PropagateConfig(past_frames=past, older_frames=older, older_interval=interval)
    kept = memory_after(config, range(count))
    last = count - 1
    recent = [t for t in range(last, last - past, -1) if t >= 0]
    spaced = [t for t in range(last - past, -1, -1) if t % interval == 0][:older]
    assert kept == [0, *(t for t in (*recent, *spaced) if t != 0)]


def test_a_part_of_a_video_from_an_annotated_frame_keeps_the_same_frames():
    config = PropagateConfig(past_frames=2, older_frames=3, older_interval=4)
    whole = memory_after(config, range(FRAMES), annotated=(0, 7))
    part = memory_after(config, range(7, FRAMES), annotated=(7,))
    assert [t for t in whole if t != 0] == part


def test_backward_passes_keep_as_many():
    config = PropagateConfig(past_frames=2, older_frames=3, older_interval=4)
    assert memory_after(config, range(20, -1, -1), annotated=(20,)) == [20, 0, 1, 4, 8, 12]
