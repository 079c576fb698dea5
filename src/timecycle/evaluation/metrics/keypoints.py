"""PCK: the share of keypoints predicted within a threshold that depends on the size of the subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from timecycle.errors import LabelError, SettingsError

_BODY = 0.6  # the body's size, as a fraction of the diagonal of the box around its joints


@dataclass(frozen=True, eq=False)
class Pck:
    """The number of correct keypoints of every joint. Counts, so that clips can be pooled."""

    correct: Int64[np.ndarray, " joints"]
    counted: Int64[np.ndarray, " joints"]

    @property
    def per_joint(self) -> Float64[np.ndarray, " joints"]:
        """The share of correct predictions of each joint; NaN where it was never counted."""
        shares = np.full(self.counted.shape, np.nan)
        np.divide(self.correct, self.counted, out=shares, where=self.counted > 0)
        return shares

    @property
    def mean(self) -> float:
        """The mean over the joints that were counted, each weighing the same; NaN if none was."""
        shares = self.per_joint[self.counted > 0]
        return float(shares.mean()) if shares.size else float("nan")


def pck(
    predicted: Float[np.ndarray, "frames joints 2"],
    ground_truth: Float[np.ndarray, "frames joints 2"],
    *,
    counted: Bool[np.ndarray, "frames joints"],
    threshold_px: Float[np.ndarray, " frames"],
    first_frame: Literal["out", "in"],
) -> Pck:
    """Count the joints, as (x, y), within the threshold of their frame from the ground truth, among those counted.

    The first frame's joints are given to the method, so they are always correct. "out" leaves them out (TimeCycle,
    CRW); "in" counts them too (VFS, Spa-then-Temp), which gives slightly higher numbers: never compare the two.
    A joint predicted as NaN is wrong.
    """
    if first_frame not in ("out", "in"):
        raise SettingsError(f"first_frame is {first_frame!r}", remedy="give 'out' or 'in'")
    if not (np.isfinite(ground_truth).all(axis=-1) & np.isfinite(threshold_px)[:, None])[counted].all():
        raise LabelError(
            "a joint is counted whose true position or threshold is unknown",
            remedy="leave it out of `counted`, or give both as finite numbers",
        )
    counted = counted.copy()
    if first_frame == "out":
        counted[:1] = False
    distance = np.hypot(*np.moveaxis(predicted.astype(np.float64) - ground_truth, -1, 0))
    correct = counted & (distance <= threshold_px[:, None])
    return Pck(correct.sum(axis=0, dtype=np.int64), counted.sum(axis=0, dtype=np.int64))


def pool_clips(clips: Sequence[Pck]) -> Pck:
    """Sum the counts of every joint over all clips, so that a longer clip weighs more."""
    if not clips:
        raise LabelError("there is no clip to pool", remedy="score at least one clip")
    return Pck(
        np.stack([clip.correct for clip in clips]).sum(axis=0),
        np.stack([clip.counted for clip in clips]).sum(axis=0),
    )


def box_threshold(
    ground_truth: Float[np.ndarray, "frames joints 2"], counted: Bool[np.ndarray, "frames joints"], alpha: float
) -> Float64[np.ndarray, " frames"]:
    """Return `alpha` * 0.6 * the diagonal of the box around each frame's counted true joints (JHMDB); NaN without."""
    threshold_px = np.full(len(ground_truth), np.nan)
    for frame, (xy, inside) in enumerate(zip(ground_truth, counted, strict=True)):
        if inside.any():
            threshold_px[frame] = alpha * _BODY * np.hypot(*np.ptp(xy[inside].astype(np.float64), axis=0))
    return threshold_px


def silhouette_threshold(area_px: Float[np.ndarray, " frames"], alpha: float) -> Float64[np.ndarray, " frames"]:
    """Return `alpha` * the square root of the subject's area in each frame (BADJA, with `alpha` 0.2)."""
    if (area_px < 0).any():
        raise LabelError(f"an area is {area_px.min():g} px", remedy="count the pixels of the silhouette")
    return np.asarray(alpha * np.sqrt(area_px.astype(np.float64)))
