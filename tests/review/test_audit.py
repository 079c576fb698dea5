"""Audits: clean labels are quiet, and every fault is named, on a world whose features are known."""

import gc
import json

import numpy as np
import pytest
import torch

from clips import small_world, write_clip, write_mask
from oracle import OracleEncoder
from timecycle.cli.main import main
from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.audit import AuditConfig, audit
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)
FRAMES = 40


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(height_px=96, width_px=128, frames=FRAMES, seed=1))


@pytest.fixture(scope="module")
def truth(world):
    """Everything that moves, as one object."""
    return {t: Masks.of(world.mask(t) > 0) for t in range(FRAMES)}


def faults(video, labels, encoder) -> set[str]:
    return {finding.fault for finding in audit(video, labels, encoder=encoder, config=CONFIG).findings}


def test_clean_labels_are_quiet(world, video, encoder, truth):
    everything = {t: Masks(world.mask(t)) for t in range(FRAMES)}
    assert faults(video, truth, encoder) == set()
    assert faults(video, everything, encoder) == set()


@pytest.mark.parametrize("by", [-5, -1, 1, 2, 5])
def test_a_shift_of_the_whole_track_is_found_with_its_length(video, encoder, truth, by):
    shifted = {t: truth[t + by] for t in truth if t + by in truth}
    found = audit(video, shifted, encoder=encoder, config=CONFIG).findings
    (shift,) = (finding for finding in found if finding.fault == "shift")
    first = min(shifted)
    assert f"file {first} shows frame {first + by}" in shift.words


def test_objects_that_change_names_are_found(world, video, encoder):
    table = np.array([0, 2, 1, 3], np.uint16)
    at = next(t for t in range(3, FRAMES) if {1, 2} <= set(np.unique(world.mask(t))))
    labels = {t: Masks(table[world.mask(t)]) if t >= at else Masks(world.mask(t)) for t in range(FRAMES)}
    found = audit(video, labels, encoder=encoder, config=CONFIG).findings
    assert ("swap", at, "1 and 2") in {(finding.fault, finding.first, finding.object) for finding in found}


def test_an_object_that_is_dropped_is_found_where_it_ends(video, encoder, truth):
    labels = {t: Masks.of(np.zeros_like(masks.ids)) if 4 <= t < 8 else masks for t, masks in truth.items()}
    found = audit(video, labels, encoder=encoder, config=CONFIG).findings
    assert [finding.first for finding in found if finding.fault == "dropped"] == [4]


def test_a_mask_that_stands_still_is_found(world, video, encoder):
    one = {t: Masks.of(world.mask(t) == 1) for t in range(12)}
    labels = {t: one[2] if 2 <= t < 10 else masks for t, masks in one.items()}
    (frozen,) = (f for f in audit(video, labels, encoder=encoder, config=CONFIG).findings if f.fault == "frozen")
    assert (frozen.first, frozen.last) == (3, 9)


def test_a_still_video_may_have_labels_that_stand_still():
    still = make_world(WorldConfig(height_px=64, width_px=96, frames=20, still=True))
    labels = {t: Masks(still.mask(0)) for t in range(20)}
    video = open_video(still.video())
    assert faults(video, labels, OracleEncoder(still, stride_px=4)) == set()


def test_a_jump_is_found_and_so_is_the_way_back(video, encoder, truth):
    labels = dict(truth)
    labels[4] = Masks.of(np.roll(truth[4].ids, 48, axis=0))
    jumps = [f.first for f in audit(video, labels, encoder=encoder, config=CONFIG).findings if f.fault == "jump"]
    assert sorted(jumps) == [4, 5]


def test_labels_that_creep_off_are_found(video, encoder, truth):
    labels = {t: Masks.of(np.roll(masks.ids, 2 * t, axis=1)) for t, masks in truth.items() if t <= 20}
    assert "drift" in faults(video, labels, encoder)


def test_points_are_audited_too(world, video, encoder):
    def points(t: int) -> Keypoints:
        truth = world.keypoints(t)
        return Keypoints(truth.names, truth.xy, truth.visible)

    clean = {t: points(t) for t in range(12)}
    assert faults(video, clean, encoder) == set()
    wrong = points(6)
    first = int(np.flatnonzero(wrong.visible)[0])
    wrong.xy[first] = (wrong.xy[first] + 40) % 90
    assert "jump" in faults(video, clean | {6: wrong}, encoder)


