"""Confidence: where cycles lie, each way by name, then the stream's own."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from clips import small_world
from oracle import OracleEncoder
from timecycle.errors import LabelError, SettingsError
from timecycle.grid import grid_over
from timecycle.labels import Coordinates, Keypoints, Masks
from timecycle.labels.space import silence
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.confidence import (
    Confidence,
    ObjectConfidence,
    TrustConfig,
    certain,
    fitted,
    judge,
    least_sure,
)
from timecycle.propagation.evidence import CELL_SIGNALS, SIGNALS, Evidence, Witness, gather
from timecycle.propagation.judge import Judge
from timecycle.propagation.memory import Memory, Remembered
from timecycle.propagation.neighbours import Packing
from timecycle.propagation.propagate import LabelledFrame, propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.trail import Trail, joined
from timecycle.propagation.window import Window
from timecycle.video import open_video

ROWS, COLUMNS = 14, 20
GRID = grid_over(ROWS * 8, COLUMNS * 8, cells=(ROWS, COLUMNS), stride_px=8, first_px=0)
CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)

# Frames by hand: a background whose every cell is itself, and things that lie on it.


def texture(seed: int, rows: int = ROWS, columns: int = COLUMNS) -> torch.Tensor:
    return F.normalize(torch.randn(rows, columns, 64, generator=torch.Generator().manual_seed(seed)), dim=-1)


def thing(seed: int, side: int = 5) -> torch.Tensor:
    return texture(seed, side, side)


def put(background: torch.Tensor, *things: tuple[torch.Tensor, int, int]) -> torch.Tensor:
    """A frame with things whose first cells are at (row, column)."""
    frame = background.clone()
    for features, row, column in things:
        frame[row : row + len(features), column : column + len(features)] = features
    return frame


def cover(*places: tuple[int, int], side: int = 5) -> torch.Tensor:
    """What objects of that size at (row, column) cover, (rows, columns, objects)."""
    extent = torch.zeros(ROWS, COLUMNS, len(places))
    for i, (row, column) in enumerate(places):
        extent[row : row + side, column : column + side, i] = 1
    return extent


def witness(frame: torch.Tensor, extent: torch.Tensor) -> Witness:
    return Witness(frame, extent.flatten(0, 1), Packing(), torch.ones(extent.shape[2], dtype=torch.bool))


def judged(
    frame: torch.Tensor, extent: torch.Tensor, *, past: Witness, drawing: Witness
) -> tuple[Evidence, Confidence]:
    objects = extent.shape[2]
    evidence = gather(
        frame,
        extent,
        packing=Packing(),
        trail=Trail.begin(objects).after(torch.ones(objects), None),
        past=past,
        drawings=[drawing],
        window=Window(8.0, "disc"),
        drawing_window=Window(8.0, "disc"),
    )
    return evidence, judge(evidence, tuple("abc"[:objects]), GRID, form="outline")


def signal(evidence: Evidence, name: str) -> float:
    return float(evidence.objects[0, SIGNALS.index(name)])


def test_a_track_that_stands_still_closes_its_cycles_and_is_found_out_by_the_drawing():
    background, object_ = texture(0), thing(1)
    first = put(background, (object_, 4, 3))
    later = put(background, (object_, 4, 9))
    stuck, right = cover((4, 3)), cover((4, 9))
    drawing = witness(first, stuck)
    wrong_evidence, wrong = judged(later, stuck, past=witness(later, stuck), drawing=drawing)
    _, true = judged(later, right, past=witness(later, right), drawing=drawing)
    assert signal(wrong_evidence, "past_return") == 1.0
    assert signal(wrong_evidence, "past_labels") == 1.0
    assert signal(wrong_evidence, "drawing_agreement") < 0.2
    assert signal(wrong_evidence, "appearance") < 0.5
    assert wrong.value < true.value - 0.2


def test_two_that_swap_their_labels_are_found_out_by_the_drawing():
    background, a, b = texture(0), thing(1), thing(2)
    first, later = put(background, (a, 4, 2), (b, 4, 9)), put(background, (a, 4, 8), (b, 4, 2))
    drawing = witness(first, cover((4, 2), (4, 9)))
    right, swapped = cover((4, 8), (4, 2)), cover((4, 2), (4, 8))
    evidence, wrong = judged(later, swapped, past=witness(later, swapped), drawing=drawing)
    _, true = judged(later, right, past=witness(later, right), drawing=drawing)
    assert signal(evidence, "past_labels") == 1.0
    assert signal(evidence, "drawing_labels") < 0.2
    assert wrong.value < true.value - 0.2


def test_a_plain_surface_does_not_come_home_and_is_trusted_nevertheless():
    background = texture(0)
    plain = thing(1)[:1, :1].expand(5, 5, -1)
    first, later = put(background, (plain, 4, 3)), put(background, (plain, 4, 7))
    evidence, confidence = judged(
        later, cover((4, 7)), past=witness(first, cover((4, 3))), drawing=witness(first, cover((4, 3)))
    )
    assert signal(evidence, "drawing_return") < 0.9  # every cell of it is as good as every other
    assert signal(evidence, "drawing_agreement") == 1.0
    assert confidence.state == "visible"


def test_half_a_cell_of_motion_is_no_error():
    smooth = F.avg_pool2d(texture(0).permute(2, 0, 1)[None], 3, stride=1, padding=1)[0].permute(1, 2, 0)
    frame = F.normalize(smooth, dim=-1)
    moved = F.normalize((frame + frame.roll(1, dims=1)) / 2, dim=-1)
    evidence, confidence = judged(
        moved, cover((4, 6)), past=witness(frame, cover((4, 6))), drawing=witness(frame, cover((4, 6)))
    )
    assert signal(evidence, "past_return") == 1.0
    assert confidence.state == "visible"


def test_a_surface_never_seen_before_is_doubted_but_not_given_up():
    background, object_ = texture(0), thing(1)
    turned = object_.clone()
    turned[:, 3:] = thing(5)[:, 3:]
    first, later = put(background, (object_, 4, 3)), put(background, (turned, 4, 5))
    drawing = witness(first, cover((4, 3)))
    _, same = judged(put(background, (object_, 4, 5)), cover((4, 5)), past=drawing, drawing=drawing)
    evidence, confidence = judged(later, cover((4, 5)), past=drawing, drawing=drawing)
    assert 0.5 < signal(evidence, "drawing_agreement") < 0.8
    assert 0.4 < confidence.value < same.value
    assert confidence.state != "lost"


def test_an_object_that_is_nowhere_is_occluded():
    background, object_ = texture(0), thing(1)
    drawing = witness(put(background, (object_, 4, 3)), cover((4, 3)))
    _, confidence = judged(background, torch.zeros(ROWS, COLUMNS, 1), past=drawing, drawing=drawing)
    assert confidence.state == "occluded"


# Laws


def test_a_frame_that_is_the_drawing_is_as_good_as_certain():
    frame = put(texture(0), (thing(1), 4, 3))
    same = witness(frame, cover((4, 3)))
    evidence, confidence = judged(frame, cover((4, 3)), past=same, drawing=same)
    expected = dict.fromkeys(SIGNALS, 1.0) | {"bulk": 9 / 25}  # its inner cells
    assert confidence.objects["a"].signals == pytest.approx(expected, abs=0.35)
    assert signal(evidence, "drawing_labels") == signal(evidence, "drawing_return") == 1.0
    assert confidence.value > 0.9


def test_every_weight_is_of_a_signal_and_none_is_below_zero():
    weights = fitted()
    assert set(weights) == {"outline", "support", "place", "cell"}
    for form, of in weights.items():
        names = CELL_SIGNALS if form == "cell" else SIGNALS
        assert set(of) - {"bias"} <= set(names)
        assert min(value for name, value in of.items() if name != "bias") >= 0


def test_a_trail_remembers_the_worst_and_begins_anew_on_a_drawing():
    trail = Trail.begin(2)
    for margin in ([0.8, 1.0], [0.2, 1.0], [0.8, 1.0]):
        trail = trail.after(torch.tensor(margin), None)
    assert trail.mean.tolist() == pytest.approx([0.6, 1.0])
    assert trail.lowest.tolist() == pytest.approx([0.2, 1.0])
    drawn = trail.after(torch.tensor([0.5, 0.5]), torch.tensor([True, False]))
    assert drawn.mean.tolist() == pytest.approx([1.0, 0.875])
    assert drawn.fresh.tolist() == pytest.approx([1.0, math.exp(-4 / 30)])
    both = joined(trail, Trail.begin(2), torch.tensor([0.25, 0.25]))
    assert both.mean.tolist() == pytest.approx([0.25 * 0.6 + 0.75, 1.0])
    assert trail.fresh[0] < both.fresh[0] < 1  # nearer to the drawing on the other side


def test_what_is_thin_has_little_bulk():
    """A square of five cells keeps its inner nine; a line keeps nothing; the picture's border is no outline."""
    extent = torch.zeros(ROWS, COLUMNS, 3)
    extent[2:7, 2:7, 0] = 1
    extent[3, 1:9, 1] = 1
    extent[..., 2] = 1
    background = texture(0)
    evidence, _ = judged(background, extent, past=witness(background, extent), drawing=witness(background, extent))
    assert evidence.objects[:, SIGNALS.index("bulk")].tolist() == pytest.approx([9 / 25, 0, 1])


