"""Frames of the contact sheet."""

import pytest

from timecycle.runs.outputs import _sheet_frames


@pytest.mark.parametrize("frames", [1, 5, 12, 40, 1000])
@pytest.mark.parametrize("annotated", [[], [0], [0, 3], [4, 30, 31, 32], list(range(40))])
def test_contact_sheet_has_twelve_frames_with_annotated_ones_among_them(frames, annotated):
    annotated = [index for index in annotated if index < frames]
    shown = _sheet_frames(frames, annotated)
    assert len(shown) == min(frames, 12)
    assert shown <= set(range(frames))
    assert len(shown & set(annotated)) >= min(len(annotated), 6)
    if not annotated:
        assert {0, frames - 1} <= shown
