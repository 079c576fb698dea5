"""Prefetching is bit-identical, keeps the order, holds few frames and leaves no threads."""

import copy
import threading
import time

import numpy as np
import pytest
import torch

from timecycle import Masks, PropagateConfig, Propagator, propagate
from timecycle.model.encoder import FeatureMap
from timecycle.model.registry import load_encoder
from timecycle.propagation.frame_encoder import FrameEncoder
from timecycle.propagation.prefetch import encoding_workers, prefetch_features
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("random-resnet18", device="cpu")


@pytest.fixture
def video():
    world = make_world(WorldConfig(height_px=48, width_px=64, frames=9))
    return open_video(np.stack([world.frame(t) for t in range(9)]), fps=24)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_prefetched_features_are_bit_identical(encoder, video, three_threads):
    for workers in (1, 2, 3):
        encoded = list(prefetch_features(video.frames(), encoder.encode, workers=workers))
        assert [e.frame.index for e in encoded] == list(range(9))
        for e in encoded:
            assert torch.equal(e.features.cells, encoder.encode(e.frame.image).cells)


def test_features_of_a_real_size_do_not_depend_on_threads(encoder):
    """What a resumed run encodes again with all threads must be what a worker encoded with some."""
    image = make_world(WorldConfig(height_px=480, width_px=854, frames=1)).frame(0)
    before = torch.get_num_threads()
    try:
        features = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            features.append(encoder.encode(image).cells)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(features[0], features[1])
    assert torch.equal(features[0], features[2])


def test_a_users_encoder_needs_no_inference_mode(video):
    """Its features must not keep what would be needed to differentiate them."""

    class Mine:
        name, sha256, description = "mine", "0" * 64, "a layer that learns"

        def __init__(self):
            self.layer = torch.nn.Linear(3, 4)

        def encode(self, image):
            features = load_encoder("rgb").encode(image)
            return FeatureMap(torch.nn.functional.normalize(self.layer(features.cells), dim=-1), features.grid)

    assert not FrameEncoder(Mine(), PropagateConfig()).encode(video[0].image).cells.requires_grad
    masks = Masks.of_box(48, 64, (5, 5, 30, 30))
    assert len(list(propagate(video, {0: masks}, encoder=Mine()))) == 9


def test_at_most_a_few_frames_are_held(encoder, video):
    taken = []

    def frames():
        for frame in video.frames():
            taken.append(frame.index)
            yield frame

    stream = prefetch_features(frames(), encoder.encode, workers=2)
    for given in range(4):
        assert next(stream).frame.index == given
        assert len(taken) <= given + 3
    stream.close()


def test_prefetching_restores_the_number_of_threads(encoder, video, three_threads):
    list(prefetch_features(video.frames(), encoder.encode, workers=2))
    assert torch.get_num_threads() == 3
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [3]


def test_a_failure_is_raised_at_its_frame_and_leaves_no_thread(video):
    def encode(image):
        if np.array_equal(image, video[3].image):
            raise RuntimeError("cannot encode this one")
        return load_encoder("rgb").encode(image)

    stream = prefetch_features(video.frames(), encode, workers=2)
    assert [next(stream).frame.index for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="cannot encode this one"):
        next(stream)
    assert not [t for t in threading.enumerate() if t.name.startswith("timecycle-encode")]


def test_only_shareable_encoders_are_used_by_several_workers(encoder, three_threads):
    assert encoding_workers(encoder) == 3
    assert encoding_workers(load_encoder("rgb")) == 1


class Noting:
    """An encoder that notes which thread calls it, and how many threads torch has there."""

    name, sha256, description, thread_safe = "noting", "0" * 64, "fp32", True

    def __init__(self, encoder):
        self.encoder, self.called = encoder, []

    def encode(self, image):
        self.called.append((threading.current_thread().name, torch.get_num_threads()))
        return self.encoder.encode(image)


def test_live_steps_encode_in_a_worker_and_equal_propagation_of_a_file(encoder, video, three_threads):
    """OpenMP threads that the caller shares with the encoder keep cores busy while they wait for each other."""
    annotation = Masks(np.ones((48, 64), np.uint16))
    from_file = [frame.labels.ids for frame in propagate(video, {0: annotation}, encoder=encoder, confidence=None)]
    noting = Noting(encoder)
    state = Propagator(noting)
    stepped = [state.step(frame, annotation if frame.index == 0 else None).ids for frame in video]
    assert set(noting.called) == {("timecycle-live_0", 3)}
    assert all((one == other).all() for one, other in zip(from_file, stepped, strict=True))


def test_a_live_step_with_one_thread_starts_no_other(encoder, video):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        noting = Noting(encoder)
        Propagator(noting).step(video[0], Masks(np.ones((48, 64), np.uint16)))
    finally:
        torch.set_num_threads(before)
    assert noting.called == [(threading.current_thread().name, 1)]


def test_live_steps_leave_the_threads_of_torch_unchanged(encoder, video, three_threads):
    running = threading.active_count()
    state = Propagator(encoder)
    state.step(video[0], Masks(np.ones((48, 64), np.uint16)))
    state.step(video[1])
    assert torch.get_num_threads() == 3
    del state
    deadline = time.monotonic() + 10
    while threading.active_count() > running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == running


def test_a_live_propagator_can_be_copied_between_steps(encoder, video, three_threads):
    state = Propagator(encoder)
    state.step(video[0], Masks(np.ones((48, 64), np.uint16)))
    other = copy.deepcopy(state)
    assert (state.step(video[1]).ids == other.step(video[1]).ids).all()
