"""The review queue: the gain of an annotation, the spacing of suggestions, and the report page."""

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
from timecycle.review.queue import annotation_gains, loss_profile, suggest
from timecycle.runs.folder import OutputFolder
from timecycle.runs.run import RunSpec, run
from timecycle.runs.tables import FrameRow, ObjectRow, RunTables
from timecycle.video import open_video


def tables(confidence: list[float], annotated: tuple[int, ...] = (0,), state: str = "uncertain") -> RunTables:
    frames = [
        FrameRow(i, i, i / 10, "annotated" if i in annotated else "propagated", value, state)
        for i, value in enumerate(confidence)
    ]
    objects = {i: {"1": ObjectRow(value, state, i in annotated)} for i, value in enumerate(confidence)}
    return RunTables(Path("out"), {}, frames, objects)


def error_left(one: RunTables, chosen: Iterable[int]) -> float:
    """The expected error once `chosen` is annotated too, by its definition, frame by frame."""
    confidence = [one.objects[i]["1"].confidence for i in range(len(one.frames))]
    annotated = {*one.annotated_frames, *chosen}

    def lost(a: int, b: int) -> float:
        steps = range(min(a, b) + 1, max(a, b) + 1)
        return sum(0.03 + max(math.log(confidence[i - 1] / confidence[i]), 0) for i in steps)

    return sum(1 - math.exp(-min(lost(i, a) for a in annotated)) for i in range(len(confidence)) if confidence[i] < 1)


def falling(seed: int, frames: int = 25) -> RunTables:
    """Confidence that falls after the annotated frame, sometimes a little and sometimes a lot."""
    falls = np.random.default_rng(seed).uniform(0, 1, frames - 1) ** 6
    return tables([1.0, *np.exp(-np.cumsum(falls)).clip(0.03).tolist()])


def test_gains_follow_their_definition():
    one = falling(0)
    profile = loss_profile(one)
    gains = annotation_gains(profile, profile.distance, profile.can_annotate)
    expected = [error_left(one, []) - error_left(one, [i]) for i in range(25)]
    assert gains == pytest.approx(expected)
    assert gains[0] == 0.0
    assert (gains >= 0).all()


def test_gains_between_annotated_frames_equal_gains_over_the_whole_video():
    """For two objects with annotations of their own, and two more annotated frames."""
    one = tables([1.0, *[0.6] * 19, 1.0, *[0.6] * 19], annotated=(0, 20))
    profile = loss_profile(two_objects(one, seed=5))
    distance = profile.annotate(profile.annotate(profile.distance, 8), 31)
    gains = annotation_gains(profile, distance, profile.can_annotate)
    whole = [profile.error(distance) - profile.error(profile.annotate(distance, i)) for i in range(40)]
    assert gains == pytest.approx(np.where(profile.can_annotate, whole, 0.0), abs=1e-9)
    assert gains[8] == gains[31] == pytest.approx(0.0)
    assert (gains > 0.1).sum() > 20


def two_objects(one: RunTables, *, seed: int) -> RunTables:
    """With a second object that is annotated on the first frame only."""
    falls = np.exp(-np.cumsum(np.random.default_rng(seed).uniform(0, 0.1, len(one.frames) - 1))).tolist()
    second = [ObjectRow(value, "lost", annotated=i == 0) for i, value in enumerate((1.0, *falls))]
    return dataclasses.replace(one, objects={i: {**of, "2": second[i]} for i, of in one.objects.items()})


def test_suggestions_of_a_subsampled_video_are_nearly_those_of_every_frame(monkeypatch):
    one = falling(1, frames=400)
    every = suggest(one, count=3)
    monkeypatch.setattr("timecycle.review.queue._MAX_CANDIDATES", 100)
    some = suggest(one, count=3)
    assert [s.index for s in some] == pytest.approx([s.index for s in every], abs=4)
    assert [s.gain for s in some] == pytest.approx([s.gain for s in every], rel=0.05)


def test_with_constant_confidence_the_first_suggestion_is_near_the_middle():
    even = tables([1.0] + [0.5] * 40)
    first, second = suggest(even, count=2)
    assert 12 <= first.index <= 28
    assert abs(first.index - second.index) >= 8
    assert (first.first, first.last) == (1, 40)


def test_frames_of_low_confidence_are_suggested():
    values = [1.0] * 60
    values[35:50] = [0.2] * 15
    first = suggest(tables(values), count=1)[0]
    assert 35 <= first.index < 50


def test_frames_lost_at_one_moment_come_before_frames_that_cannot_be_followed():
    """Twenty frames are lost at once and then followed; twenty others lose every annotation on the next frame."""
    values = [1.0] * 20 + [0.1] * 20 + [1.0] * 20 + [1.0 if i % 2 else 0.1 for i in range(20)] + [1.0] * 20
    one = tables(values, annotated=(0, 50, 99))
    assert 20 <= suggest(one, count=1)[0].index < 40


