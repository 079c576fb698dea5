"""bf16 is taken only where the processor has it and this encoder's descriptors agree."""

import logging

import pytest
import torch

from timecycle.model import precision
from timecycle.model.encoder import FeatureMap
from timecycle.model.registry import load_encoder


class Rough:
    """An encoder whose bf16 form is spoiled by noise."""

    def __init__(self, exactly):
        self.inner = load_encoder("random-resnet18", device="cpu")
        self.name, self.sha256, self.form = "rough", self.inner.sha256, exactly

    def encode(self, image):
        found = self.inner.encode(image)
        if self.form == "fp32":
            return found
        noise = torch.randn(found.cells.shape, generator=torch.Generator().manual_seed(0))
        return FeatureMap(torch.nn.functional.normalize(found.cells + 0.01 * noise, dim=-1), found.grid)


@pytest.mark.parametrize(("has_it", "wanted"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_where_the_processor_has_it(monkeypatch, has_it, wanted):
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: has_it)
    assert f"{wanted} on cpu" in load_encoder("random-resnet18", device="cpu", precision="auto").form


def test_descriptors_that_do_not_agree_are_computed_in_fp32(monkeypatch, caplog):
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: True)
    with caplog.at_level(logging.WARNING, "timecycle"):
        assert precision.choose_precision(Rough).form == "fp32"
    assert "bf16 descriptors of rough agree with fp32 only to a cosine of 0.9" in caplog.text
