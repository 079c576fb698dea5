"""Laws of object scores."""

import numpy as np
import pytest
from davis_predictions import MANY_OBJECTS, WORLDS, world_truth

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.boundaries import boundary_f
from timecycle.evaluation.metrics.objects import FramePair, average_objects, score_frames, score_objects
from timecycle.evaluation.metrics.regions import jaccard

truth = world_truth("world-a")


def test_a_perfect_prediction():
    scores = average_objects(score_objects(truth, truth))
    assert (scores.JF, scores.J, scores.F, scores.J_recall, scores.F_recall) == (1, 1, 1, 1, 1)
    assert scores.J_decay == scores.F_decay == 0


def test_each_object_is_its_own_mask_without_first_and_last_frame():
    predicted = MANY_OBJECTS["speckled"](truth)
    for each in score_objects(predicted, truth):
        masks = list(zip(predicted[1:-1] == each.id, truth[1:-1] == each.id, strict=True))
        assert each.j.tolist() == [jaccard(*pair) for pair in masks]
        assert each.f.tolist() == [boundary_f(*pair) for pair in masks]


def test_first_and_last_frame_do_not_matter():
    predicted = truth.copy()
    predicted[[0, -1]] = 0
    assert average_objects(score_objects(predicted, truth)).JF == 1


def test_names_of_objects_do_not_matter():
    """Gaps between ids, and 255, are as good as 1, 2, 3."""
    table = np.array([0, 7, 255, 3, 40000], np.uint16)
    predicted = MANY_OBJECTS["swapped"](truth)
    plain, renamed = score_objects(predicted, truth), score_objects(table[predicted], table[truth])
    assert [each.id for each in renamed] == [3, 7, 255, 40000]
    by_id = {each.id: each for each in renamed}
    for each in plain:
        assert by_id[int(table[each.id])].j.tolist() == each.j.tolist()
    assert average_objects(renamed) == pytest.approx(average_objects(plain))


def test_ids_that_enter_later_are_background():
    later = truth.copy()
    later[5:, :10, :10] = 9
    later[later == truth.max()] = 0
    assert [each.id for each in score_objects(truth, later)] == list(range(1, truth.max()))


def test_an_object_missing_in_the_prediction_scores_0_while_it_is_there():
    scores = score_objects(MANY_OBJECTS["without_first"](truth), truth)
    there = (truth[1:-1] == 1).any(axis=(1, 2))
    assert (~there).any()  # it hides behind another for a while
    assert scores[0].j.tolist() == scores[0].f.tolist() == (~there).tolist()
    assert all((each.j == 1).all() for each in scores[1:])


def test_objects_weigh_the_same_and_jf_is_the_mean_of_both():
    objects = [each for name in WORLDS for each in score_objects(world_truth(name), world_truth(name)[::-1])]
    scores = average_objects(objects)
    assert pytest.approx(np.mean([each.j.mean() for each in objects])) == scores.J
    assert pytest.approx(np.mean([each.f.mean() for each in objects])) == scores.F
    assert pytest.approx((scores.J + scores.F) / 2) == scores.JF


def test_frames_may_come_one_by_one():
    predicted = MANY_OBJECTS["shifted"](truth)
    streamed = score_frames(FramePair(predicted[t], truth[t]) for t in range(len(truth)))
    assert average_objects(streamed) == average_objects(score_objects(predicted, truth))


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_too_short_a_sequence_is_refused(frames):
    with pytest.raises(LabelError, match=f"a sequence of {frames} frames has none to score; give at least 3"):
        score_objects(truth[:frames], truth[:frames])


def test_a_first_frame_without_objects_is_refused():
    with pytest.raises(LabelError, match="the first frame of the truth shows no object"):
        score_objects(truth, np.zeros_like(truth))


def test_another_number_of_frames_is_refused():
    with pytest.raises(LabelError, match="23 frames were predicted but the truth has 24"):
        score_objects(truth[1:], truth)


def test_another_size_is_refused():
    with pytest.raises(LabelError, match="frame 0 was predicted as 80x120 but its truth is 160x120"):
        score_objects(truth[:, :, ::2], truth)


def test_no_objects_are_refused():
    with pytest.raises(LabelError, match="there is no object to average"):
        average_objects([])
