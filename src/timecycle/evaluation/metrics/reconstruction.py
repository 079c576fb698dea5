"""Error of frames rebuilt by warping another frame: the L1 distance of colours."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import LabelError


@dataclass(frozen=True)
class L1:
    """Absolute difference of colours of 0..255, averaged over pixels."""

    mean_of_channels: float  # 0..255
    sum_of_channels: float  # red, green and blue added: 0..765


def l1(reconstructed: UInt8[np.ndarray, "height width 3"], truth: UInt8[np.ndarray, "_ _ 3"]) -> L1:
    """L1 of one frame, both ways: the paper does not say which it reports, but its numbers fit the sum."""
    if reconstructed.shape != truth.shape or not truth.size:
        raise LabelError(
            f"the reconstruction has the shape {reconstructed.shape} but the frame {truth.shape}",
            remedy="compare images (height, width, 3) of one size",
        )
    difference = np.abs(reconstructed.astype(np.int16) - truth)
    return L1(mean_of_channels=float(difference.mean()), sum_of_channels=float(difference.sum(axis=-1).mean()))
