"""Videos in container files (MP4, MOV, WebM, Matroska, AVI, MPEG-TS, ...), exact to the frame."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.files import sha256
from timecycle.video.cursor import Cursor, WrongTableError
from timecycle.video.decoder import Decoder, check_intact, damaged, shown_at, upright_rgb, upright_size
from timecycle.video.frame import Frame
from timecycle.video.frame_table import FrameTable
from timecycle.video.source import Video
from timecycle.video.whole_file import check_whole


class ContainerVideo(Video):
    """A video file.

    Frames are numbered in the order the decoder gives them. Their table is read on first use, from the
    packets where those can be relied on; every decoded frame is held against it, and where it proves wrong
    it is read again by decoding. Damage is an error: a video is never silently shorter than it should be.
    """

    def __init__(self, path: Path, *, max_pixels: int) -> None:
        check_whole(path)
        self._path = path
        # No bound method: cursors hold it, and a cycle would keep their files open until garbage collection.
        self._decoder = partial(Decoder, path, max_pixels=max_pixels)
        self._reformatter = VideoReformatter()
        self._known_table: FrameTable | None = None
        self._cursor: Cursor | None = None  # for reading by index; reading in order has its own
        with self._decoder() as decoder:
            first = next(decoder.frames(), None)
            if first is None:
                raise damaged(path, "no frame of it can be decoded")
            check_intact(path, first)
            super().__init__(name=str(path), size=upright_size(first), time_base=decoder.time_base)

    @property
    def pts(self) -> Sequence[int]:
        return self._table.pts

    def fingerprint(self) -> str:
        try:
            return sha256([self._path])
        except OSError as error:
            raise VideoError(f"{self.name} cannot be read: {error}", remedy="restore the file") from error

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    @property
    def _table(self) -> FrameTable:
        if self._known_table is None:
            with self._decoder() as decoder:
                self._known_table = FrameTable.from_packets(decoder) or self._decoded_table()
        return self._known_table

    def _decoded_table(self) -> FrameTable:
        with self._decoder() as decoder:
            return FrameTable.from_frames(decoder)

    def _correct_table(self, wrong_at: int) -> None:
        """Replace a table that decoding proved wrong, unless the file itself is to blame."""
        promised = self._table
        if promised.certain:
            raise damaged(self._path, f"frame {wrong_at} does not decode the same way twice")
        table = self._decoded_table()
        # A recording may begin in the middle of a group of frames: what comes before the first that can be
        # decoded on its own was never visible. A frame missing later is a loss.
        skipped = bisect_left(promised.pts, table.pts[0])
        if len(table) < len(promised) - skipped:
            raise damaged(
                self._path,
                f"only {len(table)} of its {len(promised)} frames can be decoded, not frame {wrong_at}",
            )
        self._known_table = table
        self.close()

    def _frame(self, index: int) -> Frame:
        try:
            if self._cursor is None:
                self._cursor = Cursor(self._decoder, self._table)
            return self._stamped(index, self._rgb(self._cursor.read(index)))
        except WrongTableError as wrong:
            self._correct_table(wrong.index)
            return self[index]  # which a corrected table may no longer have

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        to_the_end = stop == len(self)
        index = start
        while index < stop:
            try:
                for image in self._images_by_table(index, stop):
                    yield index, image
                    index += 1
            except WrongTableError as wrong:
                self._correct_table(wrong.index)
                stop = len(self) if to_the_end else min(stop, len(self))

    def _images_by_table(self, start: int, stop: int) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        with closing(Cursor(self._decoder, self._table)) as cursor:
            for index in range(start, stop):
                yield self._rgb(cursor.read(index))
            if stop == len(self._table):
                cursor.expect_end()

    def _rgb(self, frame: VideoFrame) -> UInt8[np.ndarray, "height width 3"]:
        size = upright_size(frame)
        if size != self.size:
            raise VideoError(
                f"{self.name} changes its size from {self.size} to {size} {shown_at(frame)}",
                remedy="re-encode it at one size with: ffmpeg -i IN -c:v libx264 OUT.mp4",
            )
        return upright_rgb(self._path, frame, self._reformatter)

    def _block_start(self, lowest: int, stop: int) -> int:
        """The first keyframe of the block, if it has one: what lies before it need not be decoded twice."""
        keyframes = self._table.keyframes
        place = bisect_left(keyframes, lowest)
        return keyframes[place] if place < len(keyframes) and keyframes[place] < stop else lowest
