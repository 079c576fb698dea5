"""Choice of precision: bf16 where it is fast and its descriptors agree with those of fp32."""

import logging
from collections.abc import Callable

import torch

from timecycle.concurrency import supports_bf16
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Precision
from timecycle.synthetic import WorldConfig, make_world

log = logging.getLogger("timecycle")

_AGREEMENT = 0.999  # mean cosine of descriptors


def choose_precision(load: Callable[[Precision], Encoder]) -> Encoder:
    """Load an encoder in bf16 if the processor multiplies bf16 and descriptors agree with fp32, otherwise in fp32."""
    exact = load("fp32")
    if not supports_bf16():
        return exact
    fast = load("bf16")
    agreement = _agreement(exact, fast)
    if agreement >= _AGREEMENT:
        return fast
    log.warning("bf16 descriptors of %s agree with fp32 only to a cosine of %.4f: using fp32", exact.name, agreement)
    return exact


def _agreement(exact: Encoder, fast: Encoder) -> float:
    image = make_world(WorldConfig(height_px=160, width_px=240, frames=1)).frame(0)
    cosines = (exact.encode(image).cells * fast.encode(image).cells).sum(dim=-1)
    return float(torch.nan_to_num(cosines, nan=-1.0).mean())