def test_what_is_silenced_becomes_background():
    masks = Masks.of(np.array([[0, 1], [2, 2]]))
    space = Masks.space([masks])
    soft = torch.tensor([[[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]]])
    assert silence(soft, space, torch.tensor([False, True]))[0].tolist() == [pytest.approx([0.5, 0.5, 0]), [1, 0, 0]]
    assert silence(soft, space, torch.tensor([False, False])) is soft


# The stream


@pytest.fixture(scope="module")
def world():
    return small_world(frames=16)


def stream(world, labels, *, trust=None, config=CONFIG) -> list[LabelledFrame]:
    encoder = OracleEncoder(world, stride_px=4)
    video = open_video(world.video())
    return list(propagate(video, labels, encoder=encoder, config=config, trust=trust or TrustConfig()))


def test_drawn_frames_are_certain_and_what_leaves_is_missed(world):
    frames = stream(world, {0: Masks(world.mask(0))})
    assert frames[0].confidence.value == 1.0
    first, second = (frame.confidence.objects["2"] for frame in (frames[1], frames[-1]))
    assert first.state == "visible"
    assert first.value > 0.6
    assert not (world.mask(15) == 2).any()
    assert second.value < first.value - 0.2


def test_confidence_goes_both_ways_in_time(world):
    frames = stream(world, {15: Masks(world.mask(15), complete=True)})
    assert all(frame.confidence is not None for frame in frames)
    assert frames[15].confidence.value == 1.0
    assert frames[14].confidence.value > 0.6


