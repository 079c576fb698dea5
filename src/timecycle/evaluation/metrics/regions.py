"""Region similarity J of DAVIS: how much two masks overlap."""

import numpy as np
from jaxtyping import Bool, Float64


def jaccard(predicted: Bool[np.ndarray, "height width"], truth: Bool[np.ndarray, "height width"]) -> float:
    """Pixels in both masks over pixels in either; 1 if both are empty."""
    either = np.count_nonzero(predicted | truth)
    return np.count_nonzero(predicted & truth) / either if either else 1.0


def region_similarity(
    predicted: Bool[np.ndarray, "frames height width"], truth: Bool[np.ndarray, "frames height width"]
) -> Float64[np.ndarray, " frames"]:
    """J of every frame: |P and G| / |P or G|, 1 where both are empty."""
    return np.array([jaccard(p, g) for p, g in zip(predicted, truth, strict=True)], np.float64)
