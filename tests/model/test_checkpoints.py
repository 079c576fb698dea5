"""Third-party checkpoints, written here in exactly the layouts of their programs, give the encoder they contain."""

import argparse
import pickle
import zipfile

import pytest
import torch

from timecycle.errors import WeightsError
from timecycle.model.checkpoints import read_checkpoint
from timecycle.model.resnet import ResNetConfig, random_resnet


class Malicious:
    """An object whose pickle runs a function when it is opened."""

    def __reduce__(self):
        return print, ("this was run",)


def state_of(config, seed=0):
    return random_resnet(config, seed=seed).state_dict()


def under(prefix, state):
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def classifier(state):
    """Add the layers of a classifier that the encoder does not have."""
    return state | {"layer4.0.conv1.weight": torch.zeros(8, 8, 3, 3), "fc.weight": torch.zeros(5, 8)}


def timecycle2019():
    """ResNet-50 with kernels inflated to one frame, res5, the localizer, and a 1x1 convolution to 512 channels."""
    config = ResNetConfig(architecture="resnet50", head_channels=512)
    state = state_of(config)
    head = state.pop("head.weight")
    inflated = {name: tensor.unsqueeze(2) if tensor.ndim == 4 else tensor for name, tensor in state.items()}
    tensors = under("module.encoderVideo.", classifier(inflated))
    tensors |= {
        "module.afterconv1.weight": head.unsqueeze(2),
        "module.afterconv3_trans.weight": torch.zeros(128, 100, 4, 4),
        "module.afterconv4_trans.weight": torch.zeros(64, 128, 4, 4),
        "module.linear2.weight": torch.zeros(3, 10),
        "module.linear2.bias": torch.zeros(3),
    }
    return {"epoch": 14, "state_dict": tensors}, config, {**state, "head.weight": head}


