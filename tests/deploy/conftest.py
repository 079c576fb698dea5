"""Videos and settings for small training runs."""

from small_runs import tiny, videos

__all__ = ["tiny", "videos"]
