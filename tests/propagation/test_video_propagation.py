"""Propagation on the synthetic world with oracle features, and its laws."""

import dataclasses

import numpy as np
import pytest
import torch

from oracle import OracleEncoder, iou
from timecycle.errors import LabelError, VideoError
from timecycle.grid import grid_over
from timecycle.labels import Coordinates, Keypoints, Masks, Parts, Texture, striped
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import count_steps, propagate
from timecycle.propagation.workfolder import WorkFolder
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

SMALL = WorldConfig(height_px=97, width_px=129, frames=24, objects=3)
CONFIG = PropagateConfig(temperature=0.05, window_px=32, anchor_window_px=None)


@pytest.fixture(scope="module")
def world():
    return make_world(SMALL)


@pytest.fixture(scope="module")
def encoder(world):
    return OracleEncoder(world, stride_px=4)


def propagated(world, labels, encoder, config=CONFIG, **options):
    return list(propagate(open_video(world.video()), labels, encoder=encoder, config=config, **options))


def points(world, t):
    ground_truth = world.keypoints(t)
    return Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)


def only(world, t, identity):
    """Return one object of the ground truth."""
    return Masks(np.where(world.mask(t) == identity, identity, 0).astype(np.uint16))


@pytest.mark.slow  # a hundred frames of 5,000 cells: the length and the resolution are what is tested
def test_masks_follow_the_ground_truth_through_occlusion_and_a_late_object():
    world = make_world(WorldConfig(height_px=241, width_px=321, frames=100, objects=3))
    encoder = OracleEncoder(world, stride_px=4)
    area = np.array([[(world.mask(t) == i).sum() for i in world.ids] for t in range(100)])
    share = area / area.max(axis=0)
    late = int(np.argmax(share[:, 2] > 0.9))
    labels = {0: Masks(world.mask(0)), late: only(world, late, 3)}
    config = dataclasses.replace(CONFIG, window_px=24)
    scores = []
    for frame in propagated(world, labels, encoder, config):
        ground_truth = world.mask(frame.index)
        for i in world.ids:
            predicted = frame.labels.ids == i
            if share[frame.index, i - 1] > 0.3:
                scores.append(iou(predicted, ground_truth == i))
            if area[frame.index, i - 1] == 0:
                # A few cells may keep the label of an object that has left.
                left = predicted.sum() / area[:, i - 1].max()
                assert left < 0.012, f"object {i} is not there on frame {frame.index}"
    assert (share[:, 0] == 0).any(), "the first object is hidden for a while"
    assert np.mean(scores) >= 0.99
    assert np.min(scores) >= 0.95


@pytest.mark.slow  # a hundred frames, as above
def test_keypoints_stay_within_a_cell_of_the_ground_truth():
    world = make_world(WorldConfig(height_px=121, width_px=161, frames=100, objects=3))
    late = next(t for t in range(100) if world.keypoints(t).visible[10:].all())
    third = points(world, late)
    labels = {0: points(world, 0), late: Keypoints(third.names[10:], third.xy[10:], third.visible[10:])}
    encoder = OracleEncoder(world, stride_px=4)
    for frame in propagated(world, labels, encoder):
        ground_truth = world.keypoints(frame.index)
        both = ground_truth.visible & frame.labels.visible
        distance = np.abs(frame.labels.xy - ground_truth.xy).max(axis=1)
        assert (distance[both] <= 4).all()
        assert both.sum() >= 0.8 * ground_truth.visible.sum()


def test_a_mirrored_video_gives_mirrored_labels():
    """On grids that are symmetric over the image: a ResNet's, centred on pixel 0, and one of patches of 5 px."""
    for size, stride_px, first_px in ((129, 4, 0.0), (130, 5, 2.0)):
        world = make_world(WorldConfig(height_px=size, width_px=size, frames=8, objects=3))
        seen = []
        for side in (world, world.mirrored()):
            encoder = OracleEncoder(side, stride_px=stride_px, first_px=first_px)
            seen.append(propagated(side, {0: Masks(side.mask(0))}, encoder))
        for straight, mirrored in zip(*seen, strict=True):
            # Scores that differ only by rounding may be ranked otherwise in the mirror: a pixel here and there.
            assert (straight.labels.ids == mirrored.labels.ids[:, ::-1]).mean() > 0.9995


