"""Mean intersection over union of classes, from one confusion matrix over all frames."""

import numpy as np
from jaxtyping import Float64, Int64, Integer

from timecycle.errors import LabelError


def confusion(
    predicted: Integer[np.ndarray, "*shape"],
    ground_truth: Integer[np.ndarray, "..."],
    classes: int,
    *,
    ignore: int | None = None,
) -> Int64[np.ndarray, "{classes} {classes}"]:
    """Count the pixels of each true class (row) that were predicted as each class (column).

    Pixels whose true class is `ignore` are left out, whatever was predicted there. Matrices of frames add up.
    """
    if predicted.shape != ground_truth.shape:
        raise LabelError(
            f"the prediction has the shape {predicted.shape} but the ground truth {ground_truth.shape}",
            remedy="predict classes at the size of the ground truth",
        )
    predicted, ground_truth = predicted.ravel(), ground_truth.ravel()
    if ignore is not None:
        counted = ground_truth != ignore
        predicted, ground_truth = predicted[counted], ground_truth[counted]
    _check_classes("prediction", predicted, classes)
    _check_classes("ground truth", ground_truth, classes)
    pairs = ground_truth.astype(np.int64) * classes + predicted.astype(np.int64)
    return np.bincount(pairs, minlength=classes**2).astype(np.int64).reshape(classes, classes)


def iou_per_class(confusion: Int64[np.ndarray, "classes classes"]) -> Float64[np.ndarray, " classes"]:
    """Return the intersection over union of every class; NaN where neither ground truth nor prediction has it."""
    intersection = np.diag(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - intersection
    iou = np.full(intersection.shape, np.nan)
    np.divide(intersection, union, out=iou, where=union > 0)
    return iou


def mean_iou(confusion: Int64[np.ndarray, "classes classes"]) -> float:
    """Average over the classes that occur, including the background (VIP); NaN if nothing was counted.

    The matrix is that of all frames together: classes weigh the same, frames by their pixels.
    """
    known = iou_per_class(confusion)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else float("nan")


def _check_classes(name: str, ids: Integer[np.ndarray, " pixels"], classes: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= classes):
        raise LabelError(
            f"the {name} has classes from {ids.min()} to {ids.max()}, but there are {classes}",
            remedy=f"number them 0 to {classes - 1}, or pass the void id of the ground truth as ignore=",
        )
