"""The queue: what a drawing is worth, and that suggestions are spaced; the page says which frame to fix first."""

import dataclasses
import itertools
import json
import math
import shutil
import subprocess
from collections.abc import Iterable
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
from timecycle.review.queue import course_of, gains_of, suggest
from timecycle.runs import Task, run
from timecycle.video import open_video


def judged(confidence: list[float], drawings: tuple[int, ...] = (0,), state: str = "uncertain") -> Judged:
    frames = [
        JudgedFrame(i, i, i / 10, "given" if i in drawings else "carried", value, state)
        for i, value in enumerate(confidence)
    ]
    objects = {i: {"1": JudgedObject(value, state, i in drawings)} for i, value in enumerate(confidence)}
    return Judged(Path("out"), {}, frames, objects)


def error_left(one: Judged, chosen: Iterable[int]) -> float:
    """The expected error once more frames are drawn, by its definition, frame by frame: confidence falls from 1."""
    confidence = [one.objects[i]["1"].confidence for i in range(len(one.frames))]
    drawings = {*one.drawings, *chosen}

    def lost(a: int, b: int) -> float:
        steps = range(min(a, b) + 1, max(a, b) + 1)
        return sum(0.03 + max(math.log(confidence[i - 1] / confidence[i]), 0) for i in steps)

    return sum(1 - math.exp(-min(lost(i, d) for d in drawings)) for i in range(len(confidence)) if confidence[i] < 1)


def falling(seed: int, frames: int = 25) -> Judged:
    """Confidence that falls from the drawing on, now a little and now a lot."""
    falls = np.random.default_rng(seed).uniform(0, 1, frames - 1) ** 6
    return judged([1.0, *np.exp(-np.cumsum(falls)).clip(0.03).tolist()])


def test_gains_are_those_of_the_definition():
    one = falling(0)
    course = course_of(one)
    gains = gains_of(course, course.distance, course.can_draw)
    expected = [error_left(one, []) - error_left(one, [i]) for i in range(25)]
    assert gains == pytest.approx(expected)
    assert gains[0] == 0.0
    assert (gains >= 0).all()


def test_gains_between_drawings_are_what_the_whole_video_gains():
    """Of two objects with drawings of their own, and two frames that are drawn besides."""
    one = judged([1.0, *[0.6] * 19, 1.0, *[0.6] * 19], drawings=(0, 20))
    course = course_of(two_objects(one, seed=5))
    distance = course.nearer(course.nearer(course.distance, 8), 31)
    gains = gains_of(course, distance, course.can_draw)
    whole = [course.error(distance) - course.error(course.nearer(distance, i)) for i in range(40)]
    assert gains == pytest.approx(np.where(course.can_draw, whole, 0.0), abs=1e-9)
    assert gains[8] == gains[31] == pytest.approx(0.0)
    assert (gains > 0.1).sum() > 20


def two_objects(one: Judged, *, seed: int) -> Judged:
    """With a second object that was drawn on the first frame only."""
    falls = np.exp(-np.cumsum(np.random.default_rng(seed).uniform(0, 0.1, len(one.frames) - 1))).tolist()
    second = [JudgedObject(value, "lost", annotated=i == 0) for i, value in enumerate((1.0, *falls))]
    return dataclasses.replace(one, objects={i: {**of, "2": second[i]} for i, of in one.objects.items()})


def test_gains_of_a_long_video_are_nearly_those_of_every_frame(monkeypatch):
    one = falling(1, frames=400)
    every = suggest(one, count=3)
    monkeypatch.setattr("timecycle.review.queue._MOST_TRIED", 100)
    some = suggest(one, count=3)
    assert [s.index for s in some] == pytest.approx([s.index for s in every], abs=4)
    assert [s.gain for s in some] == pytest.approx([s.gain for s in every], rel=0.05)


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


def test_what_was_lost_at_one_moment_comes_before_what_cannot_be_followed():
    """Twenty frames are lost at once, and then followed; twenty others lose what is drawn on the next frame."""
    values = [1.0] * 20 + [0.1] * 20 + [1.0] * 20 + [1.0 if i % 2 else 0.1 for i in range(20)] + [1.0] * 20
    one = judged(values, drawings=(0, 50, 99))
    assert 20 <= suggest(one, count=1)[0].index < 40


def test_what_is_sure_is_not_suggested_and_what_is_hidden_cannot_be_drawn():
    assert suggest(judged([1.0] * 30)) == []
    for state in ("occluded", "absent"):
        assert suggest(judged([1.0] + [0.1] * 30, state=state)) == []


def test_a_suggestion_says_what_was_measured():
    steep = judged([1.0] + [0.95] * 20 + [0.6] * 20)
    assert suggest(steep, count=1)[0].reason == "confidence in object 1 fell from 0.95 to 0.60 at frame 21"
    back = judged([0.6] * 20 + [0.95] * 20 + [1.0], drawings=(40,))
    assert suggest(back, count=1)[0].reason == "confidence in object 1 fell from 0.95 to 0.60 at frame 19"
    low = judged([1.0] + [1 - 0.02 * i for i in range(1, 40)])
    assert suggest(low, count=1)[0].reason.startswith("confidence in object 1 ")
    sure = suggest(judged([1.0] + [0.93] * 60), count=1)[0]
    assert sure.reason == "covers frames 1 to 60, 60 frames without an annotation; confidence in object 1 is 0.93"


def test_objects_are_called_by_their_names():
    one = dataclasses.replace(judged([1.0] + [0.3] * 20), record={"names": {"1": "camel"}})
    assert suggest(one, count=1)[0].name == "camel"
    assert "confidence in camel" in suggest(one, count=1)[0].reason


def test_every_object_has_drawings_of_its_own():
    """Frame 20 was drawn for the first object only: the second is as doubtful there as before."""
    one = judged([1.0, *[0.6] * 19, 1.0, *[0.6] * 19], drawings=(0, 20))
    objects = {i: {**of, "2": JudgedObject(1.0 if i == 0 else 0.2, "lost", i == 0)} for i, of in one.objects.items()}
    both = dataclasses.replace(one, objects=objects)
    assert course_of(both).distance[1, 20] > course_of(both).distance[0, 20] == 0
    assert suggest(both, count=1)[0].object == "2"


def test_every_further_suggestion_is_worth_less():
    rng = np.random.default_rng(0)
    queue = suggest(judged([1.0, *rng.uniform(0, 1, 80).tolist()]), count=8)
    gains = [one.gain for one in queue]
    assert gains == sorted(gains, reverse=True)
    assert len({one.index for one in queue}) == len(queue)


def test_together_they_remove_most():
    """Nearly as much as the best of all sets; one by one is left behind now and then."""
    behind = 0
    for seed in range(12):
        one = falling(seed)
        greedy, planned = (
            error_left(one, [each.index for each in suggest(one, count=2, together=together)])
            for together in (False, True)
        )
        best = min(error_left(one, pair) for pair in itertools.combinations(range(1, 25), 2))
        assert best - 1e-9 <= planned <= greedy + 1e-9
        assert planned <= 1.03 * best
        behind += greedy > planned + 1e-9
    assert behind >= 4


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
