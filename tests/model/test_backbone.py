"""Models of the transformers library, randomly initialised from their configs and saved in the layout of the Hub."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import timecycle
from timecycle.errors import WeightsError
from timecycle.model.hub import _warn_of_retries, summarised_retries
from timecycle.model.registry import load_encoder

transformers = pytest.importorskip("transformers")

SIDE_PX = (90, 131)  # a multiple of no patch

_VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 64,
}
_PYRAMID = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}

# name: (config class, its settings, the stage, stride, first pixel)
MODELS = {
    "resnet": ("ResNetConfig", {**_PYRAMID, "embedding_size": 8, "layer_type": "basic"}, "stage3", 16, 0),
    "convnext": ("ConvNextConfig", _PYRAMID, "stage3", 16, 7.5),
    "swin": ("SwinConfig", {"embed_dim": 8, "depths": [1, 1, 1], "num_heads": [1, 1, 2]}, "stage3", 16, 7.5),
    "dinov2": ("Dinov2Config", {**_VIT, "patch_size": 14, "image_size": 56}, "stage2", 14, 6.5),
    "dinov2_with_registers": (
        "Dinov2WithRegistersConfig",
        {**_VIT, "patch_size": 14, "image_size": 56, "num_register_tokens": 4},
        "stage2",
        14,
        6.5,
    ),
    "dinov3": ("DINOv3ViTConfig", {**_VIT, "patch_size": 16, "num_register_tokens": 4}, "stage2", 16, 7.5),
    "dinov3_convnext": ("DINOv3ConvNextConfig", _PYRAMID, "stage3", 16, 7.5),
    "vit8": ("ViTConfig", {**_VIT, "patch_size": 8}, "last", 8, 3.5),
    "vit16": ("ViTConfig", {**_VIT, "patch_size": 16}, "last", 16, 7.5),
    "ijepa": ("IJepaConfig", {**_VIT, "patch_size": 16}, "last", 16, 7.5),
}


def save(folder, name, **more):
    kind, settings, *_ = MODELS[name]
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(getattr(transformers, kind)(**settings, **more))
    model.save_pretrained(folder)
    return model


def random_image(seed=0):
    return np.random.default_rng(seed).integers(0, 255, (*SIDE_PX, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", MODELS)
def test_cells_of_every_model_cover_the_image(tmp_path, name):
    save(tmp_path, name)
    *_, stage, stride, first = MODELS[name]
    encoder = load_encoder(str(tmp_path), device="cpu")
    features = encoder.encode(random_image())
    assert encoder.name == f"{tmp_path}#{stage}"
    assert (features.grid.y.cells, features.grid.x.cells) == tuple(-(-side // stride) for side in SIDE_PX)
    assert (features.grid.y.stride_px, features.grid.y.first_px) == (stride, first)
    assert torch.allclose(features.cells.norm(dim=-1), torch.ones(features.cells.shape[:2]), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_change_in_the_image_changes_the_cell_at_its_position(tmp_path, name):
    """Class and register tokens are left out, rows and columns keep their order, and no cell is shifted."""
    save(tmp_path, name)
    encoder = load_encoder(str(tmp_path), device="cpu")
    image = np.full((*SIDE_PX, 3), 128, dtype=np.uint8)
    other = image.copy()
    other[58:66, 34:42] = (255, 0, 60)
    before, after = encoder.encode(image), encoder.encode(other)
    y, x = np.unravel_index(int((before.cells - after.cells).norm(dim=-1).argmax()), before.cells.shape[:2])
    reach = 1.25 * before.grid.y.stride_px
    assert abs(float(before.grid.y.pixel_of(torch.tensor(float(y)))) - 61.5) <= reach
    assert abs(float(before.grid.x.pixel_of(torch.tensor(float(x)))) - 37.5) <= reach


@pytest.mark.parametrize("name", ["vit16", "dinov2", "dinov3"])
def test_image_of_the_trained_size_gives_the_tokens_of_the_model(tmp_path, name):
    model = save(tmp_path, name).eval()
    patch = MODELS[name][1]["patch_size"]
    side = MODELS[name][1]["image_size"]
    image = np.random.default_rng(1).integers(0, 255, (side, side, 3), dtype=np.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = ((torch.from_numpy(image) / 255 - mean) / std).permute(2, 0, 1)[None]
    with torch.inference_mode():
        tokens = model(pixel_values=pixels).last_hidden_state[0, -((side // patch) ** 2) :]
    expected = torch.nn.functional.normalize(tokens, dim=-1)
    cells = load_encoder(str(tmp_path), device="cpu").encode(image).cells.flatten(0, 1)
    assert torch.allclose(cells, expected, atol=1e-4)


def test_input_scaling_of_the_repository_is_used(tmp_path):
    save(tmp_path, "vit16")
    plain = load_encoder(str(tmp_path), device="cpu").encode(random_image()).cells
    settings = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 1 / 255}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    scaled = load_encoder(str(tmp_path), device="cpu").encode(random_image()).cells
    assert not torch.allclose(plain, scaled, atol=1e-3)


def test_stage_can_be_chosen_and_an_unknown_one_lists_the_stages(tmp_path):
    save(tmp_path, "convnext")
    assert load_encoder(f"{tmp_path}#stage2", device="cpu").encode(random_image()).grid.y.stride_px == 8
    with pytest.raises(WeightsError, match="has no stage stage9; its stages are stage1, stage2, stage3, stage4"):
        load_encoder(f"{tmp_path}#stage9", device="cpu")
    save(tmp_path / "vit", "vit16")
    with pytest.raises(WeightsError, match=r"only the last layer of .* can be used; leave out #stage2"):
        load_encoder(f"{tmp_path / 'vit'}#stage2", device="cpu")


def test_file_without_some_tensors_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    save(tmp_path, "vit16")
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    del state[next(name for name in state if "attention" in name and name.endswith("weight"))]
    save_file(state, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"lacks .*attention.*; download it again"):
        load_encoder(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ViTMAEConfig", {**_VIT, "patch_size": 16, "decoder_hidden_size": 32, "decoder_num_attention_heads": 2}),
        ("BertConfig", {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}),
    ],
)
def test_models_without_a_feature_map_are_refused(tmp_path, kind, settings):
    getattr(transformers, kind)(**settings).save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match=r"which has no feature map; give an image encoder"):
        load_encoder(str(tmp_path), device="cpu")


def test_folder_without_valid_settings_is_refused(tmp_path):
    with pytest.raises(WeightsError, match=r"has no config\.json, .*; give a folder written by save_pretrained"):
        load_encoder(str(tmp_path), device="cpu")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"config\.json cannot be read: "):
        load_encoder(str(tmp_path), device="cpu")
    (tmp_path / "config.json").write_text('{"model_type": "nothing-known"}')
    with pytest.raises(WeightsError, match=r"transformers cannot load .*nothing-known"):
        load_encoder(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "vit", "num_attention_heads": 1, "hidden_size": 0},
        {"model_type": "dinov2", "image_size": None},
        {"model_type": "vit", "patch_size": 0},
        {"model_type": "resnet", "depths": "none"},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(tmp_path, settings):
    """transformers fails on them with errors of any kind."""
    save(tmp_path, "vit16")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(WeightsError):
        load_encoder(str(tmp_path), device="cpu")


def test_damaged_tensors_of_transformers_are_refused(tmp_path):
    save(tmp_path, "vit16")
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[20] = 0xFF  # in the header, which is then not UTF-8
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=r"transformers cannot load .*header"):
        load_encoder(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    "content", [{"image_mean": "abc"}, {"image_std": [None] * 3}, {"rescale_factor": "x"}], ids=str
)
def test_invalid_input_scaling_is_refused(tmp_path, content):
    save(tmp_path, "vit16")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    with pytest.raises(WeightsError):
        load_encoder(str(tmp_path), device="cpu")


def test_name_that_cannot_be_downloaded_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match="nobody/nothing is not on this machine, and the Hugging Face Hub cannot"):
        load_encoder("nobody/nothing", device="cpu")


def test_retries_of_the_hub_are_logged_once(caplog, capfd, monkeypatch):
    """The messages are those of the Hub's client, which logs two for each of five tries."""
    _warn_of_retries.cache_clear()
    client = logging.getLogger("huggingface_hub.utils._http")
    caplog.set_level(logging.WARNING, logger=client.name)  # its own settings may differ once it is imported
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
    with summarised_retries():
        for tries in range(1, 6):
            client.warning(
                "'[Errno -2] Name or service not known' thrown while requesting HEAD https://huggingface.co/"
            )
            client.warning("Retrying in 1s [Retry %d/5].", tries)
        client.warning("another message")
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "the Hugging Face Hub does not answer; trying again for half a minute",
        "another message",
    ]
    assert "Retrying" not in capfd.readouterr().err
    client.warning("Retrying in 1s [Retry 1/5].")  # outside the context the client logs as before
    assert caplog.records[-1].getMessage() == "Retrying in 1s [Retry 1/5]."


