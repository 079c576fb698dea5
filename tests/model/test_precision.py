"""Precision `auto` is bf16 only where the processor multiplies it and the encoder's descriptors agree with fp32."""

import logging

import pytest
import torch

from timecycle.model import precision
from timecycle.model.encoder import FeatureMap
from timecycle.model.registry import load_encoder


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
    monkeypatch.setattr(precision, "supports_bf16", lambda: has_bf16)
    assert f"{expected} on cpu" in load_encoder("random-resnet18", device="cpu", precision="auto").description


def test_auto_is_fp32_where_bf16_descriptors_do_not_agree(monkeypatch, caplog):
    monkeypatch.setattr(precision, "supports_bf16", lambda: True)
    with caplog.at_level(logging.WARNING, "timecycle"):
        assert precision.choose_precision(NoisyEncoder).description == "fp32"
    assert "bf16 descriptors of noisy agree with fp32 only to a cosine of 0.9" in caplog.text
