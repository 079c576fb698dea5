"""PCK: the share of keypoints predicted near enough, where what is near depends on the size of the subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from timecycle.errors import LabelError, SettingsError

_BODY = 0.6  # of the diagonal of the box around a body's joints is taken as the body's size


@dataclass(frozen=True, eq=False)
class Pck:
    """How many keypoints were right, joint by joint. Counts, so that clips can be pooled."""

    right: Int64[np.ndarray, " joints"]
    counted: Int64[np.ndarray, " joints"]

    @property
    def per_joint(self) -> Float64[np.ndarray, " joints"]:
        """Share of right predictions of each joint; NaN where it was never counted."""
        shares = np.full(self.counted.shape, np.nan)
        np.divide(self.right, self.counted, out=shares, where=self.counted > 0)
        return shares

    @property
    def mean(self) -> float:
        """Mean over the joints that were counted, each weighing the same; NaN if none was."""
        shares = self.per_joint[self.counted > 0]
        return float(shares.mean()) if shares.size else float("nan")


def pck(
    predicted: Float[np.ndarray, "frames joints 2"],
    truth: Float[np.ndarray, "frames joints 2"],
    *,
    counted: Bool[np.ndarray, "frames joints"],
    reach_px: Float[np.ndarray, " frames"],
    first_frame: Literal["out", "in"],
) -> Pck:
    """Joints, as (x, y), that lie at most `reach_px` of their frame from the truth, among those counted.

    The first frame's joints are given to the method, so they are always right. "out" leaves them out (TimeCycle,
    CRW); "in" counts them too (VFS, Spa-then-Temp), which gives slightly higher numbers: never compare the two.
    A joint predicted as NaN is wrong.
    """
    if first_frame not in ("out", "in"):
        raise SettingsError(f"first_frame is {first_frame!r}", remedy="give 'out' or 'in'")
    if not (np.isfinite(truth).all(axis=-1) & np.isfinite(reach_px)[:, None])[counted].all():
        raise LabelError(
            "a joint is counted whose true place or reach is not known",
            remedy="leave it out of `counted`, or give both as finite numbers",
        )
    asked = counted.copy()
    if first_frame == "out":
        asked[:1] = False
    distance = np.hypot(*np.moveaxis(predicted.astype(np.float64) - truth, -1, 0))
    right = asked & (distance <= reach_px[:, None])
    return Pck(right.sum(axis=0, dtype=np.int64), asked.sum(axis=0, dtype=np.int64))


def pool_clips(clips: Sequence[Pck]) -> Pck:
    """PCK of a data set: a joint's counts are summed over all clips, so a longer clip weighs more."""
    if not clips:
        raise LabelError("there is no clip to pool", remedy="score at least one clip")
    return Pck(
        np.stack([clip.right for clip in clips]).sum(axis=0),
        np.stack([clip.counted for clip in clips]).sum(axis=0),
    )


def box_reach(
    truth: Float[np.ndarray, "frames joints 2"], counted: Bool[np.ndarray, "frames joints"], alpha: float
) -> Float64[np.ndarray, " frames"]:
    """`alpha` * 0.6 * diagonal of the box around the frame's counted true joints (JHMDB); NaN where none is counted."""
    reach = np.full(len(truth), np.nan)
    for frame, (places, some) in enumerate(zip(truth, counted, strict=True)):
        if some.any():
            reach[frame] = alpha * _BODY * np.hypot(*np.ptp(places[some].astype(np.float64), axis=0))
    return reach


def silhouette_reach(area_px: Float[np.ndarray, " frames"], alpha: float) -> Float64[np.ndarray, " frames"]:
    """`alpha` * square root of the subject's area in each frame (BADJA, with `alpha` 0.2)."""
    if (area_px < 0).any():
        raise LabelError(f"an area is {area_px.min():g} px", remedy="count the pixels of the silhouette")
    return np.asarray(alpha * np.sqrt(area_px.astype(np.float64)))
