"""The demo writes every output on a synthetic clip."""

import re

import pytest

from timecycle.cli import main


@pytest.mark.slow  # four whole propagations
def test_demo_writes_every_output(tmp_path, capsys):
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert float(re.search(r"ground truth: (\d\.\d\d)", out)[1]) > 0.5
    for name in ("masks", "keypoints", "texture", "coordinates"):
        assert (tmp_path / "demo" / name / "overlay.mp4").is_file()
        assert (tmp_path / "demo" / name / "contact.png").is_file()
    for name in ("warp.png", "arrows.png", "matches.png", "flow.npy"):
        assert (tmp_path / "demo" / "flow" / name).is_file()
