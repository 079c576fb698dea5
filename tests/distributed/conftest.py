"""Footage and settings for small runs of several processes."""

from training_footage import tiny, videos

__all__ = ["tiny", "videos"]
