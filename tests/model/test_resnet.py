"""The encoder phi: parameter names, geometry (a cell for every eighth pixel) and inference."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from timecycle.device import pick_device
from timecycle.errors import SettingsError, VideoError
from timecycle.model.encoder import Encoder
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD, ResNetEncoder, fold_batch_norm
from timecycle.model.resnet import ResNet, ResNetConfig, random_resnet

SMALL = ResNetConfig()


@pytest.fixture(scope="module")
def plain():
    return random_resnet(SMALL, seed=0).eval()


def random_image(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_statistics(config, seed=0):
    """Make a model whose batch norms have parameters and statistics other than 0 and 1."""
    model = random_resnet(config, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.bias.uniform_(-0.3, 0.3, generator=generator)
                module.running_mean.uniform_(-0.3, 0.3, generator=generator)
                module.running_var.uniform_(0.5, 2, generator=generator)
    return model


def with_kernels(model, change):
    """Return the model with every convolution kernel changed."""
    copy = ResNet(model.config).eval()
    copy.load_state_dict({n: change(t) if t.ndim == 4 else t for n, t in model.state_dict().items()})
    return copy


def as_encoder(model, **options):
    return ResNetEncoder(model, name="test", sha256="0", device="cpu", **options)


def encode_in_training_form(model, image):
    """Compute the descriptors of an image with the module as it is trained."""
    pixels = (image / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    with torch.no_grad():
        return model(torch.from_numpy(pixels).permute(2, 0, 1)[None].float())[0].permute(1, 2, 0)


# Names


def torchvision_names(depths, convolutions):
    """List the names of torchvision's ResNet state up to layer3, from its documentation."""

    def norm(name):
        return [
            f"{name}.{tensor}" for tensor in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        ]

    names = ["conv1.weight", *norm("bn1")]
    for layer, depth in enumerate(depths, start=1):
        for block in range(depth):
            for i in range(1, convolutions + 1):
                names += [f"layer{layer}.{block}.conv{i}.weight", *norm(f"layer{layer}.{block}.bn{i}")]
            if block == 0 and (layer > 1 or convolutions == 3):
                names += [f"layer{layer}.0.downsample.0.weight", *norm(f"layer{layer}.0.downsample.1")]
    return names


@pytest.mark.parametrize(
    ("architecture", "depths", "convolutions"), [("resnet18", (2, 2, 2), 2), ("resnet50", (3, 4, 6), 3)]
)
def test_parameters_have_the_names_of_torchvision(architecture, depths, convolutions):
    model = ResNet(ResNetConfig(architecture=architecture))
    assert set(model.state_dict()) == set(torchvision_names(depths, convolutions))


def test_parameters_have_the_known_shapes():
    state = ResNet(SMALL).state_dict()
    known = {
        "conv1.weight": (64, 3, 7, 7),
        "layer1.1.conv2.weight": (64, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer2.0.downsample.1.running_mean": (128,),
        "layer3.0.conv1.weight": (256, 128, 3, 3),
        "layer3.1.bn2.running_var": (256,),
    }
    assert {name: tuple(state[name].shape) for name in known} == known
    assert not any(name.startswith(("layer4", "fc", "head")) for name in state)
    assert "layer1.0.downsample.0.weight" not in state
    state = ResNet(ResNetConfig(architecture="resnet50", head_channels=512)).state_dict()
    assert tuple(state["layer1.0.downsample.0.weight"].shape) == (256, 64, 1, 1)
    assert tuple(state["layer3.5.conv3.weight"].shape) == (1024, 256, 1, 1)
    assert tuple(state["head.weight"].shape) == (512, 1024, 1, 1)


@pytest.mark.parametrize(
    ("architecture", "whole", "layer4", "classifier"),
    [
        # The published numbers of the whole classifiers, less res5 and the last layer.
        ("resnet18", 11_689_512, 8_393_728, 512 * 1000 + 1000),
        ("resnet50", 25_557_032, 14_964_736, 2048 * 1000 + 1000),
    ],
)
def test_parameter_count_is_the_published_one_without_res5_and_classifier(architecture, whole, layer4, classifier):
    model = ResNet(ResNetConfig(architecture=architecture))
    assert sum(p.numel() for p in model.parameters()) == whole - layer4 - classifier


# Geometry


@pytest.mark.parametrize(
    "config",
    [ResNetConfig(), ResNetConfig(padding="replicate"), ResNetConfig(columns=True, head_channels=256)],
    ids=str,
)
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (8, 8), (9, 9), (15, 33), (40, 41)])
def test_image_of_any_size_has_a_cell_for_every_eighth_pixel(config, size):
    model = as_encoder(random_resnet(config, seed=0))
    features = model.encode(random_image(*size))
    rows, columns = (math.ceil(n / 8) for n in size)
    assert features.cells.shape == (rows, columns, 256)
    assert (features.grid.y.cells, features.grid.x.cells) == (rows, columns)
    assert (features.grid.y.pixels, features.grid.x.pixels) == size
    assert torch.allclose(features.cells.norm(dim=-1), torch.ones(rows, columns), atol=1e-5)


