"""Every error says what is wrong and what to do, and survives the way to another process."""

import copy
import pickle

import pytest

from timecycle import errors

KINDS = [
    errors.TimecycleError,
    errors.VideoError,
    errors.LabelError,
    errors.WeightsError,
    errors.SettingsError,
    errors.OutputError,
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling_and_copying(kind):
    error = kind("clip.mp4 has no frames", remedy="record it again")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (again.problem, again.remedy) == ("clip.mp4 has no frames", "record it again")
        assert str(again) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_one_line_with_the_problem_before_the_remedy(kind):
    assert str(kind("x is wrong", remedy="mend x")) == "x is wrong; mend x"


@pytest.mark.parametrize("kind", KINDS)
def test_one_except_clause_catches_the_whole_family(kind):
    with pytest.raises(errors.TimecycleError):
        raise kind("x", remedy="y")


def test_an_error_cannot_be_raised_without_a_remedy():
    with pytest.raises(TypeError, match="remedy"):
        errors.VideoError("clip.mp4 has no frames")
