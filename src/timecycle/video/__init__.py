"""Read exact frames by index from video files, image folders and arrays; write H.264 files."""

from timecycle.video.frame import DEFAULT_MAX_PIXELS, Frame, Size
from timecycle.video.opening import open_video
from timecycle.video.source import Video, VideoSlice
from timecycle.video.writer import VideoWriter

__all__ = ["DEFAULT_MAX_PIXELS", "Frame", "Size", "Video", "VideoSlice", "VideoWriter", "open_video"]
