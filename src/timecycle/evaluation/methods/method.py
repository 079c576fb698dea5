"""What is evaluated: a method that propagates labels and finds dense correspondence between two images."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32

from timecycle.labels import Labels
from timecycle.labels.label_map import LabelMap
from timecycle.propagation.frame_encoder import RgbImage
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import Video

Flow = Float32[np.ndarray, "height width 2"]

NO_WEIGHTS_SHA256 = "0" * 64


@dataclass(frozen=True, eq=False)
class Prediction:
    """The labels of one frame, with the label map they were decoded from where the method has one."""

    index: int
    labels: Labels
    label_map: LabelMap | None = None


@runtime_checkable
class Method(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str:
        """The checksum of the weights."""
        ...

    @property
    def description(self) -> str:
        """Architecture, precision and versions: what the name and the checksum leave open."""
        ...

    def propagate(
        self, video: Video, annotated_frame: int, annotation: Labels, config: PropagateConfig
    ) -> Iterator[Prediction]:
        """Yield the labels of the annotated frame and of every frame after it."""
        ...

    def flow(self, a: RgbImage, b: RgbImage, config: PropagateConfig) -> Flow:
        """Find every pixel of `a` in `b`: (dx, dy) in pixels."""
        ...