def videowalk():
    """ResNet-18 below a wrapper, with the head of training and the command line as a Namespace."""
    config = ResNetConfig(padding="reflect")
    state = state_of(config)
    tensors = under("encoder.model.", classifier(state)) | {
        "selfsim_fc.0.weight": torch.zeros(128, 512),
        "selfsim_fc.0.bias": torch.zeros(128),
    }
    optimizer = {"state": {0: {"step": 3, "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-4, "params": [0]}]}
    arguments = argparse.Namespace(model_type="scratch", dropout=0.1, theta_affine=None, device="cuda")
    content = {"model": tensors, "optimizer": optimizer, "lr_scheduler": {}, "epoch": 24, "args": arguments}
    return content, config, state


def moco():
    config = ResNetConfig(architecture="resnet50")
    state = state_of(config)
    tensors = under("module.encoder_q.", classifier(state)) | under("module.encoder_k.", state_of(config, seed=1))
    content = {"epoch": 200, "arch": "resnet50", "state_dict": tensors | {"module.queue": torch.zeros(128, 10)}}
    return content, config, state


def moco3():
    config = ResNetConfig(architecture="resnet50")
    state = state_of(config)
    tensors = under("module.base_encoder.", classifier(state)) | {"module.predictor.0.weight": torch.zeros(2, 2)}
    return {"epoch": 300, "arch": "resnet50", "state_dict": tensors}, config, state


def dino():
    config = ResNetConfig(architecture="resnet50")
    state = state_of(config)
    teacher = under("backbone.", classifier(state)) | {"head.mlp.0.weight": torch.zeros(2, 2)}
    return {"student": under("module.", teacher), "teacher": teacher, "epoch": 800}, config, state


def torchvision():
    config = ResNetConfig()
    state = state_of(config)
    return classifier(state), config, state


def wrapped():
    config = ResNetConfig(architecture="resnet50")
    state = state_of(config)
    return {"state_dict": under("module.", classifier(state)), "best_acc1": 76.1}, config, state


LAYOUTS = {
    "timecycle2019": timecycle2019,
    "videowalk": videowalk,
    "moco": moco,
    "moco3": moco3,
    "dino": dino,
    "torchvision": torchvision,
    "wrapped": wrapped,
}


@pytest.mark.parametrize("is_zip", [True, False])  # files of 2019 are not zip files
@pytest.mark.parametrize("name", LAYOUTS)
def test_checkpoint_of_every_layout_gives_its_encoder(tmp_path, name, is_zip):
    content, config, state = LAYOUTS[name]()
    path = tmp_path / "checkpoint.pth.tar"
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    checkpoint = read_checkpoint(path)
    assert checkpoint.layout.name == {"moco3": "moco", "wrapped": "torchvision"}.get(name, name)
    assert checkpoint.model.config == config
    loaded = checkpoint.model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def test_kernel_over_several_frames_is_refused(tmp_path):
    content, *_ = timecycle2019()
    content["state_dict"]["module.encoderVideo.conv1.weight"] = torch.zeros(64, 3, 5, 7, 7)
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(
        WeightsError, match=r"the kernel conv1\.weight spans 5 frames; give an encoder of single frames"
    ):
        read_checkpoint(tmp_path / "a.pth")


def test_checkpoint_without_its_head_is_refused(tmp_path):
    content, *_ = timecycle2019()
    del content["state_dict"]["module.afterconv1.weight"]
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(WeightsError, match=r"a\.pth lacks module\.afterconv1\.weight"):
        read_checkpoint(tmp_path / "a.pth")


def test_other_networks_are_refused_with_their_contents(tmp_path):
    torch.save({"model": {"blocks.0.attn.qkv.weight": torch.zeros(2)}, "epoch": 1}, tmp_path / "a.pth")
    with pytest.raises(
        WeightsError, match=r"it contains model, epoch; known layouts are TimeCycle, 2019 .*; MoCo; DINO"
    ):
        read_checkpoint(tmp_path / "a.pth")
    torch.save([1, 2], tmp_path / "a.pth")
    with pytest.raises(WeightsError, match="holds a list, not named tensors"):
        read_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize("blocks", [3, 4])
def test_resnet_of_another_depth_is_refused(tmp_path, blocks):
    state = torchvision()[2] | {f"layer1.{blocks - 1}.conv1.weight": torch.zeros(64, 64, 3, 3)}
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(WeightsError, match=r"has the unknown tensor layer1\.\d\.conv1\.weight; give weights that fit"):
        read_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize("is_zip", [True, False])
def test_code_in_a_checkpoint_is_refused_and_never_run(tmp_path, is_zip, capsys):
    content = torchvision()[0] | {"more": Malicious()}
    torch.save(content, tmp_path / "a.pth", _use_new_zipfile_serialization=is_zip)
    with pytest.raises(WeightsError, match="holds more than tensors"):
        read_checkpoint(tmp_path / "a.pth")
    (tmp_path / "b.pth").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(WeightsError, match="holds more than tensors"):
        read_checkpoint(tmp_path / "b.pth")
    assert "this was run" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x80\x02", b"a web page" * 99, bytes(64)])
def test_damaged_files_are_refused(tmp_path, content):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(WeightsError, match=r"a\.pth (is not a checkpoint|holds more than tensors)"):
        read_checkpoint(tmp_path / "a.pth")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "none.pth")


def test_compressed_checkpoint_is_refused(tmp_path):
    """torch inflates compressed entries, so that a file of megabytes could take gigabytes of memory."""
    path = tmp_path / "w.pth"
    torch.save({"state_dict": under("module.", {"conv1.weight": torch.zeros(2_000_000)})}, path)
    packed = tmp_path / "packed.pth"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    assert packed.stat().st_size < 100_000
    with pytest.raises(WeightsError, match="is compressed and would take 8 MB of memory"):
        read_checkpoint(packed)


def test_refusal_of_a_pickle_does_not_advise_running_it(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"state_dict": Malicious()}, path)
    with pytest.raises(WeightsError) as refused:
        read_checkpoint(path)
    assert "weights_only" not in str(refused.value)
