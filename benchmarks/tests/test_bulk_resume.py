"""The benchmark of chunks resumes outputs that the program itself takes for finished."""

import pytest

from bulk_chunks import measure_resume


@pytest.mark.slow  # starts three processes
def test_resumed_runs_reach_what_is_missing(tmp_path):
    settings, measured = measure_resume(tmp_path / "resume", 4500, 20)
    assert settings["missing_chunks"] == 3
    assert measured["chunks"]["reached"] == "000002"  # the third of five chunks is the first that is missing
    assert measured["chunks_with_summary"]["reached"] == "the end"
    assert measured["videos"]["reached"] == "19"