def test_over_long_gaps_nothing_is_said(video, encoder, truth):
    assert faults(video, {t: truth[t] for t in (0, 10, 20, 30)}, encoder) == set()


def test_the_command_says_what_it_found_and_writes_it(tmp_path, capsys):
    world = small_world(frames=12)
    clip = write_clip(tmp_path / "clip.mp4", world)
    (tmp_path / "masks").mkdir()
    for t in range(12):
        ids = np.zeros_like(world.mask(t)) if 5 <= t < 9 else world.mask(t)
        Masks(ids).write(tmp_path / "masks" / f"{t:05d}.png")
    found = tmp_path / "audit.json"
    command = ["audit", str(clip), str(tmp_path / "masks"), "--encoder", "rgb", "--set", "image_size_px=64"]
    assert main([*command, "--json", str(found)]) == 0
    assert "dropped" in capsys.readouterr().out
    assert {finding["fault"] for finding in json.loads(found.read_text())["findings"]} >= {"dropped"}


def test_too_few_labels_are_refused(video, encoder, truth):
    with pytest.raises(LabelError, match="there are labels on 2 frames; give a labelled track"):
        audit(video, {0: truth[0], 1: truth[1]}, encoder=encoder, config=CONFIG)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A clip, and the folder of a run that propagated its masks."""
    folder = tmp_path_factory.mktemp("finished")
    world = small_world(frames=8)
    clip, mask = write_clip(folder / "clip.mp4", world), write_mask(folder / "first.png", world)
    assert main(["propagate", str(clip), str(mask), "-o", str(folder / "out"), "--encoder", "rgb"]) == 0
    return folder


def test_a_run_folder_is_audited_with_its_video_or_alone(finished, capsys):
    clip, run = str(finished / "clip.mp4"), str(finished / "out")
    told = []
    for words in ([clip, f"{run}/labels"], [clip, run], [run]):
        assert main(["audit", *words, "--encoder", "rgb"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] == told[2]
    assert "8 frames, " in told[0]


def test_a_run_of_points_is_audited_too(finished, tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text("frame,name,x,y\n0,nose,20,30\n0,tail,50,40\n")
    run = str(tmp_path / "out")
    assert main(["propagate", str(finished / "clip.mp4"), str(points), "-o", run, "--encoder", "rgb"]) == 0
    assert main(["audit", run, "--encoder", "rgb"]) == 0
    assert "8 frames, " in capsys.readouterr().out


def test_what_cannot_be_audited_says_why(finished, tmp_path, capsys):
    clip = str(finished / "clip.mp4")
    assert main(["audit", clip]) == 2
    assert f"no labels were given for {clip}" in capsys.readouterr().err
    run = str(tmp_path / "out")
    assert main(["propagate", clip, "--coordinates", "-o", run, "--encoder", "rgb"]) == 0
    assert main(["audit", run]) == 2
    assert "holds coordinates, which are not audited" in capsys.readouterr().err


def test_a_track_that_ends_early_is_audited_and_its_end_is_told(finished, tmp_path, capsys):
    (tmp_path / "masks").mkdir()
    for t in range(1, 5):
        (tmp_path / "masks" / f"{t:05d}.png").write_bytes((finished / "out" / "labels" / f"{t:05d}.png").read_bytes())
    assert main(["audit", str(finished / "clip.mp4"), str(tmp_path / "masks"), "--encoder", "rgb"]) == 0
    told = capsys.readouterr().out
    assert "4 frames, " in told
    assert (
        "labels are on 4 of the frames 0 to 7, the first on 1 and the last on 4: of the others nothing is known" in told
    )


def test_memory_is_bounded_by_what_the_checks_need(video, encoder, truth):
    """Coverage maps (the only half-precision tensors here) are dropped once no check looks at them any more."""
    limits = AuditConfig(reach=3, most_shift=2)
    alive = []

    def count(done: int, total: int) -> None:
        alive.append(sum(type(one) is torch.Tensor and one.dtype == torch.float16 for one in gc.get_objects()))

    audit(video, truth, encoder=encoder, config=CONFIG, limits=limits, progress=count)
    assert len(alive) == FRAMES
    assert max(alive) - alive[0] <= limits.reach + 2 * limits.most_shift + 2