def test_reflect_padding_needs_more_than_one_cell():
    model = as_encoder(random_resnet(ResNetConfig(padding="reflect"), seed=0))
    assert model.encode(random_image(9, 9)).cells.shape == (2, 2, 256)
    for height, width in ((8, 30), (30, 8), (1, 1)):
        with pytest.raises(
            VideoError, match=f"an image of {width}x{height} is too small .*; use images of more than 8"
        ):
            model.encode(random_image(height, width))


@pytest.mark.parametrize(("architecture", "head", "channels"), [("resnet18", 64, 64), ("resnet50", None, 1024)])
def test_descriptors_have_unit_length_and_the_configured_channels(architecture, head, channels):
    model = random_resnet(ResNetConfig(architecture=architecture, head_channels=head, head_relu=False), seed=0).eval()
    with torch.no_grad():
        descriptors = model(noise(2, 3, 17, 25))
    assert descriptors.shape == (2, channels, 3, 4)
    assert model.channels == channels
    assert torch.allclose(descriptors.norm(dim=1), torch.ones(2, 3, 4), atol=1e-5)


def test_head_relu_makes_descriptors_non_negative():
    for relu in (True, False):
        model = random_resnet(ResNetConfig(head_channels=8, head_relu=relu), seed=0).eval()
        with torch.no_grad():
            assert bool((model(noise(1, 3, 33, 33)) >= 0).all()) is relu


@torch.no_grad()
@pytest.mark.parametrize(
    "config",
    [
        ResNetConfig(padding="zeros"),
        ResNetConfig(padding="reflect"),
        ResNetConfig(padding="replicate"),
        ResNetConfig(last="res3", columns=True, head_channels=16, padding="reflect"),
    ],
    ids=str,
)
def test_mirrored_image_has_mirrored_features_under_mirrored_kernels(config):
    model = with_statistics(config)
    image = noise(1, 3, 25, 41)
    mirrored = with_kernels(model, lambda kernel: kernel.flip(3))(image.flip(3))
    assert torch.allclose(mirrored.flip(3), model(image), atol=1e-4)
    upside_down = with_kernels(model, lambda kernel: kernel.flip(2))(image.flip(2))
    assert torch.allclose(upside_down.flip(2), model(image), atol=1e-4)


@torch.no_grad()
def test_network_up_to_res3_equals_the_first_layers_of_the_whole():
    whole = with_statistics(ResNetConfig())
    part = ResNet(ResNetConfig(last="res3")).eval()
    part.load_state_dict({name: whole.state_dict()[name] for name in part.state_dict()})
    image = noise(1, 3, 33, 41)
    assert part.channels == 128
    expected = whole.layer3(part.activations(image))
    assert torch.allclose(whole.activations(image), expected, atol=1e-5 * float(expected.abs().max()))


