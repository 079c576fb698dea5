"""Training on a device that does not exist: no tensor is on another, and waiting happens only where it is named."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from fake_device import fake_device
from timecycle.config import train_config
from timecycle.model.resnet import ResNet, grid_of
from timecycle.objectives import walks
from timecycle.training import heldout, step
from timecycle.training.heldout import HeldOutClips
from timecycle.training.step import State

TINY = ("clips.crop_px=96", "view_px=64", "patches.patch_px=56", "clips.frames=3", "batch=2", "precision=fp32")
WALKS = (
    "objective=walks",
    "walks.pasted=0.5",
    "walks.segments=0.5",
    "walks.motion=0.5",
    "walks.contrast=0.5",
    "walks.negatives=1",
    "copy_paste.most=2",
)


def make_batch(config):
    """A batch in the host's memory; only its seeds have values."""
    b, n, side = config.batch, config.clips.frames, config.clips.crop_px

    def noise(*shape):
        return torch.zeros(shape, dtype=torch.uint8)

    if config.objective == "cycles":
        p = config.patches.patch_px
        return {"frames": noise(b, n, side, side, 3), "patch": noise(b, p, p, 3), "theta": torch.zeros(b, 3)}
    view, cells = config.view_px, grid_of(config.view_px).cells
    return {
        "forward": noise(b, n, view, view, 3),
        "backward": noise(b, n - 1, view, view, 3),
        "targets": torch.zeros(b, cells, 2),
        "visible": torch.ones(b, cells, dtype=torch.bool),
        "start_objects": noise(b, cells),
        "end_objects": noise(b, cells),
    }


def steps(settings, count=2):
    """Run a few steps; return how often the program waited, by name."""
    config = train_config("small", (*TINY, *settings))
    seeds = torch.arange(config.batch)  # real: they stay in the host's memory
    with fake_device() as (device, waits):
        state = State.fresh(ResNet(config.encoder), config, device)
        for _ in range(count):
            outcome = state.advance(state.learner, [make_batch(config) | {"seed": seeds}])
        assert outcome.total.device.type == device.type
        assert all(parameter.device.type == device.type for parameter in state.ema.parameters())
        assert all(p.grad is None or p.grad.device.type == device.type for p in state.learner.parameters())
    return waits


@pytest.mark.parametrize(
    "settings",
    [
        WALKS,
        ("objective=walks", "batch_statistics=frozen", "channels_last=false"),
        *(("objective=cycles", f"cycles.localizer.kind={kind}") for kind in ("procrustes", "paper", "release")),
    ],
    ids=["walks", "frozen", "procrustes", "paper", "release"],
)
def test_a_step_runs_on_the_device_and_waits_once(settings):
    assert steps(settings) == {"finite gradient": 2}


def test_validation_encodes_on_the_device_and_waits_for_its_features():
    config = train_config("small", TINY)
    with fake_device() as (device, waits):
        encoder = ResNet(config.encoder).to(device)
        clips = torch.zeros(3, 3, 64, 64, 3, dtype=torch.uint8)
        held_out = HeldOutClips(clips, clips[:, 0], clips[:, 1], torch.zeros(3, 2, 3))
        frames = held_out.encoded(encoder)
    assert {one.device.type for one in frames} == {"cpu"}
    assert waits == {"validation": 3}


def test_a_tensor_on_another_device_is_found(monkeypatch):
    targets = walks.return_targets
    monkeypatch.setattr(walks, "return_targets", lambda points, *rest: targets(points.cpu(), *rest))
    with pytest.raises(RuntimeError, match="found at least two devices"):
        steps(WALKS)


def test_hidden_waiting_is_found(monkeypatch):
    losses = step.walk_losses

    def waiting(*given, **named):
        result = losses(*given, **named)
        assert math.isfinite(result.total.item())
        return result

    monkeypatch.setattr(step, "walk_losses", waiting)
    with pytest.raises(DataDependentOutputException):
        steps(WALKS)


def test_scores_are_computed_in_the_memory_of_the_host():
    assert heldout.host_tensor(torch.ones(2), "validation").device.type == "cpu"
