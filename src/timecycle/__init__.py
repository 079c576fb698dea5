"""Carry the labels of one frame through the whole video. These are the public names; nothing else is promised."""

from timecycle.api import correspond, propagate, propagate_to_folder
from timecycle.config import propagate_config
from timecycle.errors import TimecycleError
from timecycle.labels import Coordinates, Keypoints, Masks, Parts, Texture
from timecycle.model.pretrained import from_pretrained, save_pretrained
from timecycle.model.registry import load_encoder
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import Propagation
from timecycle.version import __version__
from timecycle.video import open_video

__all__ = [
    "Coordinates",
    "Keypoints",
    "Masks",
    "Parts",
    "PropagateConfig",
    "Propagation",
    "Texture",
    "TimecycleError",
    "TrustConfig",
    "__version__",
    "correspond",
    "from_pretrained",
    "load_encoder",
    "open_video",
    "propagate",
    "propagate_config",
    "propagate_to_folder",
    "save_pretrained",
]
