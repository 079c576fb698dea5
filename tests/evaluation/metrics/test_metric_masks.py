"""Laws of J and F, of the scores of objects, and of their mean, recall and decay; against slow references."""

import math

import numpy as np
import pytest
from davis_predictions import MANY_OBJECTS, WORLDS, world_ground_truth
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.metrics.masks import (
    average_objects,
    boundary,
    boundary_f,
    jaccard,
    score_frames,
    score_objects,
    summarise,
    tolerance_px,
)

some = settings(deadline=None, max_examples=30)

regions = arrays(bool, (6, 7))
sizes = st.tuples(st.integers(1, 12), st.integers(1, 14))
masks = sizes.flatmap(lambda size: arrays(bool, size))
pairs = sizes.flatmap(lambda size: st.tuples(arrays(bool, size), arrays(bool, size)))


def slow_boundary(mask):
    """The last row compares with the right neighbour only, the last column with the lower one only."""
    height, width = mask.shape
    edge = np.zeros_like(mask)
    for y in range(height):
        for x in range(width):
            near = [(y, x + 1), (y + 1, x), (y + 1, x + 1)]
            edge[y, x] = any(mask[q] != mask[y, x] for q in near if q[0] < height and q[1] < width)
    return edge


def slow_f(predicted, ground_truth, radius):
    edge, true_edge = (list(zip(*np.nonzero(slow_boundary(mask)), strict=True)) for mask in (predicted, ground_truth))
    if not edge or not true_edge:
        return float(not edge and not true_edge)

    def matched(pixels, others):
        near = [any((y - v) ** 2 + (x - u) ** 2 <= radius**2 for v, u in others) for y, x in pixels]
        return sum(near) / len(near)

    p, r = matched(edge, true_edge), matched(true_edge, edge)
    return 2 * p * r / (p + r) if p + r else 0.0


def disc(*, y, x, radius=60, height=480, width=854):
    rows, columns = np.mgrid[:height, :width]
    return (rows - y) ** 2 + (columns - x) ** 2 <= radius**2


@some
@given(masks)
def test_a_mask_matches_itself(mask):
    assert boundary_f(mask, mask) == 1


@some
@given(masks)
def test_boundary_equals_the_slow_reference(mask):
    assert (boundary(mask) == slow_boundary(mask)).all()
    assert (boundary(~mask) == boundary(mask)).all()


@some
@given(pairs, st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.4, 0.9]))
def test_boundary_f_equals_the_slow_reference_at_every_tolerance(pair, tolerance):
    predicted, ground_truth = pair
    radius = math.ceil(tolerance * math.sqrt(ground_truth.shape[0] ** 2 + ground_truth.shape[1] ** 2))
    assert tolerance_px(*ground_truth.shape, tolerance=tolerance) == radius
    f = boundary_f(predicted, ground_truth, tolerance=tolerance)
    assert f == pytest.approx(slow_f(predicted, ground_truth, radius), abs=1e-12)
    assert f == boundary_f(ground_truth, predicted, tolerance=tolerance)


@some
@given(pairs)
def test_a_greater_tolerance_never_lowers_f(pair):
    f = [boundary_f(*pair, tolerance=tolerance) for tolerance in (0, 0.05, 0.1, 0.3, 0.9)]
    assert f == sorted(f)


def test_the_tolerance_is_8_px_at_480p():
    assert tolerance_px(480, 854) == 8
    assert tolerance_px(1080, 1920) == 18


@pytest.mark.parametrize("shift", [(8, 0), (0, -8), (5, 6), (-4, 4)])
def test_a_shift_within_the_tolerance_costs_nothing(shift):
    ground_truth = disc(y=200, x=400)
    assert boundary_f(disc(y=200 + shift[0], x=400 + shift[1]), ground_truth) == 1


def test_a_shift_beyond_the_tolerance_lowers_f():
    ground_truth = disc(y=200, x=400)
    assert 0.2 < boundary_f(disc(y=200, x=420), ground_truth) < 0.8
    assert boundary_f(disc(y=200, x=600), ground_truth) == 0


