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
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
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


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        ("choose another folder with -o, or pass --overwrite (in Python overwrite=True)", "choose another folder"),
        ("use smaller images (--set image_size_px=240), or close others", "use smaller images, or close others"),
        ("undo it first: timecycle correct out --undo", "undo it first"),
        ("pass --resume to continue it, or pass --overwrite to start over", "choose another folder"),
        (
            "copy it again, or use the rest with --allow-damaged (Python: allow_damaged=True)",
            "copy it again, or use the rest",
        ),
        (
            "re-encode it with: ffmpeg -i IN -c:v libx264 OUT.mp4",
            "re-encode it with: ffmpeg -i IN -c:v libx264 OUT.mp4",
        ),
        ("draw the mask on the first frame", "draw the mask on the first frame"),
    ],
)
def test_other_programs_are_told_no_options_of_the_command_line(remedy, told):
    error = errors.without_commands(errors.OutputError("a problem", remedy=remedy))
    assert (type(error), error.problem, error.remedy) == (errors.OutputError, "a problem", told)
    with pytest.raises(errors.OutputError, match="a problem") as raised, errors.telling_without_commands():
        raise errors.OutputError("a problem", remedy=remedy)
    assert raised.value.remedy == told