def test_a_vanished_object_stays_background(world, encoder):
    frames = propagated(world, {0: Masks(world.mask(0))}, encoder)
    gone = [t for t in range(SMALL.frames) if not (world.mask(t) == 2).any()]
    assert gone
    assert not any((frames[t].labels.ids == 2).any() for t in gone)


def test_an_empty_mask_stays_empty(world, encoder):
    empty = Masks(np.zeros((SMALL.height_px, SMALL.width_px), np.uint16))
    assert all((frame.labels.ids == 0).all() for frame in propagated(world, {0: empty}, encoder))


def test_every_kind_is_propagated_without_nan(world, encoder):
    mask = Masks(world.mask(0))
    parts = Parts((mask.ids > 0).astype(np.uint16) * 3, mask.ids)
    kinds = [mask, parts, points(world, 0), striped(mask), Coordinates.of_image(SMALL.height_px, SMALL.width_px)]
    images = world.video()[:5]
    for given in kinds:
        for config in (CONFIG, dataclasses.replace(CONFIG, weighting="per_reference", stretch=True, repeat_first=True)):
            *_, frame = propagate(open_video(images), {0: given}, encoder=encoder, config=config)
            last = frame.labels
            assert type(last) is type(given)
            if isinstance(last, Keypoints):  # a point that is nowhere has no position
                assert np.array_equal(np.isfinite(last.xy).all(axis=1), last.visible)
                continue
            arrays = [getattr(last, field.name) for field in dataclasses.fields(last)]
            assert all(np.isfinite(a).all() for a in arrays if isinstance(a, np.ndarray))


def test_coordinates_give_the_true_flow(world, encoder):
    identity = Coordinates.of_image(SMALL.height_px, SMALL.width_px)
    frame = propagated(world, {0: identity}, encoder)[4]
    ground_truth = world.flow(4, 0)
    came_from = identity.xy + ground_truth.displacement
    error = np.linalg.norm(frame.labels.xy - came_from, axis=-1)[ground_truth.visible]
    assert np.median(error) < 2  # half a cell


def test_a_texture_follows_its_object(world, encoder):
    frame = propagated(world, {0: striped(only(world, 0, 2))}, encoder)[6]
    painted = frame.labels.rgba[..., 3] > 127
    assert iou(painted, world.mask(6) == 2) > 0.85


def test_annotated_labels_are_returned_exactly(world, encoder):
    labels = {0: Masks(world.mask(0)), 12: Masks(world.mask(12))}
    frames = propagated(world, labels, encoder)
    for t, given in labels.items():
        assert frames[t].source == "annotated"
        assert (frames[t].labels.ids == given.ids).all()
    assert (frames[5].source, frames[-1].source) == ("blended", "propagated")


def test_annotating_one_object_later_leaves_the_others_propagated(world, encoder):
    frames = propagated(world, {0: Masks(world.mask(0)), 6: only(world, 6, 1)}, encoder)
    here = frames[6].labels.ids
    assert (here == 1).sum() == (world.mask(6) == 1).sum()
    assert iou(here == 2, world.mask(6) == 2) > 0.85


def test_an_exhaustive_annotation_removes_objects_it_does_not_show(world, encoder):
    """Object 9 is a mistake on the background; an exhaustive annotation without it must remove it for good."""
    mistaken = world.mask(0).copy()
    mistaken[-24:, -24:] = 9
    right = Masks(world.mask(6), exhaustive=True)
    config = dataclasses.replace(CONFIG, direction="forward", anchor_window_px=4)
    frames = propagated(world, {0: Masks(mistaken), 6: right}, encoder, config)
    assert (frames[5].labels.ids == 9).sum() > 400
    assert all((frame.labels.ids == 9).sum() < 100 for frame in frames[7:12])


