"""The command `timecycle weights`."""

import json

import pytest
import torch

from timecycle.cli import main
from timecycle.files import sha256
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.model.weights import Card, load_weights, save_weights


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "resnet.pth.tar"
    torch.save({"state_dict": random_resnet(ResNetConfig(), seed=5).state_dict()}, path)
    return path


def test_converted_checkpoint_is_an_encoder_and_not_overwritten(checkpoint, capsys):
    assert main(["weights", "convert", str(checkpoint), "--licence", "MIT"]) == 0
    target = checkpoint.with_name("resnet.safetensors")
    assert f"use it with --encoder {target}" in capsys.readouterr().out
    assert torch.equal(load_weights(target).conv1.weight, random_resnet(ResNetConfig(), seed=5).conv1.weight)
    card = json.loads(target.with_suffix(".json").read_text())
    assert card["licence"] == "MIT"
    assert card["source"] == {
        "file": "resnet.pth.tar",
        "sha256": sha256([checkpoint]),
        "layout": "torchvision's names",
    }
    assert main(["weights", "convert", str(checkpoint)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["weights", "convert", str(checkpoint), "--overwrite"]) == 0
    assert main(["weights", "convert", str(checkpoint), "-o", str(checkpoint.with_name("a.v2"))]) == 0
    assert checkpoint.with_name("a.v2.safetensors").exists()


def test_show_prints_the_card(checkpoint, capsys):
    main(["weights", "convert", str(checkpoint)])
    capsys.readouterr()
    assert main(["weights", "show", str(checkpoint.with_name("resnet.safetensors"))]) == 0
    shown = capsys.readouterr().out
    assert "architecture resnet18" in shown
    assert "unknown: ask where the checkpoint came from" in shown


def test_weights_without_a_card_are_refused_by_show(tmp_path, checkpoint, capsys):
    main(["weights", "convert", str(checkpoint)])
    checkpoint.with_name("resnet.json").unlink()
    assert main(["weights", "show", str(checkpoint.with_name("resnet.safetensors"))]) == 2
    assert "has no card" in capsys.readouterr().err


def named(folder, **state):
    """Write weights whose file name contains their checksum."""
    model = random_resnet(ResNetConfig(), seed=5)
    model.load_state_dict(model.state_dict() | state)
    path = folder / "mine.safetensors"
    save_weights(path, model, Card(encoder=model.config), half=True)
    target = path.rename(folder / f"mine-{sha256([path])[:8]}.safetensors")
    path.with_suffix(".json").rename(target.with_suffix(".json"))
    return target


def test_changed_file_is_not_verified(tmp_path, capsys):
    path = named(tmp_path)
    assert main(["weights", "verify", str(path)]) == 0
    assert sha256([path]) in capsys.readouterr().out
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(bytes(content))
    assert main(["weights", "verify", str(path)]) == 2
    assert "copy it again, with its card: it was changed or damaged" in capsys.readouterr().err
    path.with_suffix(".json").unlink()
    assert main(["weights", "verify", str(path)]) == 2
    assert "copy or install it again: it was changed or damaged" in capsys.readouterr().err


def test_weights_with_nan_are_not_verified(tmp_path, capsys):
    path = named(tmp_path, **{"bn1.weight": torch.full((64,), torch.nan)})
    assert main(["weights", "verify", str(path)]) == 2
    assert "bn1.weight holds values that are not finite" in capsys.readouterr().err


def test_half_precision_weights_load_as_float32(tmp_path):
    path = named(tmp_path)
    assert path.stat().st_size < 6e6
    whole, half = random_resnet(ResNetConfig(), seed=5), load_weights(path)
    assert half.conv1.weight.dtype == torch.float32
    assert torch.allclose(whole.conv1.weight, half.conv1.weight, rtol=1e-3, atol=1e-6)
    assert torch.equal(whole.bn1.running_var, half.bn1.running_var)


def test_bundled_weights_are_listed_with_their_terms_and_verified(capsys):
    assert main(["weights", "list"]) == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "Apache-2.0" in listed["timecycle-v2"]
    assert main(["weights", "verify"]) == 0


def test_missing_weights_are_refused_by_show(capsys):
    assert main(["weights", "show", "nothere"]) == 2
    assert "there is no file of weights nothere" in capsys.readouterr().err
