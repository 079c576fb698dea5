"""Propagate the annotations of a few frames through the whole video. Only the names listed here are public.

They are imported at first use: importing torch takes seconds, and the command line must react to Ctrl-C meanwhile.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from timecycle.errors import TimecycleError
from timecycle.version import __version__

if TYPE_CHECKING:
    from timecycle.api import correspond, propagate, propagate_to_folder
    from timecycle.confidence.fusion import ConfidenceConfig
    from timecycle.config import propagate_config
    from timecycle.labels import Coordinates, Keypoints, Masks, Parts, Texture
    from timecycle.model.hub import from_pretrained, save_pretrained
    from timecycle.model.registry import load_encoder
    from timecycle.propagation.propagator import Propagator
    from timecycle.propagation.settings import PropagateConfig
    from timecycle.video import open_video

__all__ = [
    "ConfidenceConfig",
    "Coordinates",
    "Keypoints",
    "Masks",
    "Parts",
    "PropagateConfig",
    "Propagator",
    "Texture",
    "TimecycleError",
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

_MODULES = {
    "ConfidenceConfig": "confidence.fusion",
    "Coordinates": "labels",
    "Keypoints": "labels",
    "Masks": "labels",
    "Parts": "labels",
    "PropagateConfig": "propagation.settings",
    "Propagator": "propagation.propagator",
    "Texture": "labels",
    "correspond": "api",
    "from_pretrained": "model.hub",
    "load_encoder": "model.registry",
    "open_video": "video",
    "propagate": "api",
    "propagate_config": "config",
    "propagate_to_folder": "api",
    "save_pretrained": "model.hub",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))
