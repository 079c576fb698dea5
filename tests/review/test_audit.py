"""Audits: correct labels give no findings and every kind of error is found, on a world with known features."""

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
def ground_truth(world):
    """All moving objects as one object."""
    return {t: Masks.of(world.mask(t) > 0) for t in range(FRAMES)}


def kinds(video, labels, encoder) -> set[str]:
    return {finding.kind for finding in audit(video, labels, encoder=encoder, config=CONFIG).findings}


def test_correct_labels_give_no_findings(world, video, encoder, ground_truth):
    everything = {t: Masks(world.mask(t)) for t in range(FRAMES)}
    assert kinds(video, ground_truth, encoder) == set()
    assert kinds(video, everything, encoder) == set()


@pytest.mark.parametrize("by", [-5, -1, 1, 2, 5])
def test_shifted_track_is_found_with_its_shift(video, encoder, ground_truth, by):
    shifted = {t: ground_truth[t + by] for t in ground_truth if t + by in ground_truth}
    findings = audit(video, shifted, encoder=encoder, config=CONFIG).findings
    (shift,) = (finding for finding in findings if finding.kind == "shift")
    first = min(shifted)
    assert f"{'early' if by > 0 else 'late'}: file {first} shows frame {first + by}" in shift.message


def test_identity_swap_is_found(world, video, encoder):
    table = np.array([0, 2, 1, 3], np.uint16)
    at = next(t for t in range(3, FRAMES) if {1, 2} <= set(np.unique(world.mask(t))))
    labels = {t: Masks(table[world.mask(t)]) if t >= at else Masks(world.mask(t)) for t in range(FRAMES)}
    findings = audit(video, labels, encoder=encoder, config=CONFIG).findings
    assert ("swap", at, "1 and 2") in {(finding.kind, finding.first, finding.object) for finding in findings}


def test_dropped_object_is_found_where_it_ends(video, encoder, ground_truth):
    labels = {t: Masks.of(np.zeros_like(masks.ids)) if 4 <= t < 8 else masks for t, masks in ground_truth.items()}
    findings = audit(video, labels, encoder=encoder, config=CONFIG).findings
    assert [finding.first for finding in findings if finding.kind == "dropped"] == [4]


def test_frozen_mask_is_found(world, video, encoder):
    one = {t: Masks.of(world.mask(t) == 1) for t in range(12)}
    labels = {t: one[2] if 2 <= t < 10 else masks for t, masks in one.items()}
    (frozen,) = (f for f in audit(video, labels, encoder=encoder, config=CONFIG).findings if f.kind == "frozen")
    assert (frozen.first, frozen.last) == (3, 9)


def test_unchanging_labels_of_a_static_video_give_no_findings():
    static = make_world(WorldConfig(height_px=64, width_px=96, frames=20, static=True))
    labels = {t: Masks(static.mask(0)) for t in range(20)}
    video = open_video(static.video())
    assert kinds(video, labels, OracleEncoder(static, stride_px=4)) == set()


def test_jump_is_found_there_and_back(video, encoder, ground_truth):
    labels = dict(ground_truth)
    labels[4] = Masks.of(np.roll(ground_truth[4].ids, 48, axis=0))
    jumps = [f.first for f in audit(video, labels, encoder=encoder, config=CONFIG).findings if f.kind == "jump"]
    assert sorted(jumps) == [4, 5]


def test_drift_is_found(video, encoder, ground_truth):
    labels = {t: Masks.of(np.roll(masks.ids, 2 * t, axis=1)) for t, masks in ground_truth.items() if t <= 20}
    assert "drift" in kinds(video, labels, encoder)


def test_keypoints_are_audited(world, video, encoder):
    def points(t: int) -> Keypoints:
        ground_truth = world.keypoints(t)
        return Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)

    clean = {t: points(t) for t in range(12)}
    assert kinds(video, clean, encoder) == set()
    wrong = points(6)
    first = int(np.flatnonzero(wrong.visible)[0])
    wrong.xy[first] = (wrong.xy[first] + 40) % 90
    assert "jump" in kinds(video, clean | {6: wrong}, encoder)


def test_labels_with_long_gaps_give_no_findings(video, encoder, ground_truth):
    assert kinds(video, {t: ground_truth[t] for t in (0, 10, 20, 30)}, encoder) == set()


