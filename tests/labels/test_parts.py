"""Parts: part and person of every pixel survive a file, and an annotated part constrains its whole person."""

import numpy as np
import pytest
import torch

from timecycle.errors import LabelError
from timecycle.grid import grid_over
from timecycle.labels.masks import Masks
from timecycle.labels.parts import Parts, PartSpace


def parts(pairs, *, exhaustive=False):
    """Make parts from pairs part * 1000 + person."""
    part, person = np.divmod(np.array(pairs), 1000)
    return Parts(part.astype(np.uint16), person.astype(np.uint16), exhaustive)


def test_parts_and_people_survive_a_file(tmp_path):
    part, person = np.meshgrid(np.arange(65, dtype=np.uint16), np.array([0, 1, 2, 500, 999], np.uint16))
    person = np.where(part == 0, 0, person).astype(np.uint16)
    Parts(part, person).write(tmp_path / "0.png")
    restored = Parts.read(tmp_path / "0.png")
    assert np.array_equal(restored.part, part)
    assert np.array_equal(restored.person, person)
    assert restored.size() == (5, 65)


def test_file_values_are_part_times_1000_plus_person(tmp_path):
    parts([[0, 3002], [7001, 64999]]).write(tmp_path / "0.png")
    assert Masks.read(tmp_path / "0.png").ids.tolist() == [[0, 3002], [7001, 64999]]


@pytest.mark.parametrize(("part", "person"), [(66, 1), (1, 1000)])
def test_too_large_numbers_are_refused(tmp_path, part, person):
    labels = Parts(np.full((2, 2), part, np.uint16), np.full((2, 2), person, np.uint16))
    with pytest.raises(LabelError, match=rf"0\.png cannot hold part {part} of person {person}; number parts up to 64"):
        labels.write(tmp_path / "0.png")
    assert list(tmp_path.iterdir()) == []


def test_every_pair_has_a_channel_after_the_background():
    space = Parts.space([parts([[1001, 2001]]), parts([[1002, 0]])])
    assert space.ids == (0, 1001, 1002, 2001)
    assert space.channels == 4


def test_annotated_part_constrains_its_whole_person_and_no_other():
    space = PartSpace((0, 1001, 2001, 1002))
    assert space.annotated_channels(parts([[0, 1001]])).tolist() == [True, True, True, False]
    assert space.annotated_channels(parts([[1002, 1002]])).tolist() == [True, False, False, True]
    assert space.annotated_channels(parts([[0, 0]], exhaustive=True)).all()


def test_background_does_not_constrain_parts_of_person_0():
    """Files without people use person 0, as the background does."""
    space = PartSpace((0, 1000, 2000, 1001))
    assert space.annotated_channels(parts([[0, 1001]])).tolist() == [True, False, False, True]
    assert space.annotated_channels(parts([[0, 1000]])).tolist() == [True, True, True, False]
    result = space.restore_annotated(parts([[0, 1001, 0]]), parts([[2000, 2000, 1001]]))
    assert result.pairs.tolist() == [[2000, 1001, 0]]


def test_annotated_people_are_restored_and_others_stay_as_decoded():
    space = PartSpace((0, 1001, 2001, 1002))
    annotation = parts([[1001, 0, 0, 0]])
    decoded = parts([[1002, 2001, 1002, 0]])
    assert space.restore_annotated(annotation, decoded).pairs.tolist() == [[1001, 0, 1002, 0]]


def test_new_pairs_are_appended_as_channels():
    assert PartSpace((0, 2001)).extended(parts([[0, 1002, 1001, 2001]])).ids == (0, 2001, 1001, 1002)


def test_encoded_parts_sum_to_one_and_large_parts_are_decoded():
    pairs = np.zeros((65, 65), np.int64)
    pairs[:32, 32:] = 1001
    pairs[32:, 32:] = 64999
    labels = parts(pairs)
    grid = grid_over(65, 65, cells=(9, 9), stride_px=8, first_px=0)
    space = Parts.space([labels])
    values = space.encode(labels, grid)
    assert torch.allclose(values.sum(dim=-1), torch.ones(9, 9), atol=1e-5)
    restored = space.decode(values, grid)
    assert (restored.pairs == pairs).mean() > 0.95
    assert set(np.unique(restored.pairs)) == {0, 1001, 64999}


def test_accuracy_of_a_part_is_its_intersection_over_union():
    old, new = parts([[1001, 1001, 2001, 0]]), parts([[0, 1001, 1001, 0]])
    assert [old.accuracy(name, new, tolerance_px=0) for name in ("1001", "2001", "3001")] == [1 / 3, 0.0, None]


def test_resampled_parts_keep_part_and_person_together():
    taken = parts([[1001, 2002], [0, 3003]]).resampled(np.array([[1, 0]]), np.array([[1, 0]]))
    assert taken.pairs.tolist() == [[3003, 1001]]
