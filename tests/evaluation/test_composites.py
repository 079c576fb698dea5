"""Composites of unlabelled video: known masks, the layout of DAVIS, and reproducible."""

import numpy as np
import pytest

from clips import small_world, write_clip
from timecycle.cli import main
from timecycle.data.augment.composites import CompositesConfig, make_composite
from timecycle.data.corpus.index import make_index
from timecycle.errors import OutputError, SettingsError
from timecycle.evaluation.protocols.composites import find_composites, make_composites
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.synthetic import WorldConfig, make_world

CONFIG = CompositesConfig(frames=6, side_px=64)


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for seed in range(3):
        write_clip(folder / f"{seed}.mp4", make_world(WorldConfig(height_px=64, width_px=96, frames=8, seed=seed)))
    return folder


@pytest.fixture(scope="module")
def entries(videos, tmp_path_factory):
    return make_index(videos, tmp_path_factory.mktemp("index") / "index.jsonl").entries


@pytest.fixture(scope="module")
def footage(videos, tmp_path_factory):
    return make_composites(videos, tmp_path_factory.mktemp("footage") / "made", CONFIG)


def test_masks_are_of_a_plausible_size_and_move(videos, entries):
    for number in range(4):
        frames, masks = make_composite(videos, entries, CONFIG, number)
        assert frames.shape == (6, 64, 64, 3)
        assert 0.001 < masks.mean() < 0.6
        assert (masks[0] != masks[-1]).any()


def test_composite_is_a_pure_function_of_its_number(videos, entries):
    (first, _), (again, _), (other, _) = (make_composite(videos, entries, CONFIG, number) for number in (3, 3, 5))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_written_composites_are_read_as_davis(footage):
    assert len(find_davis(footage, year="2016").clips) == 20
    benchmark = find_composites(footage)
    assert benchmark.name == "composites"
    assert len(benchmark.clips[0].frames) == 6
    perfect = benchmark.score(footage / "Annotations" / "480p").overall
    assert perfect["J"] == perfect["F"] == 1


def test_finished_composites_are_kept_and_other_settings_refused(videos, footage):
    before = (footage / "JPEGImages" / "480p" / "composite-00" / "00000.jpg").stat().st_mtime_ns
    make_composites(videos, footage, CONFIG)
    assert (footage / "JPEGImages" / "480p" / "composite-00" / "00000.jpg").stat().st_mtime_ns == before
    with pytest.raises(OutputError, match="holds composites made with other settings; choose another folder"):
        make_composites(videos, footage, CompositesConfig(frames=6, side_px=64, seed=1))


def test_too_short_videos_are_refused(tmp_path):
    write_clip(tmp_path / "a.mp4", small_world(frames=4))
    with pytest.raises(SettingsError, match=r"0 videos in .* have 6 frames and motion; give more footage"):
        make_composites(tmp_path, tmp_path / "out", CONFIG)


def test_encoder_is_scored_on_composites_of_unlabelled_videos(footage, videos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("timecycle.cli.evaluate.CompositesConfig", lambda seed: CONFIG)
    words = ["--footage", str(footage), "--encoder", "rgb", "--preset", "fast", "--sequences", "composite-00"]
    assert main(["evaluate", "composites", str(videos), *words, "-o", str(tmp_path / "out")]) == 0
    assert "rgb on composites, 1 sequence" in capsys.readouterr().out