def test_command_prints_findings_as_text_and_as_json(tmp_path, capsys):
    world = small_world(frames=12)
    clip = write_clip(tmp_path / "clip.mp4", world)
    (tmp_path / "masks").mkdir()
    for t in range(12):
        ids = np.zeros_like(world.mask(t)) if 5 <= t < 9 else world.mask(t)
        Masks(ids).write(tmp_path / "masks" / f"{t:05d}.png")
    command = ["audit", str(clip), str(tmp_path / "masks"), "--encoder", "rgb", "--set", "image_size_px=64"]
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    assert "dropped" in printed.err
    assert {finding["kind"] for finding in json.loads(printed.out)["findings"]} >= {"dropped"}


def test_labels_on_fewer_than_three_frames_are_refused(video, encoder, ground_truth):
    with pytest.raises(LabelError, match="there are labels on 2 frames only; give labels on at least 3"):
        audit(video, {0: ground_truth[0], 1: ground_truth[1]}, encoder=encoder, config=CONFIG)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a clip and a finished run of its masks."""
    folder = tmp_path_factory.mktemp("finished")
    world = small_world(frames=8)
    clip, mask = write_clip(folder / "clip.mp4", world), write_mask(folder / "first.png", world)
    assert main(["propagate", str(clip), str(mask), "-o", str(folder / "out"), "--encoder", "rgb"]) == 0
    return folder


def test_run_folder_is_audited_with_or_without_its_video(finished, capsys):
    clip, run = str(finished / "clip.mp4"), str(finished / "out")
    outputs = []
    for arguments in ([clip, f"{run}/labels"], [clip, run], [run]):
        assert main(["audit", *arguments, "--encoder", "rgb"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]
    assert "8 frames, " in outputs[0]


def test_run_of_keypoints_is_audited(finished, tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text("frame,name,x,y\n0,nose,20,30\n0,tail,50,40\n")
    run = str(tmp_path / "out")
    assert main(["propagate", str(finished / "clip.mp4"), str(points), "-o", run, "--encoder", "rgb"]) == 0
    assert main(["audit", run, "--encoder", "rgb"]) == 0
    assert "8 frames, " in capsys.readouterr().out


def test_inputs_that_cannot_be_audited_are_refused_with_the_reason(finished, tmp_path, capsys):
    clip = str(finished / "clip.mp4")
    assert main(["audit", clip]) == 2
    assert f"no labels were given for {clip}" in capsys.readouterr().err
    run = str(tmp_path / "out")
    assert main(["propagate", clip, "--coordinates", "-o", run, "--encoder", "rgb"]) == 0
    assert main(["audit", run]) == 2
    assert "holds coordinates, which cannot be audited" in capsys.readouterr().err


def test_track_that_ends_early_is_audited_and_its_range_printed(finished, tmp_path, capsys):
    (tmp_path / "masks").mkdir()
    for t in range(1, 5):
        (tmp_path / "masks" / f"{t:05d}.png").write_bytes((finished / "out" / "labels" / f"{t:05d}.png").read_bytes())
    assert main(["audit", str(finished / "clip.mp4"), str(tmp_path / "masks"), "--encoder", "rgb"]) == 0
    printed = capsys.readouterr().out
    assert "4 frames, " in printed
    assert (
        "only 4 of the frames 0 to 7 have labels, the first is 1 and the last 4: the others were not audited" in printed
    )


def test_memory_does_not_grow_with_the_track(video, encoder, ground_truth):
    """Coverage maps, the only half-precision tensors here, are dropped once no check needs them."""
    limits = AuditConfig(span_frames=3, max_shift_frames=2)
    alive = []

    def count(done: int, total: int) -> None:
        alive.append(sum(type(one) is torch.Tensor and one.dtype == torch.float16 for one in gc.get_objects()))

    gc.collect()
    gc.freeze()  # what exists already need not be counted on every frame
    try:
        audit(video, ground_truth, encoder=encoder, config=CONFIG, limits=limits, progress=count)
    finally:
        gc.unfreeze()
    assert len(alive) == FRAMES
    assert max(alive) - alive[0] <= limits.span_frames + 2 * limits.max_shift_frames + 2
