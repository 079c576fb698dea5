"""What is trained: the network's own features, or the descriptor of propagation, without or with its colour."""

import torch

from timecycle.config import train_config
from timecycle.model.resnet import grid_of, random_resnet
from timecycle.training.heldout import HeldOutClips
from timecycle.training.settings import TrainConfig
from timecycle.training.step import Learner, cell_contrast

SETTINGS = ("objective=walks", "view_px=64", "encoder.centred=true", "encoder.head_channels=16", "encoder.last=res3")


def _config(*settings: str) -> TrainConfig:
    return train_config("small", (*SETTINGS, *settings))


def loss(*settings: str) -> torch.Tensor:
    config = _config(*settings)
    cells = grid_of(64).cells
    draw = torch.Generator().manual_seed(0)
    batch = {
        "forward": torch.randint(0, 256, (2, 2, 64, 64, 3), dtype=torch.uint8, generator=draw),
        "backward": torch.randint(0, 256, (2, 1, 64, 64, 3), dtype=torch.uint8, generator=draw),
        "targets": torch.rand(2, cells, 2, generator=draw) - 0.5,
        "visible": torch.ones(2, cells, dtype=torch.bool),
        "start_objects": torch.zeros(2, cells, dtype=torch.uint8),
        "end_objects": torch.zeros(2, cells, dtype=torch.uint8),
        "seed": torch.arange(2),
    }
    return Learner(random_resnet(config.encoder, seed=0), config)(batch).total


def test_colour_is_trained_on_only_if_asked_for():
    for trained, depends in (("features", False), ("descriptor", False), ("coloured_descriptor", True)):
        with_colour, without = (loss(f"trained={trained}", f"encoder.colour={colour}") for colour in (1.0, 0.0))
        assert torch.equal(with_colour, without) != depends, trained


def test_contrast_is_where_colours_differ_from_their_neighbours():
    images = torch.zeros(2, 64, 64, 3, dtype=torch.uint8)
    images[1, 24:40, 24:40] = 255
    even, square = cell_contrast(images, grid_of(64)).reshape(2, 8, 8)
    assert not even.any()
    assert square[4, 4] == square.max() > 100
    square[2:7, 2:7] = 0  # the cells that overlap the square, and their neighbours
    assert not square.any()


def test_the_descriptor_has_the_blocks_that_the_features_lack():
    weights = ("encoder.fine=0.0", "encoder.fine=1.0")
    features = [loss("trained=features", weight) for weight in weights]
    descriptors = [loss("trained=descriptor", weight) for weight in weights]
    assert torch.equal(*features)
    assert not torch.equal(*descriptors)


def test_what_is_trained_is_what_is_validated():
    clips = torch.randint(0, 256, (2, 2, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for trained, depends in (("features", False), ("descriptor", True)):
        held_out = HeldOutClips(clips, clips[:, 0], clips[:, 1], torch.eye(2, 3).repeat(2, 1, 1), trained)
        encoders = (random_resnet(_config(f"encoder.fine={fine}").encoder, seed=0) for fine in (0.0, 1.0))
        first, second = (held_out.encoded(encoder)[0] for encoder in encoders)
        assert (first.shape != second.shape) == depends


def test_a_mean_that_the_descriptor_does_not_have_raises_no_alarm():
    encoder = random_resnet(_config("encoder.fine=0.0").encoder, seed=0)
    with torch.no_grad():
        encoder.head.weight += 0.3  # its inputs are 0 or more
    clips = torch.randint(0, 256, (2, 2, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    parts = (clips, clips[:, 0], clips[:, 1], torch.eye(2, 3).repeat(2, 1, 1))
    assert HeldOutClips(*parts, "features").score(encoder).mean_cosine > 0.8
    assert HeldOutClips(*parts, "descriptor").score(encoder).mean_cosine < 0.1
