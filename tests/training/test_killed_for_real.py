"""Processes that train are killed with SIGKILL, and the run ends with the bytes of one that nobody disturbed."""

import os

import pytest

from kill_points import KILLS
from kills import SETTINGS, Stage, compare

# The step at which each kill strikes, and the newest checkpoint it leaves.
POINTS = {
    "step: after the optimiser, before the average": (3, 2),
    "save: half of the content is written": (6, 4),
    "save: it is renamed, the old one not removed": (6, 6),
    "weights: half of them are written": (6, 6),
}


@pytest.mark.slow  # starts six processes, each of which imports torch and trains
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_run_killed_for_real_ends_with_the_same_bytes(videos, tmp_path):
    kills = [kill for name in POINTS for kill in KILLS if kill.name == name]
    settings = (*SETTINGS, "steps=6", "checkpoint_every=2", "validate_every=4", "precision=fp32")
    found = compare(Stage(videos, tmp_path, settings), kills)
    assert found.problems == ()
    assert {row.point: (row.step, row.checkpoint) for row in found.rows} == POINTS
    assert found.measured["kills"] == 4
    assert found.measured["kills_inside_a_save"] == 2
    assert found.measured["steps_computed"] == 6 + 1 + 2


def test_thirty_points_have_names_of_their_own_and_ten_are_inside_a_save():
    assert len({kill.name for kill in KILLS}) == len(KILLS) == 30
    assert sum(kill.in_save for kill in KILLS) == 10
