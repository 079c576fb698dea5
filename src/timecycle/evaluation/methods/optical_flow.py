"""Labels propagated along dense inverse search flow (Kroeger et al. 2016, OpenCV).

Flows are composed, so that every pixel is tracked back to the annotated frame, and labels are read there once. Warping
the labels from frame to frame would erode their outlines a little every time.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from timecycle.errors import LabelError, VideoError
from timecycle.evaluation.methods.method import NO_WEIGHTS_SHA256, Flow, Prediction
from timecycle.extras import import_extra
from timecycle.labels import Labels
from timecycle.labels.space import Points
from timecycle.propagation.frame_encoder import RgbImage, resize
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import Frame, Video

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
        follow = self._move_points if annotation.size() is None else self._trace_pixels
        return follow(video.frames(annotated_frame), annotation, config)

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

    def _move_points(self, frames: Iterator[Frame], points: Labels, config: PropagateConfig) -> Iterator[Prediction]:
        """Move points forward from frame to frame."""
        last: RgbImage | None = None
        for frame in frames:
            if last is not None:
                points = points.moved(partial(self._move, self.flow(last, frame.image, config)))
            last = frame.image
            yield Prediction(frame.index, points)

    def _move(self, flow: Flow, xy: Points) -> Points:
        xy = xy.astype(np.float32)
        return np.asarray(xy + self.sample(flow, xy[:, None])[:, 0])

    def _trace_pixels(
        self, frames: Iterator[Frame], annotation: Labels, config: PropagateConfig
    ) -> Iterator[Prediction]:
        """Trace every pixel back to its (x, y) on the annotated frame, and read its label there."""
        last: RgbImage | None = None
        for frame in frames:
            height, width = frame.image.shape[:2]
            pixels = _pixel_grid(height, width)
            if last is None:
                origin = pixels
            else:
                origin = self.sample(origin, pixels + self.flow(frame.image, last, config))
            last = frame.image
            x = np.clip(np.rint(origin[..., 0]), 0, width - 1).astype(np.intp)
            y = np.clip(np.rint(origin[..., 1]), 0, height - 1).astype(np.intp)
            labels = annotation.resampled(y, x)
            if labels is None:
                raise LabelError(
                    f"optical flow propagates masks, parts and keypoints, not {annotation.kind}",
                    remedy="use an encoder for other kinds of labels",
                )
            yield Prediction(frame.index, labels)

    def _grey(self, image: RgbImage) -> UInt8[np.ndarray, "height width"]:
        return np.asarray(self._cv2.cvtColor(image, self._cv2.COLOR_RGB2GRAY))


def _pixel_grid(height: int, width: int) -> Flow:
    """Return the (x, y) of every pixel."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    return np.stack([x, y], axis=-1)
