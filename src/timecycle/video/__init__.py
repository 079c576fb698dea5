"""Video in and out: exact frames by index from files, image folders and arrays; H.264 files out."""

from timecycle.video.frame import DEFAULT_MAX_PIXELS, Frame, Size
from timecycle.video.opening import open_video
from timecycle.video.part import VideoPart
from timecycle.video.source import Video
from timecycle.video.writer import VideoWriter

__all__ = ["DEFAULT_MAX_PIXELS", "Frame", "Size", "Video", "VideoPart", "VideoWriter", "open_video"]