def boxed(identity, box, *, exhaustive=False):
    """Annotate one object as a box."""
    ids = Masks.of_box(SMALL.height_px, SMALL.width_px, box).ids * np.uint16(identity)
    return Masks(ids, exhaustive=exhaustive)


@pytest.mark.parametrize("exhaustive", [False, True])
def test_a_correction_wins_over_earlier_propagated_labels(world, encoder, exhaustive):
    """Object 1 drifted onto object 2 long ago; annotated where it really is, it must not return there."""
    slid = np.where(world.mask(0) == 2, 1, 0).astype(np.uint16)
    slid[-20:, :20] = 5  # another object, so that the past frames still know something after the correction
    right = boxed(1, (110, 0, 128, 16), exhaustive=exhaustive)
    config = dataclasses.replace(CONFIG, direction="forward", anchor_frames=1)
    state = Propagator(encoder, config)
    for t in range(14):
        predicted = state.step(world.frame(t), {0: Masks(slid), 9: right}.get(t)).ids
        if t == 8:
            assert iou(predicted == 1, world.mask(8) == 2) > 0.7
        if t > 9:
            assert ((predicted == 1) & (world.mask(t) == 2)).sum() < 0.1 * (world.mask(t) == 2).sum()


def test_an_object_propagated_onto_an_annotated_frame_can_be_corrected(world, encoder):
    """Frame 4 has object 2 annotated and object 1 propagated; annotating object 1 on frame 8 removes the latter."""
    drawn = {0: boxed(1, (20, 20, 50, 50)), 4: boxed(2, (70, 60, 90, 80)), 8: boxed(1, (100, 10, 120, 30))}
    space = Masks.space(list(drawn.values()))
    state = Propagator(encoder, CONFIG, space)
    for t in range(9):
        state.advance(t, world.frame(t), drawn.get(t))
    one, two = space.ids.index(1), space.ids.index(2)
    past = [frame.labels for frame in state.memory if frame.index in (4, 5, 6, 7)]
    assert len(past) == 4
    assert not any(labels.known[one] or labels.values[..., one].any() for labels in past)
    assert all(labels.known[two] for labels in past)


def test_the_newest_annotated_frame_is_never_dropped_from_memory(world, encoder):
    state = Propagator(encoder, dataclasses.replace(CONFIG, anchor_frames=1, past_frames=0, older_frames=0))
    state.step(world.frame(0), only(world, 0, 1))
    state.step(world.frame(1), Masks(only(world, 1, 2).ids))
    assert [frame.index for frame in state.memory] == [1]


def test_the_only_annotated_frame_of_an_object_is_kept_before_redundant_ones(world, encoder):
    state = Propagator(encoder, dataclasses.replace(CONFIG, anchor_frames=3))
    for t, identity in enumerate((1, 2, 1, 1)):
        state.step(world.frame(t), only(world, t, identity))
    assert [frame.index for frame in state.memory.anchors] == [0, 1, 3]


@pytest.mark.parametrize("k", [1, 5, 10])
def test_an_object_annotated_late_has_no_holes_for_any_k(world, encoder, k):
    """More past frames than k do not know the object: they must not use up its votes."""
    frames = propagated(
        world,
        {0: only(world, 0, 1), 9: only(world, 9, 2)},
        encoder,
        dataclasses.replace(CONFIG, direction="forward", neighbours=k),
    )
    for t in (10, 12):
        assert iou(frames[t].labels.ids == 2, world.mask(t) == 2) > 0.8


def test_a_static_uniform_video_keeps_labels_in_place():
    """All scores are equal: the nearest cell must win, or labels would drift."""

    class Flat:
        name, sha256, description = "flat", "0" * 64, "exact"

        def encode(self, image):
            return FeatureMap(torch.ones(12, 16, 4) / 2, grid_over(89, 121, cells=(12, 16), stride_px=8, first_px=0))

    box = Masks.of_box(89, 121, (32, 24, 80, 64))
    grey = np.full((6, 89, 121, 3), 128, np.uint8)
    config = PropagateConfig(neighbours=9, sharpening=1)  # which would round the corners off
    for frame in propagate(open_video(grey), {0: box}, encoder=Flat(), config=config):
        assert iou(frame.labels.ids > 0, box.ids > 0) > 0.85


