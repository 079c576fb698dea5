"""Dense inverse search flow (Kroeger et al. 2016, OpenCV) and labels carried along it.

Pixels are followed back to the first frame by composing flows, and labels are read there once: warping the labels
from frame to frame would wear their outlines down a little every time.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from timecycle.errors import LabelError, VideoError
from timecycle.extras import need
from timecycle.labels import Keypoints, Labels, Masks, Parts
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import resize

Picture = UInt8[np.ndarray, "height width 3"]
Flow = Float32[np.ndarray, "height width 2"]

_SMALLEST_PX = 12  # of both sides: of what is smaller OpenCV takes some and refuses some


class DisFlow:
    """OpenCV's DIS flow, medium preset, computed at the size the settings ask for."""

    def __init__(self) -> None:
        self._cv2: Any = need("cv2", extra="eval")
        self._dis = self._cv2.DISOpticalFlow_create(self._cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self.form = f"DIS optical flow, medium preset, chained, OpenCV {self._cv2.__version__}"

    def between(self, a: Picture, b: Picture, config: PropagateConfig) -> Flow:
        """Where every pixel of `a` is found in `b`, at the size of `a`."""
        height, width = a.shape[:2]
        small_a, small_b = (resize(image, config) for image in (a, b))
        try:
            flow = self._dis.calc(self._grey(small_a), self._grey(small_b), None)
        except self._cv2.error as error:
            raise VideoError(
                f"DIS flow cannot be computed on images of {small_a.shape[1]}x{small_a.shape[0]} pixels",
                remedy=f"give frames, and image_size_px, of at least {_SMALLEST_PX} pixels on both sides",
            ) from error
        if flow.shape[:2] == (height, width):
            return np.asarray(flow, dtype=np.float32)
        scale = np.array([width / flow.shape[1], height / flow.shape[0]], dtype=np.float32)
        large = self._cv2.resize(flow, (width, height), interpolation=self._cv2.INTER_LINEAR)
        return np.asarray(large * scale, dtype=np.float32)

    def track(self, given: Labels, config: PropagateConfig) -> "PointTrack | AreaTrack":
        """Follows labels through the frames it is stepped with."""
        if isinstance(given, Keypoints):
            return PointTrack(self, given, config)
        if isinstance(given, Masks | Parts):
            return AreaTrack(self, given, config)
        raise LabelError(
            f"optical flow carries masks, parts and keypoints, not {given.kind}",
            remedy="use an encoder for other kinds of labels",
        )

    def read(
        self, values: Float32[np.ndarray, "height width c"], place: Float32[np.ndarray, "h w 2"]
    ) -> Float32[np.ndarray, "h w c"]:
        """`values` read bilinearly at (x, y) places; places outside the image read its border."""
        read = self._cv2.remap(
            values, place[..., 0], place[..., 1], self._cv2.INTER_LINEAR, borderMode=self._cv2.BORDER_REPLICATE
        )
        return np.asarray(read, dtype=np.float32)

    def _grey(self, image: Picture) -> UInt8[np.ndarray, "height width"]:
        return np.asarray(self._cv2.cvtColor(image, self._cv2.COLOR_RGB2GRAY))


@dataclass(eq=False)
class AreaTrack:
    """For every pixel of the last frame, the (x, y) on the first frame it was followed back to."""

    flow: DisFlow
    given: Masks | Parts
    config: PropagateConfig
    last: Picture | None = None
    origin: Flow | None = None

    def step(self, image: Picture) -> Labels:
        here = _places(*image.shape[:2])
        if self.last is None or self.origin is None:
            self.last, self.origin = image, here
            return self.given
        back = self.flow.between(image, self.last, self.config)
        self.origin = self.flow.read(self.origin, here + back)
        self.last = image
        height, width = image.shape[:2]
        x = np.clip(np.rint(self.origin[..., 0]), 0, width - 1).astype(np.intp)
        y = np.clip(np.rint(self.origin[..., 1]), 0, height - 1).astype(np.intp)
        if isinstance(self.given, Masks):
            return replace(self.given, ids=self.given.ids[y, x])
        return replace(self.given, part=self.given.part[y, x], person=self.given.person[y, x])


@dataclass(eq=False)
class PointTrack:
    """Points pushed forward from frame to frame."""

    flow: DisFlow
    points: Keypoints
    config: PropagateConfig
    last: Picture | None = None

    def step(self, image: Picture) -> Labels:
        if self.last is not None:
            forward = self.flow.between(self.last, image, self.config)
            xy = self.points.xy.astype(np.float32)
            moved = xy + self.flow.read(forward, xy[:, None])[:, 0]
            self.points = replace(self.points, xy=moved)
        self.last = image
        return self.points


def _places(height: int, width: int) -> Flow:
    """The (x, y) of every pixel."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    return np.stack([x, y], axis=-1)
