"""Every error states a problem and a remedy, and can be pickled."""

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
def test_an_error_can_be_pickled_and_copied(kind):
    error = kind("clip.mp4 has no frames", remedy="record it again")
    pickled = pickle.loads(pickle.dumps(error))  # noqa: S301  pickled here
    for again in (pickled, copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (again.problem, again.remedy) == ("clip.mp4 has no frames", "record it again")
        assert str(again) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_problem_and_the_remedy_on_one_line(kind):
    assert str(kind("x is wrong", remedy="fix x")) == "x is wrong; fix x"


@pytest.mark.parametrize("kind", KINDS)
def test_all_errors_derive_from_timecycle_error(kind):
    with pytest.raises(errors.TimecycleError):
        raise kind("x", remedy="y")


def test_an_error_needs_a_remedy():
    with pytest.raises(TypeError, match="remedy"):
        errors.VideoError("clip.mp4 has no frames")
