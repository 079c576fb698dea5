"""Confidence: cases in which one check alone fails, laws, then whole streams."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from clips import small_world
from oracle import OracleEncoder
from timecycle.confidence.estimator import ConfidenceEstimator
from timecycle.confidence.fusion import (
    Confidence,
    ConfidenceConfig,
    ObjectConfidence,
    certain,
    estimate,
    fitted_weights,
    least_confident,
)
from timecycle.confidence.history import History, blend_histories
from timecycle.confidence.signals import CELL_SIGNALS, SIGNALS, ComparisonFrame, Signals, compute_signals, margins
from timecycle.errors import LabelError, SettingsError
from timecycle.grid import grid_over
from timecycle.labels import Coordinates, Keypoints, Masks
from timecycle.labels.label_map import LabelMap
from timecycle.labels.space import remove_objects, sharpen
from timecycle.matching.neighbours import Packing
from timecycle.matching.window import Window
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import LabelledFrame, propagate
from timecycle.video import open_video

ROWS, COLUMNS = 14, 20
GRID = grid_over(ROWS * 8, COLUMNS * 8, cells=(ROWS, COLUMNS), stride_px=8, first_px=0)
CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)

# Frames made by hand: a background of unique cells, and objects on it.


def texture(seed: int, rows: int = ROWS, columns: int = COLUMNS) -> torch.Tensor:
    return F.normalize(torch.randn(rows, columns, 64, generator=torch.Generator().manual_seed(seed)), dim=-1)


def textured_object(seed: int, side: int = 5) -> torch.Tensor:
    return texture(seed, side, side)


def put(background: torch.Tensor, *objects: tuple[torch.Tensor, int, int]) -> torch.Tensor:
    """Return a frame with objects whose first cells are at (row, column)."""
    frame = background.clone()
    for features, row, column in objects:
        frame[row : row + len(features), column : column + len(features)] = features
    return frame


def cover(*corners: tuple[int, int], side: int = 5) -> torch.Tensor:
    """Return what objects of that size at (row, column) cover, (rows, columns, objects)."""
    extent = torch.zeros(ROWS, COLUMNS, len(corners))
    for i, (row, column) in enumerate(corners):
        extent[row : row + side, column : column + side, i] = 1
    return extent


def comparison(frame: torch.Tensor, extent: torch.Tensor) -> ComparisonFrame:
    objects = torch.ones(extent.shape[2], dtype=torch.bool)
    return ComparisonFrame(frame, extent.flatten(0, 1), Packing(), Window(8.0, "disc"), objects)


def estimated(
    frame: torch.Tensor,
    extent: torch.Tensor,
    *,
    past: ComparisonFrame,
    annotated: ComparisonFrame,
    seen: torch.Tensor | None = None,
) -> tuple[Signals, Confidence]:
    """Estimate the confidence of labels on an image in which what is `seen`, by default the labels, is bright."""
    objects = extent.shape[2]
    bright = (extent if seen is None else seen).amax(dim=2, keepdim=True).expand(-1, -1, 3)
    signals = compute_signals(
        frame,
        extent,
        votes=extent,
        packing=Packing(),
        history=History.begin(objects).after(torch.ones(objects), None),
        past=past,
        annotated=[annotated],
        colours=bright,
    )
    return signals, estimate(signals, tuple("abc"[:objects]), GRID, weight_set="region")


def signal(signals: Signals, name: str) -> float:
    return float(signals.objects[0, SIGNALS.index(name)])


def test_frozen_labels_are_cycle_consistent_but_contradict_the_annotation():
    background, object_ = texture(0), textured_object(1)
    first = put(background, (object_, 4, 3))
    later = put(background, (object_, 4, 9))
    stuck, right = cover((4, 3)), cover((4, 9))
    annotation = comparison(first, stuck)
    wrong_signals, wrong = estimated(later, stuck, past=comparison(later, stuck), annotated=annotation, seen=right)
    _, true = estimated(later, right, past=comparison(later, right), annotated=annotation)
    assert signal(wrong_signals, "past_cycle") == 1.0
    assert signal(wrong_signals, "past_overlap") == 1.0
    assert signal(wrong_signals, "annotation_agreement") < 0.2
    assert signal(wrong_signals, "appearance") < 0.5
    assert wrong.value < true.value - 0.2


def test_swapped_identities_contradict_the_annotation():
    background, a, b = texture(0), textured_object(1), textured_object(2)
    first, later = put(background, (a, 4, 2), (b, 4, 9)), put(background, (a, 4, 8), (b, 4, 2))
    annotation = comparison(first, cover((4, 2), (4, 9)))
    right, swapped = cover((4, 8), (4, 2)), cover((4, 2), (4, 8))
    signals, wrong = estimated(later, swapped, past=comparison(later, swapped), annotated=annotation)
    _, true = estimated(later, right, past=comparison(later, right), annotated=annotation)
    assert signal(signals, "past_overlap") == 1.0
    assert signal(signals, "annotation_overlap") < 0.2
    assert wrong.value < true.value - 0.2


def test_a_uniform_surface_is_not_cycle_consistent_but_still_confident():
    background = texture(0)
    plain = textured_object(1)[:1, :1].expand(5, 5, -1)
    first, later = put(background, (plain, 4, 3)), put(background, (plain, 4, 7))
    signals, confidence = estimated(
        later, cover((4, 7)), past=comparison(first, cover((4, 3))), annotated=comparison(first, cover((4, 3)))
    )
    assert signal(signals, "annotation_cycle") < 0.9  # every cell of it is as good as every other
    assert signal(signals, "annotation_agreement") == 1.0
    assert confidence.state == "visible"


def test_motion_of_half_a_cell_is_consistent():
    smooth = F.avg_pool2d(texture(0).permute(2, 0, 1)[None], 3, stride=1, padding=1)[0].permute(1, 2, 0)
    frame = F.normalize(smooth, dim=-1)
    moved = F.normalize((frame + frame.roll(1, dims=1)) / 2, dim=-1)
    signals, confidence = estimated(
        moved, cover((4, 6)), past=comparison(frame, cover((4, 6))), annotated=comparison(frame, cover((4, 6)))
    )
    assert signal(signals, "past_cycle") == 1.0
    assert confidence.state == "visible"


def test_a_new_appearance_lowers_confidence_but_is_not_lost():
    background, object_ = texture(0), textured_object(1)
    turned = object_.clone()
    turned[:, 3:] = textured_object(5)[:, 3:]
    first, later = put(background, (object_, 4, 3)), put(background, (turned, 4, 5))
    annotation = comparison(first, cover((4, 3)))
    _, same = estimated(put(background, (object_, 4, 5)), cover((4, 5)), past=annotation, annotated=annotation)
    signals, confidence = estimated(later, cover((4, 5)), past=annotation, annotated=annotation)
    assert 0.5 < signal(signals, "annotation_agreement") < 0.8
    assert 0.4 < confidence.value < same.value
    assert confidence.state != "lost"


def test_an_object_without_area_is_occluded():
    background, object_ = texture(0), textured_object(1)
    annotation = comparison(put(background, (object_, 4, 3)), cover((4, 3)))
    _, confidence = estimated(background, torch.zeros(ROWS, COLUMNS, 1), past=annotation, annotated=annotation)
    assert confidence.state == "occluded"


# Laws


def test_a_frame_equal_to_the_annotated_one_is_nearly_certain():
    frame = put(texture(0), (textured_object(1), 4, 3))
    same = comparison(frame, cover((4, 3)))
    signals, confidence = estimated(frame, cover((4, 3)), past=same, annotated=same)
    expected = dict.fromkeys(SIGNALS, 1.0) | {"interior": 9 / 25}  # its inner cells
    assert confidence.objects["a"].signals == pytest.approx(expected, abs=0.35)
    assert signal(signals, "annotation_overlap") == signal(signals, "annotation_cycle") == 1.0
    assert confidence.value > 0.9


def test_weights_belong_to_signals_and_are_not_negative():
    weights = fitted_weights()
    assert set(weights) == {"region", "support", "point", "cell"}
    for weight_set, of in weights.items():
        names = CELL_SIGNALS if weight_set == "cell" else SIGNALS
        assert set(of) - {"bias"} <= set(names)
        assert min(value for name, value in of.items() if name != "bias") >= 0


def test_history_keeps_the_minimum_and_restarts_on_an_annotation():
    history = History.begin(2)
    for margin in ([0.8, 1.0], [0.2, 1.0], [0.8, 1.0]):
        history = history.after(torch.tensor(margin), None)
    assert history.mean_margin.tolist() == pytest.approx([0.6, 1.0])
    assert history.min_margin.tolist() == pytest.approx([0.2, 1.0])
    restarted = history.after(torch.tensor([0.5, 0.5]), torch.tensor([True, False]))
    assert restarted.mean_margin.tolist() == pytest.approx([1.0, 0.875])
    assert restarted.recency.tolist() == pytest.approx([1.0, math.exp(-4 / 30)])
    both = blend_histories(history, History.begin(2), torch.tensor([0.25, 0.25]))
    assert both.mean_margin.tolist() == pytest.approx([0.25 * 0.6 + 0.75, 1.0])
    assert history.recency[0] < both.recency[0] < 1  # nearer to the annotation on the other side


def test_thin_objects_have_little_interior():
    """A square of five cells keeps its inner nine; a line keeps nothing; the border of the image is no outline."""
    extent = torch.zeros(ROWS, COLUMNS, 3)
    extent[2:7, 2:7, 0] = 1
    extent[3, 1:9, 1] = 1
    extent[..., 2] = 1
    background = texture(0)
    signals, _ = estimated(
        background, extent, past=comparison(background, extent), annotated=comparison(background, extent)
    )
    assert signals.objects[:, SIGNALS.index("interior")].tolist() == pytest.approx([9 / 25, 0, 1])


def test_removed_objects_become_background():
    masks = Masks.of(np.array([[0, 1], [2, 2]]))
    space = Masks.space([masks])
    soft = torch.tensor([[[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]]])
    assert remove_objects(soft, space, torch.tensor([False, True]))[0].tolist() == [
        pytest.approx([0.5, 0.5, 0]),
        [1, 0, 0],
    ]
    assert remove_objects(soft, space, torch.tensor([False, False])) is soft


# The stream


@pytest.fixture(scope="module")
def world():
    return small_world(frames=16)


def stream(world, labels, *, confidence=None, config=CONFIG) -> list[LabelledFrame]:
    encoder = OracleEncoder(world, stride_px=4)
    video = open_video(world.video())
    return list(propagate(video, labels, encoder=encoder, config=config, confidence=confidence or ConfidenceConfig()))


def test_annotated_frames_are_certain_and_an_object_that_leaves_is_occluded(world):
    frames = stream(world, {0: Masks(world.mask(0))})
    assert frames[0].confidence.value == 1.0
    first, second = (frame.confidence.objects["2"] for frame in (frames[1], frames[-1]))
    assert first.state == "visible"
    assert first.value > 0.6
    assert not (world.mask(15) == 2).any()
    assert second.value < first.value - 0.2


def test_confidence_is_estimated_in_both_directions(world):
    frames = stream(world, {15: Masks(world.mask(15), exhaustive=True)})
    assert all(frame.confidence is not None for frame in frames)
    assert frames[15].confidence.value == 1.0
    assert frames[14].confidence.value > 0.6


def test_there_is_no_confidence_where_nothing_is_known(world):
    frames = stream(world, {5: Masks(world.mask(5))}, config=PropagateConfig(window_px=32, direction="forward"))
    assert [frame.confidence is None for frame in frames[:6]] == [True] * 5 + [False]


def test_a_second_annotation_raises_the_confidence_before_it(world):
    once = stream(world, {0: Masks(world.mask(0))})
    twice = stream(world, {0: Masks(world.mask(0)), 15: Masks(world.mask(15), exhaustive=True)})
    mean = [np.mean([frame.confidence.objects["1"].value for frame in frames[8:15]]) for frames in (once, twice)]
    assert mean[1] >= mean[0]


def test_an_object_annotated_on_one_side_has_the_confidence_of_that_side(world):
    first, last = (Masks.of(np.where(world.mask(t) == identity, identity, 0)) for t, identity in ((0, 1), (15, 3)))
    together = stream(world, {0: first, 15: last})
    alone = stream(world, {0: first})
    for index in (3, 6):
        of = [frames[index].confidence.objects["1"] for frames in (together, alone)]
        assert of[0].signals["mean_margin"] == pytest.approx(of[1].signals["mean_margin"], abs=0.1)


def test_objects_annotated_later_are_not_listed_before(world):
    labels = {0: Masks.of(np.where(world.mask(0) == 1, 1, 0)), 12: Masks.of(np.where(world.mask(12) == 3, 3, 0))}
    frames = stream(world, labels, config=PropagateConfig(window_px=32, anchor_window_px=32, direction="forward"))
    assert list(frames[5].confidence.objects) == ["1"]
    assert list(frames[14].confidence.objects) == ["1", "3"]


def test_motion_beyond_the_window_gives_neutral_signals():
    background, object_ = texture(0), textured_object(1, side=3)
    first, later = put(background, (object_, 5, 1)), put(background, (object_, 5, 15))
    extent = cover((5, 15), side=3)
    annotation = comparison(first, cover((5, 1), side=3))
    signals, confidence = estimated(later, extent, past=comparison(later, extent), annotated=annotation)
    assert signal(signals, "annotation_agreement") == signal(signals, "annotation_overlap") == 0.5
    assert confidence.value > 0.5


def test_a_mask_without_objects_has_confidence(world):
    frames = stream(world, {0: Masks.of(np.zeros((64, 96), np.uint8))})
    assert all(frame.confidence.value == 1.0 for frame in frames)


def test_objects_below_the_minimum_confidence_are_not_labelled(world):
    frames = stream(world, {0: Masks(world.mask(0))}, confidence=ConfidenceConfig(min_confidence=1.0))
    assert frames[0].labels.ids.any()
    assert not any(frame.labels.ids.any() for frame in frames[1:])


def test_keypoints_and_coordinates_have_confidence(world):
    ground_truth = world.keypoints(0)
    points = Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)
    frames = stream(world, {0: points})
    assert set(frames[3].confidence.objects) == set(ground_truth.names)
    assert frames[3].confidence.pixels().shape == (64, 96)
    moved = stream(world, {0: Coordinates.of_image(64, 96)})
    assert list(moved[3].confidence.objects) == ["frame"]
    assert 0 <= moved[15].confidence.value < moved[0].confidence.value == 1


# What counts towards a frame


def of(
    value: float, state: str = "visible", *, annotated: bool = False, before_annotation: bool = False
) -> ObjectConfidence:
    return ObjectConfidence(value, state, {}, annotated, before_annotation)


@pytest.mark.parametrize(
    ("objects", "least"),
    [
        ({"a": of(0.9), "b": of(0.6)}, "b"),
        ({"a": of(0.9), "b": of(0.1, "occluded")}, "a"),  # nothing of it is labelled here
        ({"a": of(0.9), "b": of(0.1, "lost")}, "b"),
        ({"a": of(0.9), "b": of(0.1, "lost", before_annotation=True)}, "a"),  # annotated on a later frame only
        ({"a": of(0.4, before_annotation=True), "b": of(0.1, "occluded")}, "a"),
        ({"a": of(1.0, annotated=True), "b": of(0.1, "lost")}, "a"),  # what is annotated is certain
        ({"a": of(1.0, "absent", annotated=True), "b": of(1.0, annotated=True)}, "b"),
        ({"a": of(1.0, "absent", annotated=True), "b": of(0.1, "lost")}, "a"),
        ({"a": of(0.2, "occluded"), "b": of(0.1, "occluded")}, "b"),
        ({}, None),
    ],
)
def test_a_frame_has_the_confidence_of_its_least_confident_object_that_counts(objects, least):
    assert least_confident(objects) == least
    confidence = Confidence(objects, torch.ones(ROWS, COLUMNS), GRID)
    assert confidence.value == (objects[least].value if least else 1.0)
    assert confidence.state == (objects[least].state if least else "visible")


def test_an_annotated_frame_is_certain_and_visible_whatever_other_objects_are(world):
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
    assert [frame.confidence.objects["3"].before_annotation for frame in frames] == [t < 12 for t in range(16)]


def test_an_object_annotated_as_absent_is_absent_and_certain(world):
    frames = stream(world, {0: Masks(world.mask(0)), 15: Masks(world.mask(15), exhaustive=True)})
    assert not (world.mask(15) == 2).any()
    gone = frames[15].confidence.objects["2"]
    assert (gone.value, gone.state) == (1.0, "absent")
    assert frames[15].confidence.state == "visible"


def test_points_annotated_as_not_visible_are_occluded(world):
    ground_truth = world.keypoints(0)
    hidden = ~ground_truth.visible
    assert hidden.any()
    frames = stream(world, {0: Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)})
    states = [frames[0].confidence.objects[name].state for name in ground_truth.names]
    assert states == ["visible" if seen else "occluded" for seen in ground_truth.visible]
    assert frames[0].confidence.state == "visible"


def test_propagated_keypoints_have_confidence_and_lost_ones_are_hidden(world):
    ground_truth = world.keypoints(0)
    frames = stream(world, {0: Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)})
    states = set()
    for frame in frames:
        objects = frame.confidence.objects
        for name, visible, sure in zip(frame.labels.names, frame.labels.visible, frame.labels.confidence, strict=True):
            assert sure == np.float32(objects[name].value)
            assert visible == (objects[name].state in ("visible", "uncertain"))
            states.add(objects[name].state)
    assert "visible" in states
    assert len(states) > 1


def test_invalid_confidence_settings_are_refused(world):
    with pytest.raises(SettingsError, match="min_confidence is 2; give a number from 0 to 1"):
        ConfidenceConfig(min_confidence=2)
    with pytest.raises(LabelError, match="coordinates have no background"):
        stream(world, {0: Coordinates.of_image(64, 96)}, confidence=ConfidenceConfig(min_confidence=0.5))


def test_a_certain_frame_has_confidence_one_everywhere():
    confidence = certain(("1",), ("visible",), GRID)
    assert confidence.pixels().min() == confidence.pixels().max() == 1
    assert confidence.state == "visible"


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        (6, [5, 9]),  # one on either side, the nearest first
        (8, [9, 5]),
        (12, [9, 5]),  # past the last one the last two: one alone may agree with labels that fill the image
        (0, [2, 5]),
        (5, [2, 9]),  # the annotation of the frame itself is not compared
    ],
)
def test_a_frame_is_compared_with_two_annotated_frames(index, asked):
    annotation = Masks.of(np.eye(112, 160, dtype=np.uint16))
    encoded: list[int] = []

    def encode(frame: int) -> FeatureMap:
        encoded.append(frame)
        return FeatureMap(texture(frame), GRID)

    space = Masks.space([annotation])
    label_map = LabelMap(space.encode(annotation, GRID), torch.ones(2, dtype=torch.bool), GRID)
    estimator = ConfidenceEstimator(space=space, labels=dict.fromkeys((2, 5, 9), annotation), encode=encode)
    estimator.signals(
        index,
        FeatureMap(texture(index), GRID),
        Packing(),
        label_map,
        history=History.begin(1),
        past=None,
        annotation_window=None,
    )
    assert encoded == asked


@pytest.mark.parametrize("power", [1.5, 3.0])
def test_margins_are_those_of_the_votes_whatever_sharpening_made_of_them(power):
    annotation = Masks.of(np.eye(112, 160, dtype=np.uint16))
    space = Masks.space([annotation])
    rows, columns, _ = texture(0).shape
    votes = torch.rand(rows, columns, 2, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)

    def signals_of(values, sharpening):
        estimator = ConfidenceEstimator(
            space=space, labels={2: annotation}, encode=lambda _: FeatureMap(texture(2), GRID), sharpening=sharpening
        )
        label_map = LabelMap(values, torch.ones(2, dtype=torch.bool), GRID)
        history = estimator.history_after(5, label_map, None)
        signals = estimator.signals(
            5, FeatureMap(texture(5), GRID), Packing(), label_map, history=history, past=None, annotation_window=None
        )
        named = dict(zip(SIGNALS, signals.objects[0].tolist(), strict=True))
        return [named[name] for name in ("margin", "certainty", "mean_margin", "min_margin")]

    assert signals_of(sharpen(votes, power), power) == pytest.approx(signals_of(votes, 1.0), abs=1e-5)


def test_the_margin_of_a_point_is_its_weight_around_the_strongest_cell():
    generator = torch.Generator().manual_seed(0)
    for rows, columns, points in ((1, 1, 1), (2, 7, 3), (6, 5, 40), (4, 4, 0)):
        extent = torch.rand(rows, columns, points, generator=generator)
        extent[..., 2:3] = 0  # a point without weight
        expected = []
        for channel in range(points):
            weight = extent[..., channel]
            row, column = divmod(int(weight.argmax()), columns)
            near = weight[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
            expected.append(float(near.sum()) / max(float(weight.sum()), 1e-6))
        assert margins(extent, points=True).tolist() == pytest.approx(expected)
