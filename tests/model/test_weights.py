"""Weight files: saved weights load unchanged, torchvision's load as they are, and pickles are never opened."""

import dataclasses
import hashlib
import json
import logging

import pytest
import torch
from safetensors.torch import save_file

from timecycle.errors import SettingsError, WeightsError
from timecycle.model.inference import ResNetEncoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.model.weights import Card, find_bundled, hash_state, load_weights, save_weights, verify_weights


@pytest.fixture(scope="module")
def model():
    return random_resnet(ResNetConfig(), seed=3)


def equal(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def saved(path, state):
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    return path


# Saving and loading


@pytest.mark.parametrize(
    "config",
    [
        ResNetConfig(),
        ResNetConfig(padding="reflect", head_channels=12, head_relu=False),
        ResNetConfig(architecture="resnet50", padding="replicate"),
    ],
    ids=str,
)
def test_saved_model_loads_with_its_weights_and_settings(tmp_path, config):
    original = random_resnet(config, seed=1)
    save_weights(tmp_path / "weights.safetensors", original, Card(encoder=config))
    loaded = load_weights(tmp_path / "weights.safetensors")
    assert loaded.config == config
    assert equal(loaded, original)


@pytest.mark.parametrize("name", ["weights", "weights.safetensors"])
def test_weights_and_card_are_saved_side_by_side(tmp_path, model, name):
    save_weights(tmp_path / name, model, Card(encoder=model.config))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.json", "weights.safetensors"]


def test_file_name_may_contain_a_dot(tmp_path, model):
    save_weights(tmp_path / "resnet18.v2", model, Card(encoder=model.config))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resnet18.v2.json", "resnet18.v2.safetensors"]
    assert equal(load_weights(tmp_path / "resnet18.v2.safetensors"), model)


def test_card_is_readable_json(tmp_path, model):
    card = Card(encoder=model.config, trained_on="a short clip", scores={"davis2017 J&F": 41.2}, notes="φ")
    save_weights(tmp_path / "weights", model, card)
    written = json.loads((tmp_path / "weights.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256((tmp_path / "weights.safetensors").read_bytes()).hexdigest()
    assert written == dataclasses.asdict(card) | {"sha256": digest}


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("counters", [True, False])
def test_weights_of_a_classifier_load_without_a_card(tmp_path, model, prefix, counters):
    state = {
        prefix + name: tensor
        for name, tensor in model.state_dict().items()
        if counters or not name.endswith("num_batches_tracked")
    }
    state |= {f"{prefix}layer4.0.conv1.weight": torch.zeros(4, 4), f"{prefix}fc.weight": torch.zeros(3, 4)}
    state |= {f"{prefix}fc.bias": torch.zeros(3), f"{prefix}layer4.1.bn2.running_var": torch.ones(4)}
    loaded = load_weights(saved(tmp_path / "weights.safetensors", state))
    assert loaded.config == ResNetConfig()
    assert equal(loaded, model)


@pytest.mark.parametrize("config", [ResNetConfig(architecture="resnet50"), ResNetConfig(head_channels=7)], ids=str)
def test_architecture_follows_from_the_names_without_a_card(tmp_path, config):
    original = random_resnet(config, seed=0)
    loaded = load_weights(saved(tmp_path / "weights.safetensors", original.state_dict()))
    assert loaded.config == config
    assert equal(loaded, original)


def test_half_precision_weights_load_in_full_precision(tmp_path, model):
    state = {name: t.half() if t.is_floating_point() else t for name, t in model.state_dict().items()}
    loaded = load_weights(saved(tmp_path / "weights.safetensors", state)).state_dict()
    assert loaded["conv1.weight"].dtype == torch.float32
    assert torch.allclose(loaded["conv1.weight"], model.state_dict()["conv1.weight"], atol=1e-3)


# Refusals


@pytest.mark.parametrize("name", ["a.pth", "a.pt", "a.ckpt", "a.bin", "a.tar", "a.pkl", "a.PTH", "a.pth.tar"])
def test_pickle_is_refused_unopened_with_the_command_that_converts_it(tmp_path, name):
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(WeightsError, match="is a pickle checkpoint, and loading a pickle can run any code; convert it"):
        load_weights(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"not weights at all" * 10, bytes(100)])
def test_file_that_is_not_safetensors_is_refused(tmp_path, content):
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=r"weights\.safetensors is not a safetensors file: .*; copy it again"):
        load_weights(tmp_path / "weights.safetensors")


def test_truncated_file_is_refused(tmp_path, model):
    path = saved(tmp_path / "weights.safetensors", model.state_dict())
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(WeightsError, match="is not a safetensors file"):
        load_weights(path)


def test_missing_file_or_name_lists_what_is_available(tmp_path):
    with pytest.raises(WeightsError, match=r"no file of weights .*none; give a \.safetensors file, or a name"):
        load_weights(tmp_path / "none")
    with pytest.raises(WeightsError, match=r"there is no encoder 'resnet34'; .*timecycle-v2, .*random-resnet18, .*rgb"):
        load_encoder("resnet34")


def remove_tensor(state):
    del state["layer3.1.bn2.running_var"]


def add_tensors(state):
    state |= {"projector.weight": torch.zeros(2), "projector.bias": torch.zeros(2)}


def reshape_tensor(state):
    state["layer2.0.downsample.0.weight"] = torch.zeros(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (remove_tensor, r"lacks layer3\.1\.bn2\.running_var;"),
        (add_tensors, r"has the unknown tensor projector\.(weight|bias) and 1 more;"),
        (reshape_tensor, r"has a wrong shape for layer2\.0\.downsample\.0\.weight;"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, model, change, problem):
    state = model.state_dict()
    change(state)
    path = saved(tmp_path / "weights.safetensors", state)
    with pytest.raises(WeightsError, match=rf"weights\.safetensors {problem} give weights that fit"):
        load_weights(path)


def test_tensors_of_another_network_are_refused(tmp_path):
    path = saved(tmp_path / "weights.safetensors", {"blocks.0.attn.qkv.weight": torch.zeros(2)})
    with pytest.raises(
        WeightsError, match=r"lacks the tensors of a ResNet .*; give weights with torchvision's ResNet names"
    ):
        load_weights(path)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        '{"encoder": {"depth": 18}}',
        '{"encoder": {"architecture": "resnet34"}}',
        '{"encoder": {"padding": "circular"}}',
        '{"encoder": {"head_channels": -1}}',
    ],
)
def test_invalid_card_is_refused(tmp_path, model, text):
    path = saved(tmp_path / "weights.safetensors", model.state_dict())
    (tmp_path / "weights.json").write_text(text)
    with pytest.raises(
        WeightsError, match=r"(?s)the card .*weights\.json does not describe an encoder: .*; use the card"
    ):
        load_weights(path)


