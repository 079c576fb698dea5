"""Videos and settings for small runs of several processes."""

from small_runs import tiny, videos

__all__ = ["tiny", "videos"]