def test_keypoints_keep_one_order(world, encoder):
    first = Keypoints(("a", "b"), np.array([[20, 20], [60, 40]], np.float32), np.ones(2, bool))
    later = Keypoints(("b", "a"), np.array([[61, 40], [21, 20]], np.float32), np.ones(2, bool))
    frames = propagated(world, {0: first, 3: later}, encoder)
    assert {frame.labels.names for frame in frames} == {("a", "b")}
    assert frames[3].labels.xy.tolist() == [[21, 20], [61, 40]]


def test_labels_of_another_kind_in_a_stream_are_refused(world, encoder):
    state = Propagator(encoder, CONFIG)
    state.step(world.frame(0), Masks(world.mask(0)))
    with pytest.raises(LabelError, match="the stream propagates masks but frame 1 was annotated with keypoints"):
        state.step(world.frame(1), points(world, 1))


def test_frames_before_an_objects_annotation_do_not_vote_against_it(world, encoder):
    """Past frames that do not know a new object outnumber the one that shows it: the object must survive."""
    frames = propagated(world, {0: only(world, 0, 1), 4: only(world, 4, 2)}, encoder)
    assert iou(frames[5].labels.ids == 2, world.mask(5) == 2) > 0.85
    assert iou(frames[8].labels.ids == 2, world.mask(8) == 2) > 0.85


def test_labels_of_a_middle_frame_are_propagated_both_ways(world, encoder):
    frames = propagated(world, {6: Masks(world.mask(6))}, encoder)
    assert len(frames) == SMALL.frames
    for t in (0, 3, 9):
        assert iou(frames[t].labels.ids == 2, world.mask(t) == 2) > 0.85


def test_forward_leaves_earlier_frames_empty(world, encoder):
    frames = propagated(world, {6: Masks(world.mask(6))}, encoder, dataclasses.replace(CONFIG, direction="forward"))
    assert all((frames[t].labels.ids == 0).all() for t in range(6))
    assert [frames[t].source for t in (5, 6, 7)] == ["unknown", "annotated", "propagated"]
    assert iou(frames[9].labels.ids == 2, world.mask(9) == 2) > 0.85


def test_between_two_annotated_frames_the_nearer_weighs_more(world, encoder):
    """A wrong annotation at the end affects the frames near it, and not those near the start."""
    wrong = Masks(np.where(world.mask(12) == 2, 2, 0).astype(np.uint16))
    wrong.ids[:] = np.where(wrong.ids == 2, 1, 0)
    frames = propagated(world, {0: only(world, 0, 2), 12: dataclasses.replace(wrong, exhaustive=True)}, encoder)
    assert iou(frames[2].labels.ids == 2, world.mask(2) == 2) > 0.8
    assert iou(frames[10].labels.ids == 1, world.mask(10) == 2) > 0.8


def test_propagation_is_deterministic(world, encoder):
    labels = {0: Masks(world.mask(0)), 9: only(world, 9, 1)}
    once, again = (propagated(world, labels, encoder) for _ in range(2))
    assert all((a.labels.ids == b.labels.ids).all() for a, b in zip(once, again, strict=True))


def test_a_video_of_one_frame_returns_its_annotation(world, encoder):
    video = open_video(world.video()[:1])
    (frame,) = propagate(video, {0: Masks(world.mask(0))}, encoder=encoder, config=CONFIG)
    assert (frame.labels.ids == world.mask(0)).all()


def test_a_stream_of_steps_equals_the_generator(world, encoder):
    state = Propagator(encoder, CONFIG)
    stepped = [state.step(world.frame(t), Masks(world.mask(0)) if t == 0 else None) for t in range(SMALL.frames)]
    whole = propagated(world, {0: Masks(world.mask(0))}, encoder)
    assert all((a.ids == b.labels.ids).all() for a, b in zip(stepped, whole, strict=True))


def test_a_propagator_accepts_frames_of_a_video(world, encoder):
    frame = open_video(world.video()[:1])[0]
    assert (Propagator(encoder, CONFIG).step(frame, Masks(world.mask(0))).ids == world.mask(0)).all()


