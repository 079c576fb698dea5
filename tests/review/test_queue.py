"""The queue: what a drawing is worth, and that suggestions are spaced; the page says which frame to fix first."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clips import small_world
from oracle import OracleEncoder
from timecycle.cli.main import main
from timecycle.errors import OutputError
from timecycle.labels import Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.check import check
from timecycle.review.judged import Judged, JudgedFrame, JudgedObject, read_judged
from timecycle.review.queue import expected_errors, gains_of, removed, suggest
from timecycle.runs import Task, run
from timecycle.video import open_video


def judged(confidence: list[float], drawings: tuple[int, ...] = (0,), state: str = "uncertain") -> Judged:
    frames = [
        JudgedFrame(i, i / 10, "given" if i in drawings else "carried", value, state)
        for i, value in enumerate(confidence)
    ]
    objects = {i: {"1": JudgedObject(value, state)} for i, value in enumerate(confidence)}
    return Judged(Path("out"), {}, frames, objects)


def test_a_drawing_removes_all_of_its_own_error_and_none_beyond_the_next_drawings():
    share = removed(10, {0, 20}, 31)
    assert share[10] == 1.0
    assert share[:1].sum() == share[20:].sum() == 0.0
    assert (np.diff(share[1:11]) >= 0).all()
    assert (np.diff(share[10:20]) <= 0).all()


def test_with_even_doubt_the_first_suggestion_stands_where_it_helps_most():
    even = judged([1.0] + [0.5] * 40)
    first, second = suggest(even, count=2)
    assert 12 <= first.index <= 28
    assert abs(first.index - second.index) >= 8
    assert (first.first, first.last) == (1, 40)


def test_a_doubtful_stretch_is_looked_at_in_its_midst():
    values = [1.0] * 60
    values[35:50] = [0.2] * 15
    first = suggest(judged(values), count=1)[0]
    assert 35 <= first.index < 50


def test_what_is_sure_is_not_suggested_and_what_is_hidden_cannot_be_drawn():
    assert suggest(judged([1.0] * 30)) == []
    assert suggest(judged([1.0] + [0.1] * 30, state="occluded")) == []


def test_gains_are_those_of_trying_every_frame():
    one = judged([1.0, 0.9, 0.2, 0.3, 0.8, 0.9])
    errors = expected_errors(one)
    gains = gains_of(errors, {0}, can_draw=[True] * 6)
    expected = [0.0, *((errors * removed(i, {0}, 6)).sum() for i in range(1, 6))]
    assert gains == pytest.approx(expected)


def test_every_further_suggestion_is_worth_less():
    rng = np.random.default_rng(0)
    queue = suggest(judged([1.0, *rng.uniform(0, 1, 80).tolist()]), count=8)
    gains = [one.gain for one in queue]
    assert gains == sorted(gains, reverse=True)
    assert len({one.index for one in queue}) == len(queue)


def left_of(one: Judged, chosen: list[int]) -> float:
    """What is left of the expected error, by its definition: it shrinks as the nearest drawing comes nearer."""
    frames = np.arange(len(one.frames))
    was, now = (np.abs(frames[:, None] - np.array(drawn)).min(axis=1) for drawn in ([0], [0, *chosen]))
    return float((expected_errors(one) * now / np.maximum(was, 1)).sum())


def test_together_they_remove_most():
    """As much as the best of all sets: on a rough course of doubt greedy choice is left behind."""
    behind = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rough = judged([1.0, *(1 - rng.uniform(0, 1, 24) ** 3).tolist()])
        greedy, planned = (
            left_of(rough, [one.index for one in suggest(rough, count=2, together=together)])
            for together in (False, True)
        )
        best = min(left_of(rough, list(pair)) for pair in itertools.combinations(range(1, 25), 2))
        assert best <= planned <= greedy
        assert planned <= 1.02 * best
        behind += greedy > planned
    assert behind >= 4


def test_with_even_growing_doubt_they_stand_where_no_frame_is_far_from_a_drawing():
    growing = judged([1 - i / 100 for i in range(61)])
    assert sorted(one.index for one in suggest(growing, count=2, together=True)) == pytest.approx([24, 48], abs=1)
    assert suggest(growing, count=1, together=True)[0].index == pytest.approx(40, abs=1)


def test_who_stops_early_has_drawn_the_best_ones():
    rng = np.random.default_rng(3)
    one = judged([1.0, *rng.uniform(0, 1, 50).tolist()])
    assert suggest(one, count=5)[:2] == suggest(one, count=2)


# A whole run


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    world = small_world(frames=16)
    folder = tmp_path_factory.mktemp("run") / "out"
    config = PropagateConfig(window_px=32, anchor_window_px=32)
    task = Task(
        video=open_video(world.video()),
        labels={0: Masks(world.mask(0))},
        encoder=OracleEncoder(world, stride_px=4),
        config=config,
    )
    run(task, folder)
    return folder


def test_check_writes_a_list_a_page_and_a_sheet(finished, capsys):
    assert main(["check", str(finished), "-n", "3"]) == 0
    said = capsys.readouterr().out
    listed = json.loads((finished / "review.json").read_text())
    assert f"1. frame {listed[0]['index']}" in said
    assert "report.html" in said
    page = (finished / "report.html").read_text()
    assert f"Fix frame {listed[0]['index']} first" in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is fetched
    assert page.count("<svg") == len(read_judged(finished).names)
    assert Image.open(finished / "review.png").width > 300


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_the_page(finished, tmp_path):
    check(finished)
    picture = tmp_path / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1120,1400", f"--screenshot={picture}"]
    subprocess.run(["chromium", *options, (finished / "report.html").as_uri()], check=True, capture_output=True)
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert pixels.shape == (1400, 1120, 3)
    colourful = np.ptp(pixels, axis=2) > 60
    assert colourful[90:480, 30:640].mean() > 0.02  # the frame to fix first, with its labels
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", (finished / "report.html").as_uri()],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "first</p>" in shown


def test_folders_without_a_judged_run_are_refused(finished, tmp_path):
    with pytest.raises(OutputError, match="holds no run; give the folder that"):
        read_judged(tmp_path)
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    lines = (copy / "objects.csv").read_text().splitlines(keepends=True)
    (copy / "objects.csv").write_text(lines[0])
    with pytest.raises(OutputError, match="was not judged; carry the labels again without --unjudged"):
        read_judged(copy)
    (copy / "frames.csv").write_text("index\nx\n")
    with pytest.raises(OutputError, match="cannot be read"):
        read_judged(copy)