def test_before_the_first_drawing_nothing_is_said_where_nothing_is_known(world):
    frames = stream(world, {5: Masks(world.mask(5))}, config=PropagateConfig(window_px=32, direction="forward"))
    assert [frame.confidence is None for frame in frames[:6]] == [True] * 5 + [False]


def test_a_second_drawing_raises_the_confidence_before_it(world):
    once = stream(world, {0: Masks(world.mask(0))})
    twice = stream(world, {0: Masks(world.mask(0)), 15: Masks(world.mask(15), complete=True)})
    mean = [np.mean([frame.confidence.objects["1"].value for frame in frames[8:15]]) for frames in (once, twice)]
    assert mean[1] >= mean[0]


def test_an_object_drawn_on_one_side_only_is_judged_by_that_side(world):
    first, last = (Masks.of(np.where(world.mask(t) == identity, identity, 0)) for t, identity in ((0, 1), (15, 3)))
    together = stream(world, {0: first, 15: last})
    alone = stream(world, {0: first})
    for index in (3, 6):
        of = [frames[index].confidence.objects["1"] for frames in (together, alone)]
        assert of[0].signals["way"] == pytest.approx(of[1].signals["way"], abs=0.1)


def test_objects_that_are_drawn_later_are_not_listed_before(world):
    labels = {0: Masks.of(np.where(world.mask(0) == 1, 1, 0)), 12: Masks.of(np.where(world.mask(12) == 3, 3, 0))}
    frames = stream(world, labels, config=PropagateConfig(window_px=32, anchor_window_px=32, direction="forward"))
    assert list(frames[5].confidence.objects) == ["1"]
    assert list(frames[14].confidence.objects) == ["1", "3"]


