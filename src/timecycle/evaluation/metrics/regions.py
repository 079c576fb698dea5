"""Region similarity J of DAVIS: how much two masks overlap."""

import numpy as np
from jaxtyping import Bool


def jaccard(predicted: Bool[np.ndarray, "height width"], truth: Bool[np.ndarray, "height width"]) -> float:
    """Pixels in both masks over pixels in either; 1 if both are empty."""
    either = np.count_nonzero(predicted | truth)
    return np.count_nonzero(predicted & truth) / either if either else 1.0