def test_a_propagator_accepts_new_objects_at_any_step(world, encoder):
    state = Propagator(encoder, CONFIG)
    state.step(world.frame(0), only(world, 0, 1))
    for t in range(1, 5):
        assert set(np.unique(state.step(world.frame(t)).ids)) <= {0, 1}
    state.step(world.frame(5), only(world, 5, 2))
    predicted = state.step(world.frame(6)).ids
    assert iou(predicted == 2, world.mask(6) == 2) > 0.85


def test_memory_holds_only_reference_frames(world, encoder):
    state = Propagator(encoder, dataclasses.replace(CONFIG, past_frames=3, anchor_frames=2))
    for t in range(SMALL.frames):
        state.step(world.frame(t), Masks(world.mask(t)) if t % 4 == 0 else None)
        assert len(state.memory) <= 5
    assert state.memory.anchors[0].index == 0


@pytest.mark.parametrize("stop", [3, 11, 17])
def test_a_resumed_stream_equals_an_uninterrupted_one(world, encoder, tmp_path, monkeypatch, stop):
    monkeypatch.setattr("timecycle.propagation.video._SNAPSHOT_FRAMES", 5)
    labels = {0: Masks(world.mask(0)), 9: only(world, 9, 1)}
    whole = propagated(world, labels, encoder)
    work = WorkFolder(tmp_path)
    stream = propagate(open_video(world.video()), labels, encoder=encoder, config=CONFIG, work=work)
    for _ in range(stop):
        next(stream)
    stream.close()
    steps = count_steps(open_video(world.video()), labels, CONFIG, work)
    rest = propagated(world, labels, encoder, work=work)
    assert rest[0].index == stop // 5 * 5 - (5 if stop % 5 == 0 else 0)
    assert len(rest) == steps
    assert all((a.labels.ids == b.labels.ids).all() for a, b in zip(rest, whole[rest[0].index :], strict=True))


def test_labels_for_a_missing_frame_are_refused(world, encoder):
    with pytest.raises(LabelError, match=r"labels were given for frame 99 but array has frames 0 to 23; number frames"):
        propagated(world, {99: Masks(world.mask(0))}, encoder)


def test_labels_of_another_size_are_refused(world, encoder):
    with pytest.raises(
        LabelError, match=r"labels of frame 0 are 10x10 but the frame is 129x97; draw them on the frame"
    ):
        propagated(world, {0: Masks(np.zeros((10, 10), np.uint16))}, encoder)


def test_labels_of_two_kinds_are_refused(world, encoder):
    with pytest.raises(LabelError, match="labels of different kinds were given: keypoints, masks"):
        propagated(world, {0: Masks(world.mask(0)), 1: points(world, 1)}, encoder)


def test_a_stream_without_labels_is_refused(world, encoder):
    with pytest.raises(LabelError, match="the stream has no labels yet; pass labels with its first frame"):
        Propagator(encoder).step(world.frame(0))


def test_a_stream_whose_frames_change_size_is_refused(world, encoder):
    state = Propagator(encoder, CONFIG)
    state.step(world.frame(0), Masks(world.mask(0)))
    with pytest.raises(VideoError, match="frame 1 is 64x48 but the frames before it are 129x97"):
        state.step(np.zeros((48, 64, 3), np.uint8))


def test_aggregated_labels_stay_a_distribution(world, encoder):
    for weighting in ("joint", "per_reference"):
        config = dataclasses.replace(CONFIG, weighting=weighting)
        state = Propagator(encoder, config, Masks.space([Masks(world.mask(0))]))
        state.advance(0, world.frame(0), Masks(world.mask(0)))
        values = state.advance(1, world.frame(1)).values
        assert torch.allclose(values.sum(dim=-1), torch.ones(values.shape[:2]), atol=1e-5)


def test_a_texture_survives_writing_and_reading(tmp_path, world):
    texture = striped(Masks(world.mask(0)))
    texture.write(tmp_path / "t.png")
    assert (Texture.read(tmp_path / "t.png").rgba == texture.rgba).all()
