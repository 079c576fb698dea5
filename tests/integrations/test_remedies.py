"""Errors in programs of others do not speak of options of the command line."""

import pytest

from timecycle.errors import OutputError
from timecycle.integrations.remedies import telling_without_commands, without_commands


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
    error = without_commands(OutputError("a problem", remedy=remedy))
    assert (type(error), error.problem, error.remedy) == (OutputError, "a problem", told)
    with pytest.raises(OutputError, match="a problem") as raised, telling_without_commands():
        raise OutputError("a problem", remedy=remedy)
    assert raised.value.remedy == told
