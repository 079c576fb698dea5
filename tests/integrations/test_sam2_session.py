"""A session with the calls of SAM 2's video predictor: prompts, propagation in both directions, corrections."""

import inspect

import numpy as np
import pytest
import torch

import timecycle as tc
from clips import small_world, write_clip
from oracle import iou
from timecycle.errors import LabelError, SettingsError
from timecycle.integrations import sam2_session
from timecycle.integrations.sam2_session import build_sam2_video_predictor
from timecycle.integrations.sam2_session.frames import OrderedFrames

FRAMES, HEIGHT, WIDTH = 6, 120, 160

# Of SAM 2's sam2/sam2_video_predictor.py, without self.
SIGNATURES = {
    "init_state": ["video_path", "offload_video_to_cpu", "offload_state_to_cpu", "async_loading_frames"],
    "add_new_points_or_box": [
        "inference_state",
        "frame_idx",
        "obj_id",
        "points",
        "labels",
        "clear_old_points",
        "normalize_coords",
        "box",
    ],
    "add_new_mask": ["inference_state", "frame_idx", "obj_id", "mask"],
    "propagate_in_video": ["inference_state", "start_frame_idx", "max_frame_num_to_track", "reverse"],
    "clear_all_prompts_in_frame": ["inference_state", "frame_idx", "obj_id", "need_output"],
    "reset_state": ["inference_state"],
    "remove_object": ["inference_state", "obj_id", "strict", "need_output"],
}


@pytest.fixture(scope="module")
def world():
    return small_world(frames=24, height_px=HEIGHT, width_px=WIDTH)


@pytest.fixture(scope="module")
def predictor():
    return build_sam2_video_predictor(encoder="rgb", config="fast", device="cpu", confidence=False)


@pytest.fixture
def state(predictor, world):
    return predictor.init_state(np.stack([world.frame(t) for t in range(FRAMES)]))


def box_of(region):
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    return [float(columns[0]), float(rows[0]), float(columns[-1]), float(rows[-1])]


def segments_of(outputs):
    """Collect results as SAM 2's notebook does."""
    return {
        frame: {obj_id: (logits[i] > 0.0).cpu().numpy() for i, obj_id in enumerate(obj_ids)}
        for frame, obj_ids, logits in outputs
    }


def test_calls_have_the_names_and_arguments_of_sam2():
    for name, arguments in SIGNATURES.items():
        assert list(inspect.signature(getattr(sam2_session.SAM2VideoPredictor, name)).parameters)[1:] == arguments


def test_masks_are_propagated_as_propagate_does(predictor, state, world):
    frame_idx, obj_ids, logits = predictor.add_new_mask(state, 0, 7, world.mask(0) == 1)
    assert (frame_idx, obj_ids, logits.shape, logits.dtype) == (0, [7], (1, 1, HEIGHT, WIDTH), torch.float32)
    assert np.array_equal((logits[0, 0] > 0).numpy(), world.mask(0) == 1)
    predictor.add_new_mask(state, 0, 0, torch.from_numpy(world.mask(0) == 2))  # 0 is an object id as any other
    segments = segments_of(predictor.propagate_in_video(state))
    video = np.stack([world.frame(t) for t in range(FRAMES)])
    for frame in tc.propagate(video, tc.Masks(world.mask(0)), encoder="rgb", config="fast", confidence=None):
        assert np.array_equal(segments[frame.index][7][0], frame.labels.ids == 1)
        assert np.array_equal(segments[frame.index][0][0], frame.labels.ids == 2)


def test_frames_are_those_that_sam2_yields(predictor, state, world):
    """`max_frame_num_to_track` counts the frames after the start; backward from frame 0 there is nothing."""
    predictor.add_new_mask(state, 2, 1, world.mask(2) == 1)

    def order(**choice):
        return [frame for frame, _, _ in predictor.propagate_in_video(state, **choice)]

    assert order() == [2, 3, 4, 5]
    assert order(reverse=True) == [2, 1, 0]
    assert order(start_frame_idx=4, max_frame_num_to_track=1) == [4, 5]
    assert order(start_frame_idx=1, max_frame_num_to_track=2) == [1, 2, 3]
    assert order(start_frame_idx=5, max_frame_num_to_track=2, reverse=True) == [5, 4, 3]
    assert order(start_frame_idx=0, reverse=True) == []
    backward = segments_of(predictor.propagate_in_video(state, reverse=True))
    assert iou(backward[0][1][0], world.mask(0) == 1) > 0.8