@torch.no_grad()
def test_image_shifted_by_eight_pixels_has_features_shifted_by_one_cell(plain):
    scene = noise(1, 3, 17, 264)
    here, there = plain(scene[..., :256]), plain(scene[..., 8:])
    inner = slice(11, -11)  # 82 pixels: nearer the edge, descriptors see the border
    assert torch.allclose(here[..., 1:][..., inner], there[..., :-1][..., inner], atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("cell", [8, 12, 15])
def test_response_to_a_bright_pixel_is_symmetric_about_its_cell(plain, cell):
    """Kernels are symmetric and the background is black; about any other cell the response is not symmetric."""
    model = with_kernels(plain, lambda kernel: (kernel + kernel.flip(3)) / 2)
    image = torch.zeros(1, 3, 9, 8 * 24 + 1)
    image[..., 4, 8 * cell] = 10
    response = model.activations(image)[0].pow(2).sum(dim=(0, 1))
    near = slice(cell - 2, cell + 3)  # cells farther away also see the border
    around = response[near]
    assert response[cell] > 0
    assert torch.allclose(around, around.flip(0), rtol=1e-3, atol=1e-6)
    image = image.roll(4, dims=3)
    moved = model.activations(image)[0].pow(2).sum(dim=(0, 1))[near]
    assert not torch.allclose(moved, moved.flip(0), rtol=1e-3, atol=1e-6)


def test_grid_centres_cells_on_every_eighth_pixel(plain):
    grid = as_encoder(plain).encode(random_image(30, 20)).grid
    assert grid.centres()[0, 0].tolist() == [0, 0]
    assert grid.centres()[3, 2].tolist() == [16, 24]


# Inference

VARIANTS = [
    ResNetConfig(),
    ResNetConfig(padding="reflect"),
    ResNetConfig(padding="replicate", head_channels=32),
    ResNetConfig(head_channels=48, head_relu=False),
    ResNetConfig(architecture="resnet50", padding="reflect", head_channels=16),
    ResNetConfig(last="res3", padding="reflect"),
    ResNetConfig(columns=True, head_channels=24, head_relu=False),
    ResNetConfig(last="res3", columns=True, head_channels=24, head_relu=False, padding="reflect"),
]


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_encoder_equals_the_module_in_training_form(config):
    model = with_statistics(config)
    image = random_image(34, 47)
    assert torch.allclose(as_encoder(model).encode(image).cells, encode_in_training_form(model, image), atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_folding_removes_batch_norms_and_keeps_activations(config):
    model = with_statistics(config)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folded = fold_batch_norm(model)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert all(not p.requires_grad for p in folded.parameters())
    image = noise(1, 3, 33, 41)
    expected = model.activations(image)
    assert torch.allclose(folded.activations(image), expected, atol=1e-4 * float(expected.abs().max()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_bf16_keeps_the_direction_of_descriptors(plain):
    image = random_image(41, 49)
    fp32, bf16 = as_encoder(plain).encode(image), as_encoder(plain, precision="bf16").encode(image)
    assert bf16.cells.dtype == torch.float32
    assert (fp32.cells * bf16.cells).sum(dim=-1).min() > 0.99
    assert torch.allclose(bf16.cells.norm(dim=-1), torch.ones(6, 7), atol=1e-4)


def test_encoder_of_a_model_in_training_mode_uses_evaluation_mode():
    model = with_statistics(SMALL)
    expected = as_encoder(model).encode(random_image(20, 20)).cells
    assert torch.equal(as_encoder(model.train()).encode(random_image(20, 20)).cells, expected)


def test_memory_layout_of_an_image_does_not_change_its_features(plain):
    image = random_image(40, 48)
    encoder = as_encoder(plain)
    assert torch.equal(encoder.encode(image[::2, ::-2]).cells, encoder.encode(image[::2, ::-2].copy()).cells)


def test_resnet_encoder_implements_the_protocol(plain):
    assert isinstance(as_encoder(plain), Encoder)


# Randomness and settings


def test_random_weights_are_a_function_of_the_seed_alone():
    torch.manual_seed(1)
    first = random_resnet(SMALL, seed=5).state_dict()
    torch.manual_seed(2)
    again, other = random_resnet(SMALL, seed=5).state_dict(), random_resnet(SMALL, seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_random_weights_leave_global_random_state_alone(monkeypatch):
    def refused(seed):
        raise AssertionError("an accelerator was seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refused)
    before = torch.get_rng_state()
    random_resnet(SMALL, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_kernels_have_the_standard_deviation_of_kaiming():
    state = random_resnet(SMALL, seed=0).state_dict()
    assert float(state["layer3.1.conv2.weight"].std()) == pytest.approx(math.sqrt(2 / (256 * 9)), rel=0.01)


def test_head_without_channels_is_refused():
    with pytest.raises(SettingsError, match="head_channels is 0; set it to 1 to 65536, or to None"):
        ResNetConfig(head_channels=0)


def test_columns_without_a_head_are_refused():
    with pytest.raises(SettingsError, match="columns is set without a head that takes them; set head_channels too"):
        ResNetConfig(columns=True)


# Devices


def available(device):
    return torch.cuda.is_available() if device == "cuda" else torch.backends.mps.is_available()


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_missing_device_is_refused_and_never_replaced(device):
    if available(device):
        pytest.skip(f"this machine has {device}")
    with pytest.raises(
        SettingsError, match=f"torch finds no device '{device}' on this machine; use --device auto, or run"
    ):
        pick_device(device)


def test_auto_picks_an_available_device():
    assert torch.zeros(1, device=pick_device("auto")).item() == 0
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_every_device_gives_the_same_descriptors(plain, device):
    if not available(device):
        pytest.skip(f"this machine has no {device}")
    image = random_image(65, 97)
    on_device = ResNetEncoder(plain, name="test", sha256="0", device=device).encode(image).cells.cpu()
    assert (on_device * as_encoder(plain).encode(image).cells).sum(dim=-1).min() > 0.999


def test_mean_colour_of_the_cell_is_concatenated():
    """With weight 1, half of a similarity is that of mean colours; descriptors keep unit length."""
    with_colour = random_resnet(ResNetConfig(head_channels=8, colour=1.0), seed=0).eval()
    without = random_resnet(ResNetConfig(head_channels=8), seed=0).eval()
    images = noise(1, 3, 50, 70)
    descriptors, learned = with_colour(images), without(images)
    assert descriptors.shape == (1, 11, 7, 9)
    assert with_colour.channels == 11
    assert torch.allclose(descriptors.norm(dim=1), torch.ones(1, 7, 9), atol=1e-5)
    assert torch.allclose(descriptors[:, :8], learned * 0.5**0.5, atol=1e-5)
    patch = images[0, :, 12:21, 20:29].mean(dim=(1, 2))  # around pixel (16, 24): the third row's fourth cell
    assert torch.allclose(descriptors[0, 8:, 2, 3], patch / patch.norm() * 0.5**0.5, atol=1e-5)


def test_mean_is_subtracted_and_res2_is_concatenated():
    """Each block of a descriptor is normalised, mean-centred per image, normalised again and weighted."""
    config = ResNetConfig(head_channels=8, head_relu=False, last="res3", columns=True, centred=True, fine=0.5, colour=1)
    model = random_resnet(config, seed=0).eval()
    images = torch.cat([noise(1, 3, 50, 70), noise(1, 3, 50, 70) + 1])
    descriptors = model(images)
    assert model.channels == descriptors.shape[1] == 8 + 64 + 3
    learned = F.normalize(model.learned(images), dim=1)
    learned = F.normalize(learned - learned.mean(dim=(2, 3), keepdim=True), dim=1)
    assert torch.allclose(descriptors[:, :8], learned * (1 / 2.5) ** 0.5, atol=1e-5)
    assert torch.allclose(descriptors[:, 8:72].norm(dim=1), torch.full((2, 7, 9), (0.5 / 2.5) ** 0.5), atol=1e-5)
    assert torch.allclose(descriptors[:, 72:].norm(dim=1), torch.full((2, 7, 9), (1 / 2.5) ** 0.5), atol=1e-5)
    assert torch.allclose(model(images[1:]), descriptors[1:], atol=1e-5)  # the image's own mean, not the batch's


def test_a_descriptor_without_its_colour_is_that_of_a_network_without_it():
    settings = {"head_channels": 8, "last": "res3", "columns": True, "centred": True, "fine": 0.5}
    coloured = random_resnet(ResNetConfig(**settings, colour=1), seed=0).eval()
    plain = random_resnet(ResNetConfig(**settings), seed=0).eval()
    images = noise(1, 3, 48, 64)
    assert torch.equal(coloured.activations(images, colour=False), plain.activations(images))


def test_learned_features_do_not_depend_on_concatenated_blocks():
    plain = random_resnet(ResNetConfig(head_channels=8), seed=0).eval()
    other = random_resnet(ResNetConfig(head_channels=8, centred=True, fine=1, colour=1), seed=0).eval()
    images = noise(1, 3, 48, 64)
    assert torch.equal(plain.learned(images), other.learned(images))
    assert plain.state_dict().keys() == other.state_dict().keys()


@pytest.mark.parametrize("name", ["fine", "colour"])
def test_negative_weight_is_refused(name):
    with pytest.raises(SettingsError, match=f"{name} is -1"):
        ResNetConfig(**{name: -1})