def test_boundary_f_of_empty_and_full_masks():
    """A mask that fills the image has no boundary either."""
    empty, some, full = np.zeros((40, 50), bool), np.zeros((40, 50), bool), np.ones((40, 50), bool)
    some[10:20, 10:20] = True
    pairs = ((empty, empty), (empty, some), (some, empty), (full, full), (full, empty))
    assert [boundary_f(predicted, ground_truth) for predicted, ground_truth in pairs] == [1, 0, 0, 1, 1]


def test_an_object_cut_off_by_the_image_has_no_boundary_there():
    mask = np.zeros((20, 30), bool)
    mask[:, 10:] = True
    assert np.argwhere(boundary(mask)).tolist() == [[y, 9] for y in range(20)]


def test_a_tolerance_in_pixels_is_refused():
    with pytest.raises(SettingsError, match=r"the tolerance of boundaries is 8; give it as a fraction .* 0.008"):
        tolerance_px(480, 854, tolerance=8)


# Region similarity


@some
@given(regions)
def test_a_mask_overlaps_itself_fully(mask):
    assert jaccard(mask, mask) == 1


@some
@given(regions, regions)
def test_jaccard_is_symmetric_and_a_fraction(a, b):
    assert jaccard(a, b) == jaccard(b, a)
    assert 0 <= jaccard(a, b) <= 1


@some
@given(regions, regions, st.permutations(range(42)))
def test_jaccard_does_not_depend_on_the_order_of_pixels(a, b, order):
    def shuffled(mask):
        return mask.reshape(42)[order].reshape(6, 7)

    assert jaccard(a, b) == jaccard(shuffled(a), shuffled(b))


def test_two_empty_masks_agree_and_one_empty_mask_does_not():
    empty, full = np.zeros((4, 4), bool), np.ones((4, 4), bool)
    assert jaccard(empty, empty) == 1
    assert jaccard(empty, full) == jaccard(full, empty) == 0


def test_jaccard_of_two_squares_that_share_half():
    a, b = np.zeros((2, 8, 8), bool)
    a[:4, :4] = b[2:6, :4] = True
    assert jaccard(a, b) == 8 / 24


curves = st.lists(st.floats(0, 1), min_size=1, max_size=40).map(np.array)
ground_truth = world_ground_truth("world-a")


def test_the_ground_truth_scores_one():
    scores = average_objects(score_objects(ground_truth, ground_truth))
    assert (scores.JF, scores.J, scores.F, scores.J_recall, scores.F_recall) == (1, 1, 1, 1, 1)
    assert scores.J_decay == scores.F_decay == 0


def test_each_object_is_scored_as_its_own_mask_without_first_and_last_frame():
    predicted = MANY_OBJECTS["speckled"](ground_truth)
    for each in score_objects(predicted, ground_truth):
        masks = list(zip(predicted[1:-1] == each.id, ground_truth[1:-1] == each.id, strict=True))
        assert each.j.tolist() == [jaccard(*pair) for pair in masks]
        assert each.f.tolist() == [boundary_f(*pair) for pair in masks]


def test_first_and_last_frame_do_not_matter():
    predicted = ground_truth.copy()
    predicted[[0, -1]] = 0
    assert average_objects(score_objects(predicted, ground_truth)).JF == 1


def test_object_ids_do_not_matter():
    """Ids may have gaps and include 255."""
    table = np.array([0, 7, 255, 3, 40000], np.uint16)
    predicted = MANY_OBJECTS["swapped"](ground_truth)
    plain, renamed = score_objects(predicted, ground_truth), score_objects(table[predicted], table[ground_truth])
    assert [each.id for each in renamed] == [3, 7, 255, 40000]
    by_id = {each.id: each for each in renamed}
    for each in plain:
        assert by_id[int(table[each.id])].j.tolist() == each.j.tolist()
    assert average_objects(renamed) == pytest.approx(average_objects(plain))


def test_ids_that_enter_later_are_background():
    later = ground_truth.copy()
    later[5:, :10, :10] = 9
    later[later == ground_truth.max()] = 0
    assert [each.id for each in score_objects(ground_truth, later)] == list(range(1, ground_truth.max()))


def test_an_object_missing_in_the_prediction_scores_0_while_it_is_visible():
    scores = score_objects(MANY_OBJECTS["without_first"](ground_truth), ground_truth)
    visible = (ground_truth[1:-1] == 1).any(axis=(1, 2))
    assert (~visible).any()  # it is occluded for a while
    assert scores[0].j.tolist() == scores[0].f.tolist() == (~visible).tolist()
    assert all((each.j == 1).all() for each in scores[1:])