def test_card_of_another_model_is_refused(tmp_path, model):
    save_weights(tmp_path / "weights", model, Card(encoder=ResNetConfig(head_channels=5)))
    with pytest.raises(WeightsError, match=r"lacks head\.weight; give weights that fit the card"):
        load_weights(tmp_path / "weights.safetensors")


# Encoders


def test_default_encoder_is_bundled_and_has_the_checksum_in_its_name():
    path = find_bundled(DEFAULT_ENCODER)
    assert path is not None
    digest = verify_weights(path)
    assert path.name == f"{DEFAULT_ENCODER}-{digest[:8]}.safetensors"
    assert path.stat().st_size < 6_000_000
    encoder = load_encoder(device="cpu")
    assert isinstance(encoder, ResNetEncoder)
    assert encoder.sha256 == digest


def test_random_weights_are_reproducible():
    encoder = load_encoder("random-resnet18", device="cpu")
    assert encoder.name == "random-resnet18"
    assert encoder.sha256 == load_encoder("random-resnet18", device="cpu").sha256


def test_encoder_from_a_file_has_its_checksum_and_logs_nothing(tmp_path, model, caplog):
    path = tmp_path / "weights.safetensors"
    save_weights(path, model, Card(encoder=model.config))
    with caplog.at_level(logging.INFO, logger="timecycle"):
        encoder = load_encoder(str(path), device="cpu")
    assert caplog.records == []
    assert encoder.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_checksum_of_a_model_depends_on_every_tensor_and_not_on_order(model):
    state = model.state_dict()
    assert hash_state(state) == hash_state(dict(reversed(state.items())))
    assert hash_state(state) != hash_state(state | {"bn1.bias": state["bn1.bias"] + 1e-6})
    assert len(hash_state(state)) == 64


# Damaged and malicious files


def flip_bit(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("position", [-1, -1000, 20_000])
def test_flipped_bit_in_the_tensors_is_refused(tmp_path, model, position):
    path = tmp_path / "weights.safetensors"
    save_weights(path, model, Card(encoder=model.config))
    load_weights(path)
    flip_bit(path, position)
    with pytest.raises(WeightsError, match="does not have the checksum on its card"):
        load_weights(path)


def test_checksum_of_a_file_is_compared_with_its_name(tmp_path):
    original = find_bundled(DEFAULT_ENCODER)
    path = tmp_path / original.name
    path.write_bytes(original.read_bytes())
    flip_bit(path, -1)
    card = json.loads(original.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(card | {"sha256": ""}))  # as cards were written before
    with pytest.raises(WeightsError, match=r"has the checksum .*, but its name says 3fff10cf"):
        load_encoder(str(path))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, model, value):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["layer2.0.conv1.weight"][3, 2, 1, 0] = value
    with pytest.raises(WeightsError, match=r"layer2\.0\.conv1\.weight holds values that are not finite"):
        load_weights(saved(tmp_path / "torchvision.safetensors", state))


def test_tensor_without_values_cannot_claim_a_terabyte(tmp_path, model):
    """One dimension of its shape is huge and another is 0, so the file has only 300 bytes more."""
    state = dict(model.state_dict()) | {"head.weight": torch.empty(50_000, 0, 1, 1)}
    with pytest.raises(WeightsError, match=r"has a wrong shape for head\.weight"):
        load_weights(saved(tmp_path / "w.safetensors", state))
    with pytest.raises(SettingsError, match="head_channels is 4000000000"):
        ResNetConfig(head_channels=4_000_000_000)


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": {"head_channels": "many"}},
        {"encoder": {"columns": 3, "head_channels": 8}},
        {"encoder": {"colour": [1]}},
        {"encoder": []},
        {"scores": {"warp": "good"}},
        {"scores": 3},
        {"sha256": 7},
        {"surprise": 1},
    ],
    ids=str,
)
def test_card_with_values_of_wrong_types_is_refused(tmp_path, model, change):
    path = tmp_path / "weights.safetensors"
    save_weights(path, model, Card(encoder=model.config))
    card = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(card | change))
    with pytest.raises(WeightsError, match="does not describe an encoder"):
        load_weights(path)


def test_deeply_nested_card_is_refused(tmp_path, model):
    path = tmp_path / "weights.safetensors"
    save_weights(path, model, Card(encoder=model.config))
    path.with_suffix(".json").write_text("[" * 100_000)
    with pytest.raises(WeightsError, match="does not describe an encoder"):
        load_weights(path)
