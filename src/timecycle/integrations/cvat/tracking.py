"""The tracking function: CVAT's agent calls it with the frames that a person looks at, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from jaxtyping import UInt8

import timecycle as tc
from timecycle.errors import SettingsError, TimecycleError
from timecycle.extras import import_extra
from timecycle.integrations.cvat.shapes import SHAPES, ToShape, begin


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """A frame with its features, which all shapes on it share."""

    pixels: UInt8[np.ndarray, "height width 3"]
    features: tc.FeatureMap


@dataclass(frozen=True, eq=False)
class TrackingState:
    """One shape: the memory bank of its object, and how its labels become shapes again."""

    propagator: tc.Propagator
    to_shape: ToShape


class TrackingFunction:
    """Propagates masks, polygons, rectangles and points from a frame of CVAT to the frames that follow."""

    def __init__(self, encoder: tc.Encoder, config: tc.PropagateConfig, shapes: tuple[str, ...]) -> None:
        self._interface = import_extra("cvat_sdk.auto_annotation", extra="cvat")
        self._encoder, self._config = encoder, config
        self.spec = self._interface.TrackingFunctionSpec(supported_shape_types=shapes)

    def preprocess_image(self, context: object, image: PIL.Image.Image) -> EncodedImage:
        """Encode a frame once for all shapes on it."""
        pixels = np.array(image.convert("RGB"))
        return EncodedImage(pixels, tc.Propagator(self._encoder, self._config).frame_encoder.encode(pixels))

    def init_tracking_state(self, context: object, pp_image: EncodedImage, shape: Any) -> TrackingState:
        """Read a shape as the annotation of a frame, from which the frames after it are labelled."""
        with self._errors_shown():
            labels, to_shape = begin(shape.type, shape.points, pp_image.pixels)
            propagator = tc.Propagator(self._encoder, self._config, space=type(labels).space([labels]))
            propagator.advance(0, pp_image.pixels, labels, features=pp_image.features)
        return TrackingState(propagator, to_shape)

    def track(self, context: Any, pp_image: EncodedImage, state: TrackingState) -> Any:
        """Return the shape on the next frame, of the type it began with; None where the object is not on it."""
        with self._errors_shown():
            propagator = state.propagator
            label_map = propagator.advance(propagator.steps, pp_image.pixels, features=pp_image.features)
            points = state.to_shape(propagator.decode(label_map, None, pp_image.pixels))
        if points is None:
            return None
        return self._interface.TrackableShape(type=context.original_shape_type, points=points)

    @contextmanager
    def _errors_shown(self) -> Iterator[None]:
        """Pass our errors on in the class whose text the agent sends to CVAT; others appear as `Unknown error`."""
        try:
            yield
        except TimecycleError as error:
            raise self._interface.BadFunctionError(str(error)) from error


def create(
    encoder: str | None = None, preset: str = "default", device: str = "auto", shapes: str = ",".join(SHAPES)
) -> TrackingFunction:
    """Make the tracking function; `cvat-cli` calls this with what is passed as `-p NAME=str:VALUE`.

    encoder, device: as for `load_encoder`; None is the bundled encoder. preset: of propagation, such as `fast`.
    shapes: which types to offer, separated by commas: mask, polygon, rectangle, points.
    """
    chosen = tuple(name.strip() for name in shapes.split(","))
    unknown = [name for name in chosen if name not in SHAPES]
    if unknown:
        raise SettingsError(
            f"shapes of the type {unknown[0]!r} cannot be tracked", remedy=f"choose from {', '.join(SHAPES)}"
        )
    named = () if encoder is None else (encoder,)
    loaded = tc.load_encoder(*named, device=device)  # type: ignore[arg-type]  # refused there if it is none
    return TrackingFunction(loaded, tc.propagate_config(preset), chosen)
