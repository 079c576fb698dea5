import dataclasses
import sys

import numpy as np
import pytest
from PIL import Image

from reports import davis_report
from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip
from timecycle.evaluation.reporting import plots
from timecycle.evaluation.reporting.figure import MAX_BYTES, save_small, spread
from timecycle.evaluation.reporting.worst import draw_worst
from timecycle.labels import Keypoints, Masks

BLUE = (0x00, 0x72, 0xB2)
ORANGE = (0xD5, 0x5E, 0x00)


def is_colour(picture, colour):
    return (picture == np.array(colour, np.uint8)).all(axis=-1)


def bar_lengths(picture):
    """Return the length of each bar in pixels, from the top: runs of rows that have the bars' colour."""
    wide = is_colour(picture, BLUE).sum(axis=1)
    runs = np.split(wide, np.flatnonzero(np.diff((wide > 0).astype(int))) + 1)
    return [int(np.median(run)) for run in runs if run[0] > 0]


def test_bar_lengths_are_proportional_to_scores_easiest_first():
    picture = plots.draw_bars([davis_report("rgb", (0.2, 0.8, 0.4))])
    lengths = bar_lengths(picture)
    assert len(lengths) == 3
    # The dashed line of the mean may cover two pixels of a bar.
    assert np.array(lengths) / lengths[0] == pytest.approx([1, 0.5, 0.25], abs=0.01)


def test_methods_are_drawn_side_by_side_on_one_scale():
    one, two = davis_report("rgb", (0.6,) * 4), davis_report("sift", (0.3,) * 4)
    picture = is_colour(plots.draw_bars([two, one]), BLUE)
    left, right = picture[:, :500].sum(), picture[:, 500:].sum()
    assert left / right == pytest.approx(2, rel=0.03)  # the better one first, in any order of arguments


def test_pictures_have_room_for_every_name_and_are_not_blank():
    many = [davis_report(f"method-{i}", tuple(np.linspace(0.1, 0.9, 20) / (1 + i))) for i in range(6)]
    for picture in (plots.draw_bars(many[:1]), plots.draw_bars(many), plots.draw_over_time(many)):
        assert picture.dtype == np.uint8
        assert 400 <= picture.shape[0] <= 900
        assert picture.shape[1] in (820, 1000)
        assert (picture != 255).any(axis=-1).mean() > 0.02


def test_of_many_sequences_only_the_hardest_are_shown():
    picture = plots.draw_bars([davis_report("rgb", tuple(np.linspace(0.1, 0.9, 268)))])
    assert len(bar_lengths(picture)) == 60
    assert picture.shape[0] < 1200


def test_a_constant_score_is_a_level_line_at_its_height():
    half = plots.draw_over_time([davis_report("rgb", (0.5,) * 6)])
    quarter = plots.draw_over_time([davis_report("rgb", (0.25,) * 6)])
    whole = plots.draw_over_time([davis_report("rgb", (1.0,) * 6)])
    heights = [np.flatnonzero(is_colour(p, BLUE)[:, 300]).mean() for p in (whole, half, quarter)]
    assert (heights[2] - heights[1]) / (heights[1] - heights[0]) == pytest.approx(0.5, abs=0.02)


def test_each_method_has_its_own_line():
    picture = plots.draw_over_time([davis_report("rgb", (0.7,) * 6), davis_report("sift", (0.2,) * 6)])
    rows = [np.flatnonzero(is_colour(picture, colour)[:, 300]).mean() for colour in (BLUE, ORANGE)]
    assert rows[0] < rows[1]


def test_the_band_is_the_interquartile_range():
    spread = plots.draw_over_time([davis_report("rgb", (0.1, 0.3, 0.5, 0.7, 0.9))])
    level = plots.draw_over_time([davis_report("rgb", (0.5,) * 5)])
    tinted = (spread[:, 300] != level[:, 300]).any(axis=-1)
    axis_px = 440 * 0.85
    assert tinted.sum() / axis_px == pytest.approx(0.4, abs=0.08)  # from 30 to 70 %


def test_clips_of_any_length_are_resampled_and_unscored_frames_skipped():
    assert plots.resample(np.array([0.0, 1.0]))[[0, 50, 100]].tolist() == [0, 0.5, 1]
    assert plots.resample(np.array([0.0, np.nan, 1.0]))[50] == pytest.approx(0.5)
    assert (plots.resample(np.array([0.3])) == 0.3).all()


