"""Confidence on a device that does not exist: no tensor is on another, and waiting happens only where it is named."""

import numpy as np
import pytest
from torch._subclasses.fake_tensor import DataDependentOutputException

from fake_device import OnDevice, fake_device
from timecycle.confidence import signals
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.labels import Keypoints, Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.video import open_video

HEIGHT, WIDTH, FRAMES = 64, 96, 4


def masks(ids=(1, 2)):
    values = np.zeros((HEIGHT, WIDTH), np.uint16)
    for i in ids:
        values[16:40, 20 * i : 20 * i + 16] = i
    return Masks.of(values)


def keypoints():
    return Keypoints(("nose", "tail"), np.array([[30.0, 20.0], [60.0, 40.0]], np.float32), np.array([True, True]))


def run(labels, **settings):
    """Propagate with confidence; return the frames and how often the program waited, by name."""
    video = open_video(np.zeros((FRAMES, HEIGHT, WIDTH, 3), np.uint8), fps=24)
    with fake_device() as (device, waits):
        encoder, config = OnDevice(device), PropagateConfig(**settings)
        frames = list(propagate(video, labels, encoder=encoder, config=config, confidence=ConfidenceConfig()))
    return frames, waits


@pytest.mark.parametrize(
    ("labels", "settings", "estimated", "label_maps", "spooled"),
    [
        ({0: masks()}, {}, 3, 4, 1),
        ({0: masks(), 2: masks()}, {}, 2, 7, 3),  # the forward pass reads what the backward pass encoded
        ({2: masks()}, {}, 3, 5, 1),
        ({0: masks((1,)), 2: masks((2,))}, {}, 4, 7, 3),  # on an annotated frame, the other object is estimated
        ({0: masks()}, {"window_px": None, "anchor_window_px": None, "subcells": 2}, 3, 4, 1),
        ({0: keypoints()}, {}, 3, 4, 1),
    ],
    ids=["forward", "both directions", "backward", "other objects", "subcells", "keypoints"],
)
def test_confidence_is_computed_on_the_device(labels, settings, estimated, label_maps, spooled):
    frames, waits = run(labels, **settings)
    assert all(frame.confidence is not None for frame in frames)
    assert waits["signals"] == 3 * estimated  # of objects and cells, and the areas
    assert waits["spool"] == spooled  # features that are needed again are kept on disk
    assert waits["features"] == FRAMES
    assert waits["labels"] == label_maps  # of both passes
    assert waits.keys() == {"signals", "spool", "features", "labels", "ties"}


def test_a_tensor_on_another_device_is_found(monkeypatch):
    interior = signals._interior
    monkeypatch.setattr(signals, "_interior", lambda extent: interior(extent.cpu()))
    with pytest.raises(RuntimeError, match="found at least two devices"):
        run({0: masks()})


def test_hidden_waiting_is_found(monkeypatch):
    appearance = signals._appearance

    def waiting(*sides):
        result = appearance(*sides)
        assert float(result.sum()) >= 0
        return result

    monkeypatch.setattr(signals, "_appearance", waiting)
    with pytest.raises(DataDependentOutputException):
        run({0: masks()})
