"""Encode frames at the size that the settings ask for."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from timecycle.model.encoder import Encoder, FeatureMap, validate_features
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import Video

RgbImage = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, eq=False)
class FrameEncoder:
    """An encoder together with the image size it is used at."""

    encoder: Encoder
    config: PropagateConfig

    @torch.inference_mode()  # here too: it is called from other threads, which have their own inference mode
    def encode(self, image: RgbImage) -> FeatureMap:
        """Encode an image; the grid is that of the resized image."""
        return validate_features(self.encoder.encode(resize(image, self.config)), self.encoder)

    def encode_frame(self, video: Video, index: int) -> FeatureMap:
        """Encode a frame of a video; the grid is that of the frame at its own size."""
        image = video[index].image
        features = self.encode(image)
        return FeatureMap(features.cells, features.grid.rescaled(*image.shape[:2]))


def resize(image: RgbImage, config: PropagateConfig) -> UInt8[np.ndarray, "h w 3"]:
    """Resize an image to the size at which it is encoded."""
    height, width, _ = image.shape
    if config.square:
        target = (config.image_size_px, config.image_size_px)
    else:
        scale = min(config.image_size_px / min(height, width), config.enlarge)
        target = (max(round(height * scale), 1), max(round(width * scale), 1))
    if target == (height, width):
        return image
    resized = Image.fromarray(image).resize((target[1], target[0]), Image.Resampling.BILINEAR)
    return np.array(resized)
