"""The inference with which encoders are compared at 240p: plain, so that only the encoder differs."""

from collections.abc import Sequence

from timecycle.config import propagate_config
from timecycle.propagation.settings import PropagateConfig

AT_240 = ("image_size_px=240", "window_px=48", "anchor_window_px=48")


def plain_at_240(settings: Sequence[str] = ()) -> PropagateConfig:
    """Return the settings of plain inference at 240p, changed."""
    return propagate_config("plain", (*AT_240, *settings))
