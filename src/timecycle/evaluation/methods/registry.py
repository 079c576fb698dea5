"""Methods by name: any encoder with nearest neighbours, copying, and optical flow."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from timecycle.device import Device
from timecycle.evaluation.methods.method import NO_WEIGHTS_SHA256, Flow, Method, Prediction
from timecycle.evaluation.methods.optical_flow import OpticalFlow
from timecycle.labels import Labels
from timecycle.model.encoder import Encoder
from timecycle.model.registry import PrecisionChoice, encoder_names, load_encoder
from timecycle.propagation.flow import correspond
from timecycle.propagation.frame_encoder import RgbImage
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.video import Video


class Identity:
    """Copies the labels of the annotated frame: the baseline in which nothing moves."""

    name = "identity"
    sha256 = NO_WEIGHTS_SHA256
    description = "the labels of the first frame, copied"

    def propagate(
        self, video: Video, annotated_frame: int, annotation: Labels, config: PropagateConfig
    ) -> Iterator[Prediction]:
        for index in range(annotated_frame, len(video)):
            yield Prediction(index, annotation)

    def flow(self, a: RgbImage, b: RgbImage, config: PropagateConfig) -> Flow:
        return np.zeros((*a.shape[:2], 2), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class NearestNeighbours:
    """Propagates labels with nearest neighbours in an encoder's features: the paper's inference."""

    encoder: Encoder

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def sha256(self) -> str:
        return self.encoder.sha256

    @property
    def description(self) -> str:
        return self.encoder.description

    def propagate(
        self, video: Video, annotated_frame: int, annotation: Labels, config: PropagateConfig
    ) -> Iterator[Prediction]:
        # Frames before the annotated one are not scored, so labels are not propagated back to them.
        forward = replace(config, direction="forward")
        for frame in propagate(video, {annotated_frame: annotation}, encoder=self.encoder, config=forward):
            if frame.index >= annotated_frame:
                yield Prediction(frame.index, frame.labels, frame.label_map)

    def flow(self, a: RgbImage, b: RgbImage, config: PropagateConfig) -> Flow:
        return correspond(a, b, encoder=self.encoder, config=config).flow


def load_method(name: str, *, device: Device = "auto", precision: PrecisionChoice = "fp32") -> Method:
    """Load `identity`, `dis-flow`, or any encoder by its name or path."""
    if name == Identity.name:
        return Identity()
    if name == OpticalFlow.name:
        return OpticalFlow()
    return NearestNeighbours(load_encoder(name, device=device, precision=precision))


def method_names() -> list[str]:
    """List the names that `load_method` takes besides files of weights."""
    return [Identity.name, OpticalFlow.name, *encoder_names()]