def test_frames_in_reversed_order_are_the_frames(world):
    video = tc.open_video(np.stack([world.frame(t) for t in range(FRAMES)]))
    for order in (range(1, 5), range(4, 0, -1)):
        part = OrderedFrames(video, order)
        assert len(part) == 4
        assert all(np.array_equal(part[i].image, world.frame(t)) for i, t in enumerate(order))
        assert [frame.index for frame in part.backwards(2)] == [2, 1, 0]
        assert all(np.array_equal(frame.image, world.frame(order[frame.index])) for frame in part.backwards())
        assert list(np.diff(part.pts) > 0) == [True] * 3


def test_late_prompts_correct_earlier_frames(predictor, state, world):
    predictor.add_new_mask(state, 0, 1, world.mask(0) == 1)
    predictor.add_new_mask(state, 5, 1, world.mask(5) == 1)
    segments = segments_of(predictor.propagate_in_video(state))
    assert np.array_equal(segments[5][1][0], world.mask(5) == 1)
    assert min(iou(segments[t][1][0], world.mask(t) == 1) for t in range(FRAMES)) > 0.8


def test_objects_are_added_and_removed(predictor, state, world):
    predictor.add_new_mask(state, 0, "a", world.mask(0) == 1)
    _, obj_ids, logits = predictor.add_new_mask(state, 2, "b", world.mask(2) == 2)
    assert obj_ids == ["a", "b"]
    assert logits[0].max() == -1024  # nothing is known of it on this frame
    segments = segments_of(predictor.propagate_in_video(state))
    assert list(segments[0]) == ["a", "b"]
    predictor.add_new_mask(state, 2, "a", world.mask(2) == 1)
    obj_ids, updated = predictor.remove_object(state, "a")
    assert (obj_ids, [frame for frame, _ in updated]) == (["b"], [0, 2])
    assert updated[1][1].shape == (1, 1, HEIGHT, WIDTH)
    assert state["obj_id_to_idx"] == {"b": 0}
    assert [frame for frame, _, _ in predictor.propagate_in_video(state)] == [2, 3, 4, 5]
    assert predictor.remove_object(state, "c") == (["b"], [])
    with pytest.raises(LabelError, match=r"there is no object c; choose one of \['b'\]"):
        predictor.remove_object(state, "c", strict=True)
    assert predictor.remove_object(state, "b") == ([], [])
    with pytest.raises(LabelError, match="there is no prompt"):
        next(predictor.propagate_in_video(state))


def test_prompts_of_a_frame_are_cleared(predictor, state, world):
    predictor.add_new_mask(state, 0, 1, world.mask(0) == 1)
    predictor.add_new_mask(state, 3, 1, np.zeros((HEIGHT, WIDTH), bool))
    absent = segments_of(predictor.propagate_in_video(state))
    assert not absent[3][1].any()
    frame, obj_ids, logits = predictor.clear_all_prompts_in_frame(state, 3, 1)
    assert (frame, obj_ids, len(logits)) == (3, [1], 1)
    assert segments_of(predictor.propagate_in_video(state))[3][1].any()
    assert predictor.clear_all_prompts_in_frame(state, 0, 1, need_output=False) is None
    with pytest.raises(LabelError, match="object 1 has no prompt"):
        next(predictor.propagate_in_video(state))


def test_absent_objects_need_a_word_on_the_others(predictor, state, world):
    predictor.add_new_mask(state, 0, 1, world.mask(0) == 1)
    predictor.add_new_mask(state, 0, 2, world.mask(0) == 2)
    predictor.add_new_mask(state, 3, 1, np.zeros((HEIGHT, WIDTH), bool))
    with pytest.raises(LabelError, match=r"object 1 is absent from frame 3, .*; add a prompt for object 2 on frame 3"):
        next(predictor.propagate_in_video(state))
    predictor.add_new_mask(state, 3, 2, world.mask(3) == 2)
    assert not segments_of(predictor.propagate_in_video(state))[3][1].any()


def test_prompts_that_are_no_numbers_are_refused(predictor, state, world):
    mask = world.mask(0) > 0
    for problem, arguments in (
        ("the points have 3 numbers", {"points": [1, 2, 3], "labels": [1]}),
        ("the points cannot be read as numbers", {"points": [["x", 2]], "labels": [1]}),
        ("the box cannot be read as numbers", {"box": [[1], [2, 3]]}),
    ):
        with pytest.raises(LabelError, match=problem):
            predictor.add_new_points_or_box(state, frame_idx=0, obj_id=1, **arguments)
    with pytest.raises(LabelError, match="the mask cannot be read as numbers"):
        predictor.add_new_mask(state, frame_idx=0, obj_id=1, mask=[["a"]])
    with pytest.raises(LabelError, match=r"the object id is \[1\]; pass a number or a text"):
        predictor.add_new_mask(state, frame_idx=0, obj_id=[1], mask=mask)
    assert state["obj_ids"] == []


