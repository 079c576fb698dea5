"""The kinds of labels: masks, parts, keypoints, textures and coordinates."""

from timecycle.labels.coordinates import Coordinates
from timecycle.labels.keypoints import Keypoints
from timecycle.labels.masks import Masks
from timecycle.labels.parts import Parts
from timecycle.labels.reading import KINDS, index_of, path_of, read_labels
from timecycle.labels.space import Labels, Space
from timecycle.labels.texture import Texture, striped

__all__ = [
    "KINDS",
    "Coordinates",
    "Keypoints",
    "Labels",
    "Masks",
    "Parts",
    "Space",
    "Texture",
    "index_of",
    "path_of",
    "read_labels",
    "striped",
]
