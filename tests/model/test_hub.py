"""Encoders of this package in the layout of the Hub."""

import json

import pytest
import torch

from timecycle import from_pretrained, load_encoder, save_pretrained
from timecycle.errors import WeightsError
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.model.weights import Card, save_weights


@pytest.fixture(scope="module")
def model():
    return random_resnet(ResNetConfig(padding="reflect"), seed=2)


def test_saved_folder_has_the_layout_of_the_hub_and_loads_as_the_same_model(tmp_path, model):
    save_pretrained(model, tmp_path / "ours", Card(encoder=model.config, trained_on="a short clip"))
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["config.json", "model.safetensors"]
    loaded = from_pretrained(tmp_path / "ours")
    assert loaded.config == model.config
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["model_type"] == "timecycle"
    assert config["trained_on"] == "a short clip"


def test_saved_folder_loads_as_an_encoder_by_its_path(tmp_path, model):
    save_pretrained(model, tmp_path)
    encoder = load_encoder(str(tmp_path), device="cpu")
    assert encoder.name == str(tmp_path)
    assert "reflect" in encoder.description


def test_other_and_damaged_folders_are_refused(tmp_path, model):
    with pytest.raises(WeightsError, match=r"has no config\.json"):
        from_pretrained(tmp_path)
    save_pretrained(model, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(WeightsError, match="is not an encoder of timecycle; use load_encoder, which also takes"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "timecycle", "encoder": {"depth": 3}}')
    with pytest.raises(WeightsError, match=r"cannot be read: .*depth"):
        from_pretrained(tmp_path)
    save_pretrained(model, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(WeightsError, match="does not have the checksum on its card"):
        from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"has no model\.safetensors"):
        from_pretrained(tmp_path)


def test_a_file_of_weights_is_loaded_and_can_be_saved_for_the_hub(tmp_path, model):
    weights = tmp_path / "weights.safetensors"
    save_weights(weights, model, Card(encoder=model.config, trained_on="a short clip"))
    loaded = from_pretrained(weights)
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    assert from_pretrained(save_pretrained(loaded, tmp_path / "ours")).config == model.config


def test_an_encoder_is_not_saved_for_the_hub(tmp_path):
    with pytest.raises(WeightsError, match="passed as RgbEncoder; pass a model of `from_pretrained`"):
        save_pretrained(load_encoder("rgb"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
