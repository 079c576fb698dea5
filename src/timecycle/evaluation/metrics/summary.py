"""What DAVIS says of a curve over time: its mean, how often it is good, and how much it falls."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from timecycle.errors import LabelError


@dataclass(frozen=True)
class Summary:
    """J or F of one object over time, in fractions."""

    mean: float  # over frames
    recall: float  # share of frames above 0.5
    decay: float  # mean of the first quarter of the frames minus mean of the last: what is lost on the way


def summarise(values: Float64[np.ndarray, " frames"]) -> Summary:
    """Mean, recall (> 0.5) and decay of the frames' scores.

    Quarters run between the frames round(linspace(1, frames, 5)) - 1 and include the frames at both of their ends,
    so neighbours share one and the decay of a single frame is 0. Frames without a score (NaN) are left out of means
    and count as misses in recall.
    """
    if not values.size:
        raise LabelError("there is no frame to summarise", remedy="score at least one frame")
    # The small number settles halves upwards, where rounding alone would go to the even neighbour. Indices stay
    # wide: the official evaluator keeps them in 8 bits, so its decay goes wrong above 256 frames.
    borders = (np.round(np.linspace(1, len(values), 5) + 1e-10) - 1).astype(np.int64)
    first = values[: borders[1] + 1]
    last = values[borders[3] :]
    return Summary(_mean(values), float(np.mean(values > 0.5)), _mean(first) - _mean(last))


def _mean(values: Float64[np.ndarray, " n"]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