def test_what_moved_beyond_the_window_is_unknown_and_not_contradicted():
    background, object_ = texture(0), thing(1, side=3)
    first, later = put(background, (object_, 5, 1)), put(background, (object_, 5, 15))
    extent = cover((5, 15), side=3)
    drawing = witness(first, cover((5, 1), side=3))
    evidence, confidence = judged(later, extent, past=witness(later, extent), drawing=drawing)
    assert signal(evidence, "drawing_agreement") == signal(evidence, "drawing_labels") == 0.5
    assert confidence.value > 0.5


def test_a_mask_without_objects_is_carried_and_judged(world):
    frames = stream(world, {0: Masks.of(np.zeros((64, 96), np.uint8))})
    assert all(frame.confidence.value == 1.0 for frame in frames)


def test_objects_that_are_not_sure_enough_are_not_labelled(world):
    frames = stream(world, {0: Masks(world.mask(0))}, trust=TrustConfig(least=1.0))
    assert frames[0].labels.ids.any()
    assert not any(frame.labels.ids.any() for frame in frames[1:])


def test_points_and_coordinates_have_confidence_too(world):
    truth = world.keypoints(0)
    points = Keypoints(truth.names, truth.xy, truth.visible)
    frames = stream(world, {0: points})
    assert set(frames[3].confidence.objects) == set(truth.names)
    assert frames[3].confidence.pixels().shape == (64, 96)
    moved = stream(world, {0: Coordinates.of_image(64, 96)})
    assert list(moved[3].confidence.objects) == ["frame"]
    assert 0 <= moved[15].confidence.value < moved[0].confidence.value == 1


# What counts towards a frame


def of(value: float, state: str = "visible", *, annotated: bool = False, early: bool = False) -> ObjectConfidence:
    return ObjectConfidence(value, state, {}, annotated, early)


@pytest.mark.parametrize(
    ("objects", "least"),
    [
        ({"a": of(0.9), "b": of(0.6)}, "b"),
        ({"a": of(0.9), "b": of(0.1, "occluded")}, "a"),  # nothing of it is labelled here
        ({"a": of(0.9), "b": of(0.1, "lost")}, "b"),
        ({"a": of(0.9), "b": of(0.1, "lost", early=True)}, "a"),  # annotated on a later frame only
        ({"a": of(0.4, early=True), "b": of(0.1, "occluded")}, "a"),
        ({"a": of(1.0, annotated=True), "b": of(0.1, "lost")}, "a"),  # what is annotated is certain
        ({"a": of(1.0, "absent", annotated=True), "b": of(1.0, annotated=True)}, "b"),
        ({"a": of(1.0, "absent", annotated=True), "b": of(0.1, "lost")}, "a"),
        ({"a": of(0.2, "occluded"), "b": of(0.1, "occluded")}, "b"),
        ({}, None),
    ],
)
def test_a_frame_is_as_sure_as_the_least_sure_object_that_counts(objects, least):
    assert least_sure(objects) == least
    confidence = Confidence(objects, torch.ones(ROWS, COLUMNS), GRID)
    assert confidence.value == (objects[least].value if least else 1.0)
    assert confidence.state == (objects[least].state if least else "visible")


