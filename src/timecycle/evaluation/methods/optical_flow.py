"""Labels propagated along dense inverse search flow (Kroeger et al. 2016, OpenCV).

Flows are composed, so that every pixel is tracked back to the annotated frame, and labels are read there once. Warping
the labels from frame to frame would erode their outlines a little every time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from timecycle.errors import LabelError, VideoError
from timecycle.evaluation.methods.method import NO_WEIGHTS_SHA256, Flow, Prediction, RgbImage
from timecycle.extras import import_extra
from timecycle.labels import Keypoints, Labels, Masks, Parts
from timecycle.propagation.frame_encoder import resize
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import Video

_MIN_SIDE_PX = 12  # OpenCV refuses some of the smaller sizes


class OpticalFlow:
    """OpenCV's DIS flow, medium preset, computed at the image size of the settings."""

    name = "dis-flow"
    sha256 = NO_WEIGHTS_SHA256

    def __init__(self) -> None:
        self._cv2: Any = import_extra("cv2", extra="eval")
        self._dis = self._cv2.DISOpticalFlow_create(self._cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self.description = f"DIS optical flow, medium preset, chained, OpenCV {self._cv2.__version__}"

    def propagate(
        self, video: Video, annotated_frame: int, annotation: Labels, config: PropagateConfig
    ) -> Iterator[Prediction]:
        track = self._track(annotation, config)
        for frame in video.frames(annotated_frame):
            yield Prediction(frame.index, track.step(frame.image))

    def flow(self, a: RgbImage, b: RgbImage, config: PropagateConfig) -> Flow:
        height, width = a.shape[:2]
        small_a, small_b = (resize(image, config) for image in (a, b))
        try:
            flow = self._dis.calc(self._grey(small_a), self._grey(small_b), None)
        except self._cv2.error as error:
            raise VideoError(
                f"DIS flow cannot be computed on images of {small_a.shape[1]}x{small_a.shape[0]} pixels",
                remedy=f"give frames, and image_size_px, of at least {_MIN_SIDE_PX} pixels on both sides",
            ) from error
        if flow.shape[:2] == (height, width):
            return np.asarray(flow, dtype=np.float32)
        scale = np.array([width / flow.shape[1], height / flow.shape[0]], dtype=np.float32)
        large = self._cv2.resize(flow, (width, height), interpolation=self._cv2.INTER_LINEAR)
        return np.asarray(large * scale, dtype=np.float32)

    def sample(
        self, values: Float32[np.ndarray, "height width c"], xy: Float32[np.ndarray, "h w 2"]
    ) -> Float32[np.ndarray, "h w c"]:
        """Sample `values` bilinearly at points (x, y); points outside the image take its border."""
        sampled = self._cv2.remap(
            values, xy[..., 0], xy[..., 1], self._cv2.INTER_LINEAR, borderMode=self._cv2.BORDER_REPLICATE
        )
        return np.asarray(sampled, dtype=np.float32)

    def _track(self, annotation: Labels, config: PropagateConfig) -> "_PointTrack | _AreaTrack":
        if isinstance(annotation, Keypoints):
            return _PointTrack(self, annotation, config)
        if isinstance(annotation, Masks | Parts):
            return _AreaTrack(self, annotation, config)
        raise LabelError(
            f"optical flow propagates masks, parts and keypoints, not {annotation.kind}",
            remedy="use an encoder for other kinds of labels",
        )

    def _grey(self, image: RgbImage) -> UInt8[np.ndarray, "height width"]:
        return np.asarray(self._cv2.cvtColor(image, self._cv2.COLOR_RGB2GRAY))


@dataclass(eq=False)
class _AreaTrack:
    """Tracks every pixel of the last frame back to its (x, y) on the annotated frame."""

    flow: OpticalFlow
    annotation: Masks | Parts
    config: PropagateConfig
    last: RgbImage | None = None
    origin: Flow | None = None

    def step(self, image: RgbImage) -> Labels:
        pixels = _pixel_grid(*image.shape[:2])
        if self.last is None or self.origin is None:
            self.last, self.origin = image, pixels
            return self.annotation
        backward = self.flow.flow(image, self.last, self.config)
        self.origin = self.flow.sample(self.origin, pixels + backward)
        self.last = image
        height, width = image.shape[:2]
        x = np.clip(np.rint(self.origin[..., 0]), 0, width - 1).astype(np.intp)
        y = np.clip(np.rint(self.origin[..., 1]), 0, height - 1).astype(np.intp)
        if isinstance(self.annotation, Masks):
            return replace(self.annotation, ids=self.annotation.ids[y, x])
        return replace(self.annotation, part=self.annotation.part[y, x], person=self.annotation.person[y, x])


@dataclass(eq=False)
class _PointTrack:
    """Moves points forward from frame to frame."""

    flow: OpticalFlow
    points: Keypoints
    config: PropagateConfig
    last: RgbImage | None = None

    def step(self, image: RgbImage) -> Labels:
        if self.last is not None:
            forward = self.flow.flow(self.last, image, self.config)
            xy = self.points.xy.astype(np.float32)
            moved = xy + self.flow.sample(forward, xy[:, None])[:, 0]
            self.points = replace(self.points, xy=moved)
        self.last = image
        return self.points


def _pixel_grid(height: int, width: int) -> Flow:
    """Return the (x, y) of every pixel."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    return np.stack([x, y], axis=-1)
