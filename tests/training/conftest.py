"""Videos and settings for small runs."""

from small_runs import config, tiny, videos

__all__ = ["config", "tiny", "videos"]
