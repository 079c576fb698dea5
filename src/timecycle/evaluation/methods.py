"""Ways of carrying labels, compared under identical inference: any encoder, copying, and optical flow."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, UInt8

from timecycle.evaluation.dis import DisFlow
from timecycle.labels import Labels
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Device
from timecycle.model.registry import PrecisionChoice, encoder_names, load_encoder
from timecycle.propagation.flow import correspond
from timecycle.propagation.propagate import propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import Carried
from timecycle.video import Video

Picture = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, eq=False)
class Predicted:
    """The labels of one frame, and the soft labels they were decided from where the method has any."""

    index: int
    labels: Labels
    carried: Carried | None = None


@runtime_checkable
class Method(Protocol):
    """Anything that can carry labels and say where the pixels of one image are found in another."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    @property
    def form(self) -> str: ...

    def carry(self, video: Video, first: int, given: Labels, config: PropagateConfig) -> Iterator[Predicted]:
        """Labels of every frame from `first` on, whose labels are `given`."""
        ...

    def flow(self, a: Picture, b: Picture, config: PropagateConfig) -> Float32[np.ndarray, "height width 2"]:
        """Where every pixel of `a` is found in `b`, as (dx, dy) in pixels."""
        ...


class Identity:
    """Nothing ever moves: the labels of the first frame, copied."""

    name = "identity"
    sha256 = "0" * 64  # there are no weights
    form = "the labels of the first frame, copied"

    def carry(self, video: Video, first: int, given: Labels, config: PropagateConfig) -> Iterator[Predicted]:
        for index in range(first, len(video)):
            yield Predicted(index, given)

    def flow(self, a: Picture, b: Picture, config: PropagateConfig) -> Float32[np.ndarray, "height width 2"]:
        return np.zeros((*a.shape[:2], 2), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Nearest neighbours in an encoder's features: the paper's inference, as the settings say."""

    encoder: Encoder

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def sha256(self) -> str:
        return self.encoder.sha256

    @property
    def form(self) -> str:
        return self.encoder.form

    def carry(self, video: Video, first: int, given: Labels, config: PropagateConfig) -> Iterator[Predicted]:
        # Frames before the given one are not scored, so nothing is carried back to them.
        forward = replace(config, direction="forward")
        for frame in propagate(video, {first: given}, encoder=self.encoder, config=forward):
            if frame.index >= first:
                yield Predicted(frame.index, frame.labels, frame.carried)

    def flow(self, a: Picture, b: Picture, config: PropagateConfig) -> Float32[np.ndarray, "height width 2"]:
        return correspond(a, b, encoder=self.encoder, config=config).flow


class ChainedFlow:
    """Optical flow from frame to frame, chained: every pixel is followed to the first frame and takes its label."""

    name = "dis-flow"
    sha256 = "0" * 64  # there are no weights

    def __init__(self) -> None:
        self._flow = DisFlow()
        self.form = self._flow.form

    def carry(self, video: Video, first: int, given: Labels, config: PropagateConfig) -> Iterator[Predicted]:
        track = self._flow.track(given, config)
        for frame in video.frames(first):
            yield Predicted(frame.index, track.step(frame.image))

    def flow(self, a: Picture, b: Picture, config: PropagateConfig) -> Float32[np.ndarray, "height width 2"]:
        return self._flow.between(a, b, config)


def load_method(name: str, *, device: Device = "auto", precision: PrecisionChoice = "fp32") -> Method:
    """A method by name: `identity`, `dis-flow`, or any encoder by name or path."""
    if name == Identity.name:
        return Identity()
    if name == ChainedFlow.name:
        return ChainedFlow()
    return Neighbours(load_encoder(name, device=device, precision=precision))


def method_names() -> list[str]:
    """The names `load_method` knows besides files of weights."""
    return [Identity.name, ChainedFlow.name, *encoder_names()]