def test_an_annotated_frame_is_certain_and_visible_whatever_becomes_of_other_objects(world):
    """Two objects on the first frame, another one later on, as in the demo."""
    first, last = (
        Masks.of(np.where(np.isin(world.mask(t), ids), world.mask(t), 0)) for t, ids in ((0, [1]), (12, [3]))
    )
    frames = stream(world, {0: first, 12: last})
    for index, name in ((0, "1"), (12, "3")):
        confidence = frames[index].confidence
        assert (confidence.value, confidence.state) == (1.0, "visible")
        assert confidence.objects[name].annotated
    assert not frames[12].confidence.objects["1"].annotated
    assert [frame.confidence.objects["3"].early for frame in frames] == [t < 12 for t in range(16)]


def test_an_object_annotated_as_not_there_is_absent_and_certain(world):
    frames = stream(world, {0: Masks(world.mask(0)), 15: Masks(world.mask(15), complete=True)})
    assert not (world.mask(15) == 2).any()
    gone = frames[15].confidence.objects["2"]
    assert (gone.value, gone.state) == (1.0, "absent")
    assert frames[15].confidence.state == "visible"


def test_points_annotated_as_not_visible_are_occluded(world):
    truth = world.keypoints(0)
    hidden = ~truth.visible
    assert hidden.any()
    frames = stream(world, {0: Keypoints(truth.names, truth.xy, truth.visible)})
    states = [frames[0].confidence.objects[name].state for name in truth.names]
    assert states == ["visible" if seen else "occluded" for seen in truth.visible]
    assert frames[0].confidence.state == "visible"


def test_propagated_points_say_how_sure_they_are_and_lost_ones_are_not_visible(world):
    truth = world.keypoints(0)
    frames = stream(world, {0: Keypoints(truth.names, truth.xy, truth.visible)})
    states = set()
    for frame in frames:
        objects = frame.confidence.objects
        for name, visible, sure in zip(frame.labels.names, frame.labels.visible, frame.labels.confidence, strict=True):
            assert sure == np.float32(objects[name].value)
            assert visible == (objects[name].state in ("visible", "uncertain"))
            states.add(objects[name].state)
    assert "visible" in states
    assert len(states) > 1


def test_settings_of_trust_that_make_no_sense_are_refused(world):
    with pytest.raises(SettingsError, match="the least confidence is 2; give a number from 0 to 1"):
        TrustConfig(least=2)
    with pytest.raises(LabelError, match="coordinates have no background"):
        stream(world, {0: Coordinates.of_image(64, 96)}, trust=TrustConfig(least=0.5))


def test_certain_is_one_everywhere():
    confidence = certain(("1",), ("visible",), GRID)
    assert confidence.pixels().min() == confidence.pixels().max() == 1
    assert confidence.state == "visible"


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        (6, [5, 9]),  # one on either side, the nearest first
        (8, [9, 5]),
        (12, [9, 5]),  # past the last one the last two: one alone can be met by labels that fill the picture
        (0, [2, 5]),
        (5, [2, 9]),  # what was drawn on the frame itself is no witness
    ],
)
def test_a_frame_is_held_against_two_drawings(index, asked):
    drawn = Masks.of(np.eye(112, 160, dtype=np.uint16))
    encoded: list[int] = []

    def encode(frame: int) -> FeatureMap:
        encoded.append(frame)
        return FeatureMap(texture(frame), GRID)

    space = Masks.space([drawn])
    soft = space.to_soft(drawn, GRID)
    one = Judge(space=space, labels=dict.fromkeys((2, 5, 9), drawn), encode=encode, config=CONFIG)
    frame = Remembered(index, texture(index), soft, torch.ones(2, dtype=torch.bool))
    one.evidence(frame, soft, Trail.begin(1), Memory(past_frames=7, anchor_frames=8), GRID)
    assert encoded == asked