def test_labels_are_moved_apart_only_as_far_as_needed():
    assert spread([10, 30, 50], gap=5) == [10, 30, 50]
    assert spread([10, 11, 50], gap=4) == [8.5, 12.5, 50]
    close = spread([1, 1, 1, 2, 9], gap=3)
    assert np.diff(close).min() >= 3 - 1e-9


def test_seeds_are_drawn_as_one_method():
    seeds = [davis_report(f"random-resnet18{seed}", (0.3 + j,) * 4) for seed, j in (("", 0.0), ("@1", 0.2))]
    one = plots.draw_bars(seeds)
    assert one.shape[1] == 820
    assert bar_lengths(one)[0] == pytest.approx(
        bar_lengths(plots.draw_bars([davis_report("rgb", (0.4,) * 4)]))[0], abs=1
    )


def test_errors_have_an_axis_of_their_own():
    clips = {f"c{i}": {"L1_5": 40.0 + 10 * i} for i in range(3)}
    report = dataclasses.replace(davis_report("rgb"), scores={"L1_5": 50.0}, per_sequence=clips)
    lengths = bar_lengths(plots.draw_bars([report]))
    assert np.array(lengths) / lengths[-1] == pytest.approx([40 / 60, 50 / 60, 1], abs=0.02)
    with pytest.raises(SettingsError, match="no L1, 5 frames per frame"):
        plots.draw_over_time([report])


@pytest.fixture
def clips(tmp_path):
    """Six grey clips of 9 frames; the predicted mask is the left half, and empty from frame 6 on."""
    clips = []
    for number in range(6):
        frames = tmp_path / "frames" / f"clip-{number}"
        labels = tmp_path / "out" / "predictions" / f"clip-{number}"
        frames.mkdir(parents=True)
        labels.mkdir(parents=True)
        for index in range(9):
            Image.new("RGB", (64, 36), (100, 100, 100)).save(frames / f"{index:05d}.jpg")
            ids = np.zeros((36, 64), np.uint8)
            ids[:, : 32 if index < 6 else 0] = 1
            Masks.of(ids).write(labels / f"{index:05d}.png")
        images = tuple(sorted(frames.iterdir()))
        annotation = Masks.of(np.ones((36, 64), np.uint8))
        clips.append(Clip(name=frames.name, frames=images, read_annotation=lambda labels=annotation: labels))
    return clips


def test_the_worst_clips_show_their_predictions_at_four_times(clips, tmp_path):
    report = davis_report("rgb", (0.2, 0.4, 0.6, 0.5, 0.7, 0.3))
    sheet = draw_worst(report, clips, tmp_path / "out" / "predictions", count=2, width_px=100)
    # Two rows and four columns of 100x56 px; 25 and 50 % have a mask on the left, 75 and 100 % have none.
    reddish = sheet[..., 0].astype(int) - sheet[..., 1] > 40
    for row in range(2):
        tops = 8 + row * (56 + 22 + 8)
        shares = [reddish[tops : tops + 56, 8 + 108 * c : 108 + 108 * c].mean() for c in range(4)]
        assert shares == pytest.approx([0.5, 0.5, 0, 0], abs=0.04)


def test_pictures_are_written_to_the_folder_of_the_evaluation(clips, tmp_path):
    written = plots.write_pictures(davis_report("rgb"), tmp_path / "out", clips=clips)
    assert [path.name for path in written] == ["bars.png", "over_time.png", "worst.png"]
    for path in written:
        assert path.stat().st_size < MAX_BYTES
        with Image.open(path) as picture:
            assert picture.convert("RGB").getcolors(maxcolors=1 << 20) is not None
    assert [path.name for path in plots.write_pictures(davis_report("rgb"), tmp_path / "bare")] == [
        "bars.png",
        "over_time.png",
    ]


def test_a_picture_that_cannot_be_drawn_is_logged(clips, tmp_path, caplog):
    """Clips of another benchmark, a missing frame, a folder that cannot be written to: one line each time."""
    report = davis_report("rgb")
    assert len(plots.write_pictures(report, tmp_path / "out", clips=clips[1:])) == 2
    clips[0].frames[2].unlink()
    assert len(plots.write_pictures(report, tmp_path / "out", clips=clips)) == 2
    (tmp_path / "file").write_text("no folder")
    assert plots.write_pictures(report, tmp_path / "file") == []
    for message, problem in zip(caplog.messages, ("has the sequence clip-0", "00002.jpg", "cannot write"), strict=True):
        assert message.startswith("not all pictures were drawn: ")
        assert problem in message