@pytest.mark.slow  # the client tries five times, for half a minute
def test_command_with_an_unreachable_hub_prints_three_lines(tmp_path):
    from timecycle.synthetic import WorldConfig, make_world

    Image.fromarray(make_world(WorldConfig(height_px=32, width_px=32, frames=1)).frame(0)).save(tmp_path / "a.png")
    source = str(Path(timecycle.__file__).parents[1])
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": source}
    arguments = ["flow", "a.png", "a.png", "-o", "out", "--encoder", "nobody/nothing"]
    done = subprocess.run(
        [sys.executable, "-m", "timecycle", *arguments],
        cwd=tmp_path,
        env=os.environ | unreachable,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "the Hugging Face Hub does not answer; trying again for half a minute",
        "error: nobody/nothing is not on this machine, and the Hugging Face Hub cannot be reached",
        "  try: download it once with a connection (hf download NAME), or give a folder that contains it",
    ]


def test_labels_are_propagated_with_a_model_of_the_hub(tmp_path):
    from clips import small_world
    from timecycle import Masks, propagate

    save(tmp_path, "dinov2")
    world = small_world()
    frames = list(propagate(world.video(), {0: Masks(world.mask(0))}, encoder=load_encoder(str(tmp_path))))
    assert len(frames) == len(world.video())
    assert frames[-1].labels.ids.shape == world.mask(0).shape