def test_objects_weigh_the_same_and_jf_is_the_mean_of_both():
    objects = [
        each for name in WORLDS for each in score_objects(world_ground_truth(name), world_ground_truth(name)[::-1])
    ]
    scores = average_objects(objects)
    assert pytest.approx(np.mean([each.j.mean() for each in objects])) == scores.J
    assert pytest.approx(np.mean([each.f.mean() for each in objects])) == scores.F
    assert pytest.approx((scores.J + scores.F) / 2) == scores.JF


def test_streamed_frames_score_the_same():
    predicted = MANY_OBJECTS["shifted"](ground_truth)
    streamed = score_frames((predicted[t], ground_truth[t]) for t in range(len(ground_truth)))
    assert average_objects(streamed) == average_objects(score_objects(predicted, ground_truth))


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_too_short_a_sequence_is_refused(frames):
    with pytest.raises(LabelError, match=f"a sequence of {frames} frames has none to score; give at least 3"):
        score_objects(ground_truth[:frames], ground_truth[:frames])


def test_a_first_frame_without_objects_is_refused():
    with pytest.raises(LabelError, match="the first frame of the ground truth has no object"):
        score_objects(ground_truth, np.zeros_like(ground_truth))


def test_a_different_number_of_frames_is_refused():
    with pytest.raises(LabelError, match="23 frames were predicted but the ground truth has 24"):
        score_objects(ground_truth[1:], ground_truth)


def test_a_different_size_is_refused():
    with pytest.raises(LabelError, match="frame 0 was predicted as 80x120 but its ground truth is 160x120"):
        score_objects(ground_truth[:, :, ::2], ground_truth)


def test_no_objects_are_refused():
    with pytest.raises(LabelError, match="there is no object to average"):
        average_objects([])


# Mean, recall and decay


@some
@given(st.floats(0, 1), st.integers(1, 40))
def test_a_constant_does_not_decay(value, frames):
    summary = summarise(np.full(frames, value))
    assert summary.mean == pytest.approx(value)
    assert summary.recall == (value > 0.5)
    assert summary.decay == pytest.approx(0)


@some
@given(curves)
def test_decay_of_reversed_scores_changes_its_sign_where_quarters_mirror(values):
    if len(values) % 4 == 1:
        assert summarise(values[::-1]).decay == pytest.approx(-summarise(values).decay)


@pytest.mark.parametrize(
    ("values", "decay"),
    [
        ([0.7], 0),
        ([1.0, 0.0], 1),  # borders 0 0 1 1 1: a quarter of one frame each
        ([1.0, 0.5, 0.0], 0.75 - 0.0),  # borders 0 1 1 2 2: halves go up, so the first quarter is longer
        ([1.0, 0.8, 0.4, 0.2], 0.9 - 0.3),  # borders 0 1 2 2 3: two frames each
        ([1.0, 1.0, 0.5, 0.0, 0.0], 1),
        ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 6),  # 9 8 7 and 3 2 1: both borders are included
    ],
)
def test_quarters_include_both_borders(values, decay):
    assert summarise(np.array(values)).decay == pytest.approx(decay)


def test_a_score_of_exactly_one_half_is_a_miss():
    assert summarise(np.array([0.5, 0.5, 0.500001, 1.0])).recall == 0.5


def test_quarters_of_long_sequences_do_not_overflow():
    """With indices of 8 bits the last quarter of 1001 frames would start before the first one ends."""
    values = np.linspace(1, 0, 1001)
    assert summarise(values).decay == pytest.approx(values[:251].mean() - values[750:].mean())


def test_a_frame_without_score_is_a_miss_and_left_out_of_the_mean():
    summary = summarise(np.array([1.0, np.nan, 1.0, 1.0]))
    assert summary.mean == 1
    assert summary.recall == 0.75
    assert np.isnan(summarise(np.array([np.nan])).mean)


def test_no_frames_are_refused():
    with pytest.raises(LabelError, match="there is no frame to summarise; score at least one frame"):
        summarise(np.array([]))