def test_confidence_is_in_the_state(world, tmp_path):
    predictor = build_sam2_video_predictor(encoder="rgb", config="fast", device="cpu")
    state = predictor.init_state(str(write_clip(tmp_path / "clip.mp4", small_world(frames=4))))
    predictor.add_new_mask(state, 0, 5, small_world(frames=4).mask(0) == 2)
    list(predictor.propagate_in_video(state))
    assert state["confidence"][0] == {5: 1.0}
    assert 0 <= state["confidence"][3][5] <= 1
    assert state["num_frames"] == 4


# Boxes and clicks


@pytest.fixture(scope="module")
def _opencv():
    pytest.importorskip("cv2")


@pytest.mark.usefixtures("_opencv")
def test_a_box_becomes_the_object_in_it(predictor, state, world):
    region = world.mask(0) == 2
    _, _, logits = predictor.add_new_points_or_box(state, 0, 1, box=np.array(box_of(region), np.float32))
    assert iou((logits[0, 0] > 0).numpy(), region) > 0.8
    shares = np.array(box_of(region)).reshape(2, 2) / (WIDTH, HEIGHT)
    again = predictor.add_new_points_or_box(state, 0, 1, box=torch.tensor(shares), normalize_coords=False)[2]
    assert torch.equal(again, logits)


@pytest.mark.usefixtures("_opencv")
def test_clicks_correct_a_mask(predictor):
    """A red object on green ground: its right half is missing, and below it there is too much."""
    random = np.random.default_rng(0)
    region = np.zeros((HEIGHT, WIDTH), bool)
    region[40:80, 50:110] = True
    image = np.where(region[..., None], (180, 40, 40), (40, 150, 60)) + random.integers(-20, 20, (HEIGHT, WIDTH, 3))
    state = predictor.init_state(image.astype(np.uint8)[None])
    wrong = region.copy()
    wrong[:, 80:] = False
    wrong[80:95, 50:80] = True
    predictor.add_new_mask(state, 0, 1, wrong)
    first = predictor.add_new_points_or_box(state, 0, 1, points=[[95, 60]], labels=[1])[2]
    assert iou((first[0, 0] > 0).numpy(), region) > iou(wrong, region) + 0.2
    added = predictor.add_new_points_or_box(state, 0, 1, points=[[65, 88]], labels=[0], clear_old_points=False)[2]
    assert iou((added[0, 0] > 0).numpy(), region) > 0.9
    together = predictor.add_new_points_or_box(state, 0, 1, points=[[95, 60], [65, 88]], labels=[1, 0])[2]
    assert torch.equal(added, together)


@pytest.mark.usefixtures("_opencv")
def test_clicks_alone_are_refused_with_what_to_do(predictor, state):
    with pytest.raises(LabelError, match=r"a click alone does not say how far .* pass box=\[x0, y0, x1, y1\]"):
        predictor.add_new_points_or_box(state, 0, 1, points=[[20, 30]], labels=[1])
    assert state["obj_ids"] == []  # a refused prompt leaves nothing behind


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ({}, "neither points nor a box"),
        ({"points": [[1, 2]]}, "points were passed alone"),
        ({"points": [[1, 2]], "labels": [1, 0]}, "1 points and the labels"),
        ({"points": [[1, 2]], "labels": [2]}, "1 is inside the object, 0 is outside"),
        ({"points": [[1000, 2]], "labels": [1]}, "lies outside of the 160x120 frame"),
        ({"box": [1, 2, 3]}, "the box is"),
        ({"box": [1, 2, 30, 40], "clear_old_points": False}, "the box and all points in one call"),
        ({"box": [500, 2, 600, 40]}, "holds no pixel"),
    ],
)
def test_prompts_that_mean_nothing_are_refused(predictor, state, prompt, problem):
    with pytest.raises(LabelError, match=problem):
        predictor.add_new_points_or_box(state, 0, 1, **prompt)
    with pytest.raises(LabelError, match="frame 6 is not in"):
        predictor.add_new_points_or_box(state, FRAMES, 1, **prompt)


def test_masks_of_another_size_are_refused(predictor, state):
    with pytest.raises(LabelError, match="pass a mask of shape"):
        predictor.add_new_mask(state, 0, 1, np.ones((3, 4), bool))


