"""A run whose processes are killed with SIGKILL gives the same bytes as an undisturbed run."""

import os

import pytest

from kill_points import KILLS
from kills import SETTINGS, Stage, compare

# The step of each kill, and the newest checkpoint after it.
POINTS = {
    "step: after the optimiser, before the EMA": (3, 2),
    "save: half of the content is written": (6, 4),
    "save: it is renamed, the old one not removed": (6, 6),
    "weights: half of them are written": (6, 6),
}


@pytest.mark.slow  # starts six processes, each of which imports torch and trains
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_run_killed_with_sigkill_gives_the_same_bytes(videos, tmp_path):
    kills = [kill for name in POINTS for kill in KILLS if kill.name == name]
    settings = (*SETTINGS, "steps=6", "checkpoint_every=2", "validate_every=4", "precision=fp32")
    result = compare(Stage(videos, tmp_path, settings), kills)
    assert result.problems == ()
    assert {row.point: (row.step, row.checkpoint) for row in result.rows} == POINTS
    assert result.measured["kills"] == 4
    assert result.measured["kills_inside_a_save"] == 2
    assert result.measured["steps_computed"] == 6 + 1 + 2


def test_there_are_thirty_distinct_kill_points_of_which_ten_are_inside_a_save():
    assert len({kill.name for kill in KILLS}) == len(KILLS) == 30
    assert sum(kill.in_save for kill in KILLS) == 10
