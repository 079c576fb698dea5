"""The device that is compared with the CPU."""

import pytest
import torch

from parity import require_cuda


@pytest.fixture
def cuda():
    """The CUDA device, in which fp32 is fp32: by default its convolutions round to TF32, matrix products do not."""
    device, convolutions = require_cuda(), torch.backends.cudnn.conv
    before, convolutions.fp32_precision = convolutions.fp32_precision, "ieee"
    yield device
    convolutions.fp32_precision = before
