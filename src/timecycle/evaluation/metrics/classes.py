"""Mean intersection over union of classes, from one confusion matrix over all frames."""

import numpy as np
from jaxtyping import Float64, Int64, Integer

from timecycle.errors import LabelError


def confusion(
    predicted: Integer[np.ndarray, "*shape"],
    truth: Integer[np.ndarray, "..."],
    classes: int,
    *,
    ignore: int | None = None,
) -> Int64[np.ndarray, "{classes} {classes}"]:
    """How many pixels of each true class (row) were predicted as each class (column).

    Pixels whose truth is `ignore` are left out, whatever was predicted there. Matrices of frames add up.
    """
    if predicted.shape != truth.shape:
        raise LabelError(
            f"the prediction has the shape {predicted.shape} but the truth {truth.shape}",
            remedy="predict classes at the size of the truth",
        )
    said, true = predicted.ravel(), truth.ravel()
    if ignore is not None:
        said, true = said[true != ignore], true[true != ignore]
    _demand_classes("prediction", said, classes)
    _demand_classes("truth", true, classes)
    pairs = true.astype(np.int64) * classes + said.astype(np.int64)
    return np.bincount(pairs, minlength=classes**2).astype(np.int64).reshape(classes, classes)


def iou_per_class(confusion: Int64[np.ndarray, "classes classes"]) -> Float64[np.ndarray, " classes"]:
    """Pixels of a class in both truth and prediction over those in either; NaN where the class is in neither."""
    both = np.diag(confusion)
    either = confusion.sum(axis=0) + confusion.sum(axis=1) - both
    iou = np.full(both.shape, np.nan)
    np.divide(both, either, out=iou, where=either > 0)
    return iou


def mean_iou(confusion: Int64[np.ndarray, "classes classes"]) -> float:
    """Mean over the classes that occur, the background with them (VIP); NaN if nothing was counted.

    The matrix is that of all frames together: classes weigh the same, frames by their pixels.
    """
    known = iou_per_class(confusion)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else float("nan")


def _demand_classes(name: str, ids: Integer[np.ndarray, " pixels"], classes: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= classes):
        raise LabelError(
            f"the {name} has classes from {ids.min()} to {ids.max()}, but there are {classes}",
            remedy=f"number them 0 to {classes - 1}, or name the void id of the truth with ignore=",
        )
