"""An encoder with a cache, for studies that propagate labels through the same frames many times."""

import hashlib

import numpy as np

from timecycle.model.encoder import Encoder, FeatureMap


class CachedEncoder:
    """Encodes every image once and keeps all features."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.name, self.sha256, self.description = encoder.name, encoder.sha256, encoder.description
        self._cache: dict[bytes, FeatureMap] = {}

    def encode(self, image: np.ndarray) -> FeatureMap:
        key = hashlib.sha256(image.tobytes()).digest()
        if key not in self._cache:
            self._cache[key] = self.encoder.encode(image)
        return self._cache[key]