def test_files_of_sam2_are_accepted_and_not_used(caplog):
    for make in (
        lambda: build_sam2_video_predictor("sam2.1_hiera_l.yaml", "sam2.1_hiera_large.pt", encoder="rgb"),
        lambda: sam2_session.build_sam2_video_predictor_hf("facebook/sam2-hiera-large", encoder="rgb"),
        lambda: sam2_session.SAM2VideoPredictor.from_pretrained("facebook/sam2-hiera-large", encoder="rgb"),
    ):
        caplog.clear()
        make()
        assert "is not used: masks are propagated by matching" in caplog.text
    build_sam2_video_predictor(encoder="rgb", device=torch.device("cpu"), vos_optimized=True)
    with pytest.raises(SettingsError, match="there is no option 'encodr'"):
        build_sam2_video_predictor(encodr="rgb")


# The steps of SAM 2's notebook on videos: prompts, results, corrections, a box, two objects


def notebook(predictor, video_path, truth):
    """Make the notebook's calls; return the mean overlap with the true masks after each propagation.

    Its first prompt is a click; here it is a box, since clicks only correct.
    """
    last = len(truth) - 1

    def overlap(segments, obj_id, find):
        return float(np.mean([iou(segments[t][obj_id][0], find(truth[t])) for t in segments]))

    results = {}
    with torch.inference_mode():
        inference_state = predictor.init_state(video_path=video_path)
        predictor.reset_state(inference_state)
        _, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
            inference_state=inference_state, frame_idx=0, obj_id=1, box=np.array(box_of(truth[0]), np.float32)
        )
        assert out_obj_ids == [1]
        assert out_mask_logits.shape == (1, 1, *truth[0].shape)
        segments = segments_of(predictor.propagate_in_video(inference_state))
        assert sorted(segments) == list(range(len(truth)))
        results["box"] = overlap(segments, 1, lambda one: one)
        # A click on the largest part of what is wrong on the last frame, then all again.
        wrong = segments[last][1][0] != truth[last]
        y, x = np.argwhere(wrong)[wrong.sum() // 2]
        _, _, out_mask_logits = predictor.add_new_points_or_box(
            inference_state=inference_state,
            frame_idx=last,
            obj_id=1,
            points=np.array([[x, y]], np.float32),
            labels=np.array([truth[last][y, x]], np.int32),
        )
        assert bool(out_mask_logits[0, 0, y, x] > 0) == truth[last][y, x]
        segments = segments_of(predictor.propagate_in_video(inference_state))
        results["corrected"] = overlap(segments, 1, lambda one: one)
        # Two objects at once: the left and the right half.
        predictor.reset_state(inference_state)
        middle = int(np.mean(box_of(truth[0])[::2]))
        for obj_id, half in ((2, slice(None, middle)), (3, slice(middle, None))):
            mask = np.zeros_like(truth[0])
            mask[:, half] = truth[0][:, half]
            _, out_obj_ids, out_mask_logits = predictor.add_new_mask(
                inference_state=inference_state, frame_idx=0, obj_id=obj_id, mask=mask
            )
        assert (out_obj_ids, out_mask_logits.shape) == ([2, 3], (2, 1, *truth[0].shape))
        halves = segments_of(predictor.propagate_in_video(inference_state))
        union = {t: {1: one[2] | one[3]} for t, one in halves.items()}
        results["mask"] = overlap(union, 1, lambda one: one)
    return results


@pytest.mark.usefixtures("_opencv")
def test_the_steps_of_the_notebook_on_a_synthetic_video(predictor, world, tmp_path):
    for t in range(FRAMES):
        tc.Frame(index=t, number=t, pts=t, time_seconds=0.0, image=world.frame(t)).show().save(
            tmp_path / f"{t:05d}.jpg"
        )
    results = notebook(predictor, str(tmp_path), [world.mask(t) == 2 for t in range(FRAMES)])
    assert min(results.values()) > 0.7, results


@pytest.mark.data
@pytest.mark.slow  # three propagations of real footage with the bundled encoder
@pytest.mark.usefixtures("_opencv")
def test_the_steps_of_the_notebook_on_real_frames(data, tmp_path):
    frames, masks = (data / "davis2016" / part / "480p" / "blackswan" for part in ("JPEGImages", "Annotations"))
    for t in range(5):
        (tmp_path / f"{t:05d}.jpg").symlink_to(frames / f"{t:05d}.jpg")
    truth = [tc.Masks.read(masks / f"{t:05d}.png").ids > 0 for t in range(5)]
    results = notebook(build_sam2_video_predictor(config="fast", device="cpu"), str(tmp_path), truth)
    assert results["mask"] > 0.9, results
    assert results["box"] > 0.35, results  # GrabCut loses a part of this swan: black on dark water
    assert results["corrected"] > results["box"] - 0.05, results