def test_points_are_visible_and_long_names_stay_in_their_column(tmp_path):
    """A point on a large grey frame is a dot in its own colour on the small one, in the saved file too."""
    name = "a-very-long-name-of-a-sequence-that-no-column-has-room-for"
    frames, labels = tmp_path / "frames", tmp_path / "labels" / name
    frames.mkdir()
    labels.mkdir(parents=True)
    ground = np.random.default_rng(0).integers(90, 110, (540, 960, 1), np.uint8).repeat(3, axis=2)
    points = Keypoints(("a", "b"), np.array([[240, 135], [720, 405]], np.float32), np.ones(2, bool))
    for index in range(4):
        Image.fromarray(ground).save(frames / f"{index:05d}.png")
        points.write(labels / f"{index:05d}.csv")
    clip = Clip(name=name, frames=tuple(sorted(frames.iterdir())), read_annotation=lambda: points)
    report = dataclasses.replace(davis_report("rgb"), scores={"J": 0.5}, per_sequence={name: {"J": 0.5}})
    save_small(tmp_path / "worst.png", draw_worst(report, [clip], tmp_path / "labels", width_px=160))
    with Image.open(tmp_path / "worst.png") as picture:
        sheet = np.array(picture.convert("RGB")).astype(int)
    first = sheet[8 : 8 + 90, 8 : 8 + 160]
    vivid = np.ptp(first, axis=-1) > 100
    assert vivid[21:24, 39:42].all()
    assert vivid[66:69, 119:122].all()
    assert 40 < vivid.sum() < 120
    caption = sheet[8 + 90 :, 8 + 160 : 8 + 168]  # between the first column and the second
    assert (caption > 200).all()


def test_without_stored_labels_no_contact_sheet_is_drawn(clips, tmp_path):
    """Frame reconstruction stores errors only."""
    for path in (tmp_path / "out" / "predictions").glob("*/*.png"):
        path.unlink()
    (tmp_path / "out" / "predictions" / "clip-0" / "l1.csv").write_text("gap,frame\n")
    written = plots.write_pictures(davis_report("rgb"), tmp_path / "out", clips=clips)
    assert "worst.png" not in [path.name for path in written]
    with pytest.raises(LabelError, match="has no labels of clip-0"):
        draw_worst(davis_report("rgb"), clips, tmp_path / "out" / "predictions")


def test_masks_of_another_program_may_lack_the_last_frame(clips, tmp_path):
    for path in (tmp_path / "out" / "predictions").glob("*/00008.png"):
        path.unlink()
    assert draw_worst(davis_report("rgb"), clips, tmp_path / "out" / "predictions").any()


def test_clips_of_another_benchmark_are_refused(clips, tmp_path):
    with pytest.raises(SettingsError, match="has the sequence clip-0 but"):
        draw_worst(davis_report("rgb"), clips[1:], tmp_path / "out" / "predictions")


def test_without_matplotlib_only_the_contact_sheet_is_drawn(clips, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    written = plots.write_pictures(davis_report("rgb"), tmp_path / "out", clips=clips)
    assert [path.name for path in written] == ["worst.png"]
    assert "pip install 'timecycle[eval]'" in caplog.text


def test_noise_fits_into_a_small_file(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    save_small(tmp_path / "noise.png", noise, note={"source": "here"})
    assert (tmp_path / "noise.png").stat().st_size < MAX_BYTES
    with Image.open(tmp_path / "noise.png") as picture:
        assert picture.info["source"] == "here"
        assert picture.size == (400, 300)


def test_drawing_does_not_change_global_state():
    import matplotlib

    settings, loaded = matplotlib.rcParams.copy(), "matplotlib.pyplot" in sys.modules
    plots.draw_over_time([davis_report("rgb")])
    assert matplotlib.rcParams.copy() == settings
    assert ("matplotlib.pyplot" in sys.modules) == loaded
    assert not hasattr(plots, "matplotlib")  # it is imported only when something is drawn
