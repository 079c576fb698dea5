"""Footage and settings for small runs."""

from training_footage import config, tiny, videos

__all__ = ["config", "tiny", "videos"]
