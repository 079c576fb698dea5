"""`supervision.Detections` and `supervision.KeyPoints` of one frame, in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from timecycle.errors import LabelError
from timecycle.extras import import_extra
from timecycle.formats.json_file import masks_of
from timecycle.formats.video_labels import ids_of
from timecycle.labels import Keypoints, Labels
from timecycle.propagation.video import LabelledFrame

_EXTRA = "supervision"


def to_detections(labels: Labels | LabelledFrame, *, names: Mapping[str, str] | None = None) -> Any:
    """Return masks as `supervision.Detections`, or keypoints as `supervision.KeyPoints`.

    labels: the labels of a frame, or a frame of `propagate`, whose confidence comes with it.
    names: names of objects by id, for annotators that print `class_name`.

    `tracker_id` and `class_id` are the object ids. Boxes are those of `supervision.mask_to_xyxy`.
    """
    confidence: dict[str, float] = {}
    if isinstance(labels, LabelledFrame):
        if labels.confidence is not None:
            confidence = {name: one.value for name, one in labels.confidence.objects.items()}
        labels = labels.labels
    supervision = import_extra("supervision", extra=_EXTRA)
    if isinstance(labels, Keypoints):
        scores = labels.confidence if labels.confidence is not None else np.full(len(labels.names), np.nan, np.float32)
        return supervision.KeyPoints(
            xy=labels.xy[None],
            keypoint_confidence=np.where(labels.visible, np.nan_to_num(scores, nan=1.0), 0)[None].astype(np.float32),
            visible=labels.visible[None],
            data={"name": np.array([labels.names])},
        )
    ids = ids_of(labels)
    objects = np.unique(ids[ids > 0]).astype(np.int64)
    if not len(objects):
        return supervision.Detections.empty()
    regions = ids[None] == objects[:, None, None]
    scores = np.array([confidence.get(str(i), np.nan) for i in objects.tolist()], np.float32)
    called = [(names or {}).get(str(i), str(i)) for i in objects.tolist()]
    return supervision.Detections(
        xyxy=supervision.mask_to_xyxy(regions).astype(np.float32),
        mask=regions,
        confidence=None if np.isnan(scores).any() else scores,
        class_id=objects,
        tracker_id=objects,
        data={"class_name": np.array(called)},
    )


def from_detections(detections: Any) -> Labels:
    """Return the masks of `supervision.Detections`, or the first skeleton of `supervision.KeyPoints`.

    detections: those of one frame.

    Objects have the ids of `tracker_id` or, without a tracker, are numbered from 1 in their order.
    """
    if hasattr(detections, "xy"):
        return _keypoints(detections)
    if detections.mask is None:
        raise LabelError("the detections have boxes but no masks", remedy="use a model that segments")
    regions = np.asarray(detections.mask, bool)
    tracked = detections.tracker_id is not None
    ids = [int(i) for i in detections.tracker_id] if tracked else list(range(1, len(regions) + 1))
    if any(not 1 <= i <= 65535 for i in ids) or len(set(ids)) != len(ids):
        raise LabelError(
            "the detections have track ids that are not unique or not from 1 to 65535", remedy="track again"
        )
    return masks_of(
        (regions.shape[1], regions.shape[2]),
        ((i, lambda region=region: region) for i, region in zip(ids, regions, strict=True)),  # type: ignore[misc]
        "the detections",
    )


def _keypoints(detections: Any) -> Keypoints:
    if not len(detections.xy):
        raise LabelError("there are no keypoints", remedy="pass detections with at least one skeleton")
    xy = np.asarray(detections.xy[0], np.float32)
    given = detections.data.get("name") if detections.data else None
    names = [str(name) for name in given[0]] if given is not None else [f"point {i}" for i in range(1, len(xy) + 1)]
    scores = detections.keypoint_confidence
    confidence = None if scores is None else np.asarray(scores[0], np.float32)
    seen = np.asarray(np.isfinite(xy).all(axis=1))
    visible = getattr(detections, "visible", None)
    if visible is not None:
        seen &= np.asarray(visible[0], bool)
    return Keypoints(tuple(names), xy, seen, confidence)
