"""Carry the labels of one frame through the whole video. These are the public names; nothing else is promised.

They are imported when they are first asked for: torch takes seconds, and the command line can be interrupted meanwhile.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from timecycle.errors import TimecycleError
from timecycle.version import __version__

if TYPE_CHECKING:
    from timecycle.api import correspond, propagate, propagate_to_folder
    from timecycle.config import propagate_config
    from timecycle.labels import Coordinates, Keypoints, Masks, Parts, Texture
    from timecycle.model.pretrained import from_pretrained, save_pretrained
    from timecycle.model.registry import load_encoder
    from timecycle.propagation.confidence import TrustConfig
    from timecycle.propagation.settings import PropagateConfig
    from timecycle.propagation.state import Propagation
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

_HOMES = {
    "Coordinates": "labels",
    "Keypoints": "labels",
    "Masks": "labels",
    "Parts": "labels",
    "PropagateConfig": "propagation.settings",
    "Propagation": "propagation.state",
    "Texture": "labels",
    "TrustConfig": "propagation.confidence",
    "correspond": "api",
    "from_pretrained": "model.pretrained",
    "load_encoder": "model.registry",
    "open_video": "video",
    "propagate": "api",
    "propagate_config": "config",
    "propagate_to_folder": "api",
    "save_pretrained": "model.pretrained",
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))