def test_certain_and_hidden_objects_are_not_suggested():
    assert suggest(tables([1.0] * 30)) == []
    for state in ("occluded", "absent"):
        assert suggest(tables([1.0] + [0.1] * 30, state=state)) == []


def test_reason_says_what_was_measured():
    steep = tables([1.0] + [0.95] * 20 + [0.6] * 20)
    assert suggest(steep, count=1)[0].reason == "confidence in object 1 fell from 0.95 to 0.60 at frame 21"
    back = tables([0.6] * 20 + [0.95] * 20 + [1.0], annotated=(40,))
    assert suggest(back, count=1)[0].reason == "confidence in object 1 fell from 0.95 to 0.60 at frame 19"
    low = tables([1.0] + [1 - 0.02 * i for i in range(1, 40)])
    assert suggest(low, count=1)[0].reason.startswith("confidence in object 1 ")
    high = suggest(tables([1.0] + [0.93] * 60), count=1)[0]
    assert high.reason == "covers frames 1 to 60, 60 frames without an annotation; confidence in object 1 is 0.93"


def test_objects_are_called_by_their_names():
    one = dataclasses.replace(tables([1.0] + [0.3] * 20), record={"names": {"1": "camel"}})
    assert suggest(one, count=1)[0].name == "camel"
    assert "confidence in camel" in suggest(one, count=1)[0].reason


def test_every_object_has_annotated_frames_of_its_own():
    """Frame 20 annotates the first object only, so the second object keeps its distance there."""
    one = tables([1.0, *[0.6] * 19, 1.0, *[0.6] * 19], annotated=(0, 20))
    objects = {i: {**of, "2": ObjectRow(1.0 if i == 0 else 0.2, "lost", i == 0)} for i, of in one.objects.items()}
    both = dataclasses.replace(one, objects=objects)
    assert loss_profile(both).distance[1, 20] > loss_profile(both).distance[0, 20] == 0
    assert suggest(both, count=1)[0].object == "2"


def test_gains_of_further_suggestions_decrease():
    rng = np.random.default_rng(0)
    queue = suggest(tables([1.0, *rng.uniform(0, 1, 80).tolist()]), count=8)
    gains = [one.gain for one in queue]
    assert gains == sorted(gains, reverse=True)
    assert len({one.index for one in queue}) == len(queue)


def test_suggestions_chosen_together_remove_nearly_the_most_error():
    """Nearly as much as the best of all sets, and sometimes more than those chosen one by one."""
    better = 0
    for seed in range(12):
        one = falling(seed)
        one_by_one, planned = (
            error_left(one, [each.index for each in suggest(one, count=2, together=together)])
            for together in (False, True)
        )
        best = min(error_left(one, pair) for pair in itertools.combinations(range(1, 25), 2))
        assert best - 1e-9 <= planned <= one_by_one + 1e-9
        assert planned <= 1.03 * best
        better += one_by_one > planned + 1e-9
    assert better >= 4


def test_fewer_suggestions_are_the_first_of_more():
    rng = np.random.default_rng(3)
    one = tables([1.0, *rng.uniform(0, 1, 50).tolist()])
    assert suggest(one, count=5)[:2] == suggest(one, count=2)


# A whole run


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    world = small_world(frames=16)
    folder = tmp_path_factory.mktemp("run") / "out"
    config = PropagateConfig(window_px=32, anchor_window_px=32)
    task = RunSpec(
        video=open_video(world.video()),
        labels={0: Masks(world.mask(0))},
        encoder=OracleEncoder(world, stride_px=4),
        config=config,
    )
    run(task, folder)
    return folder


def test_check_writes_list_page_and_sheet(finished, capsys):
    assert main(["check", str(finished), "-n", "3"]) == 0
    printed = capsys.readouterr().out
    listed = json.loads((finished / "review.json").read_text())
    assert f"1. frame {listed[0]['index']}" in printed
    assert "report.html" in printed
    page = (finished / "report.html").read_text()
    assert f"Fix frame {listed[0]['index']} first" in page
    assert "http" not in page.replace("http-equiv", "")  # no network
    assert page.count("<svg") == len(OutputFolder(finished).tables().names)
    assert Image.open(finished / "review.png").width > 300


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_page_is_shown_by_a_browser(finished, tmp_path):
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


def test_folders_without_a_run_with_confidence_are_refused(finished, tmp_path):
    with pytest.raises(OutputError, match="holds no run; give the folder that"):
        OutputFolder(tmp_path).tables()
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    lines = (copy / "objects.csv").read_text().splitlines(keepends=True)
    (copy / "objects.csv").write_text(lines[0])
    with pytest.raises(OutputError, match="has no confidence; propagate again with --overwrite and without --no-conf"):
        OutputFolder(copy).tables()
    (copy / "frames.csv").write_text("index\nx\n")
    with pytest.raises(OutputError, match="cannot be read"):
        OutputFolder(copy).tables()
