"""The nearest annotated frames equal those of a slow search, and are found without reading all of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from timecycle.confidence.estimator import two_nearest
from timecycle.propagation.nearest import NearestAnnotated

CHANNELS = 3
speaking = st.dictionaries(
    st.integers(0, 30), st.lists(st.booleans(), min_size=CHANNELS, max_size=CHANNELS), min_size=1, max_size=8
)


def slowly(annotated_channels, index):
    """Look at every annotated frame."""
    earlier, later = [], []
    for channel in range(CHANNELS):
        own = [frame for frame, said in annotated_channels.items() if said[channel]]
        before = max((t for t in own if t <= index), default=None)
        after = min((t for t in own if t >= index), default=None)
        if before is None or after is None:
            before = max((t for t in annotated_channels if t <= index), default=index)
            after = min((t for t in annotated_channels if t >= index), default=index)
        earlier.append(float(before))
        later.append(float(after))
    return earlier, later


@given(annotated_channels=speaking, index=st.integers(0, 30))
def test_bisection_finds_what_a_search_over_all_annotated_frames_finds(annotated_channels, index):
    nearest = NearestAnnotated.of({frame: torch.tensor(said) for frame, said in annotated_channels.items()})
    before, after = nearest.around(index)
    assert (before.tolist(), after.tolist()) == slowly(annotated_channels, index)


@given(frames=st.sets(st.integers(0, 30), max_size=8), index=st.integers(0, 30))
def test_the_two_nearest_are_on_either_side_or_both_on_one(frames, index):
    ordered = sorted(frames)
    before, after = [t for t in ordered if t < index], [t for t in ordered if t > index]
    pair = [before[-1], after[0]] if before and after else [*before[-2:], *after[:2]]
    assert two_nearest(ordered, index) == sorted(pair, key=lambda frame: abs(frame - index))


class Counted(list):
    """Counts how many of its items are looked at."""

    looked = 0

    def __getitem__(self, key):
        self.looked += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
        return super().__getitem__(key)


def test_few_of_many_annotated_frames_are_read():
    nearest = NearestAnnotated.of({frame: torch.ones(CHANNELS, dtype=torch.bool) for frame in range(0, 8192, 2)})
    frames = Counted(nearest.frames)
    (group,) = nearest.groups
    watched = Counted(group.frames)
    object.__setattr__(nearest, "frames", frames)
    object.__setattr__(group, "frames", watched)
    nearest.around(4001)
    two_nearest(watched, 4001)
    assert frames.looked + watched.looked <= 6 * 14  # six bisections of 4096 frames
