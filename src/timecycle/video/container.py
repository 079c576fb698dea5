"""Frame-exact videos from container files (MP4, MOV, WebM, Matroska, AVI, MPEG-TS, ...)."""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
from av.video.frame import VideoFrame
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.files import sha256
from timecycle.video.completeness import (
    DamagedVideoError,
    check_not_truncated,
    index_matches_chunks,
    loss_in,
    undecoded_in,
)
from timecycle.video.cursor import Cursor, FrameTable, WrongTableError
from timecycle.video.decoder import Decoder, damaged, shown_at, upright_size
from timecycle.video.frame import Frame
from timecycle.video.source import Video


class ContainerVideo(Video):
    """A video file.

    Frames are indexed in the order in which the decoder returns them. The frame table is built on first use, from the
    packets if they are reliable; every decoded frame is compared with it, and if it proves wrong it is built again by
    decoding. Damage is an error: a video is never silently shorter than it should be. With `allow_damaged` the video
    consists of the frames that can be decoded, and `damage` describes the damage.

    Several threads may read one video: reads by index take turns, and every iteration has its own decoder.
    """

    def __init__(self, path: Path, *, max_pixels: int, allow_damaged: bool = False) -> None:
        self._damage: list[str] = []
        try:
            check_not_truncated(path)
        except DamagedVideoError as error:
            if not allow_damaged:
                raise
            self._damage.append(error.problem)
        self._path = path
        self._allow_damaged = allow_damaged
        # Not a bound method: cursors keep it, and a reference cycle would keep files open until garbage collection.
        self._decoder = partial(Decoder, path, max_pixels=max_pixels, allow_damaged=allow_damaged)
        self._lock = threading.RLock()  # for the table and the cursor
        self._known_table: FrameTable | None = None
        self._cursor: Cursor | None = None  # for reading by index; every iteration has its own
        with self._decoder() as decoder:
            first = next(decoder.frames(), None)
            if first is None:
                raise damaged(path, "no frame of it can be decoded")
            decoder.check_intact(first)
            super().__init__(name=str(path), size=upright_size(first), time_base=decoder.time_base)

    @property
    def pts(self) -> Sequence[int]:
        return self._table.pts

    def fingerprint(self) -> str:
        try:
            return sha256([self._path])
        except OSError as error:
            raise VideoError(f"{self.name} cannot be read: {error}", remedy="restore the file") from error

    @property
    def damage(self) -> str | None:
        with self._lock:
            _ = self._table  # if damage is allowed, building it decodes the whole file
            return self._damage[0] if self._damage else None

    def close(self) -> None:
        with self._lock:
            if self._cursor is not None:
                self._cursor.close()
                self._cursor = None

    @property
    def _table(self) -> FrameTable:
        with self._lock:
            if self._known_table is None:
                self._known_table = self._table_from_packets() or self._table_from_frames()
            return self._known_table

    def _table_from_packets(self) -> FrameTable | None:
        if self._allow_damaged:  # packets may list frames that cannot be decoded
            return None
        with self._decoder() as decoder:
            table = FrameTable.from_packets(decoder)
            if table is not None:
                _check_complete(decoder)
            return table

    def _table_from_frames(self) -> FrameTable:
        with self._decoder() as decoder:
            table = FrameTable.from_frames(decoder)
            if self._known_table is None:  # otherwise `_correct_table` compares the two
                _check_complete(decoder, decoded=len(table))
            self._damage += decoder.damage
            if len(table) == 0:
                raise damaged(self._path, "no frame of it can be decoded")
            wrong_index = "avi" in decoder.formats and not index_matches_chunks(self._path)
            return table.without_entry_points() if decoder.damage or wrong_index else table

    def _correct_table(self, wrong_at: int) -> None:
        """Replace a table that decoding proved wrong; raise VideoError if the file is damaged."""
        expected = self._table
        if expected.certain:
            raise damaged(self._path, f"frame {wrong_at} does not decode the same way twice")
        table = self._table_from_frames()
        # A recording may begin in the middle of a group of frames: those before the first keyframe were never visible.
        # A frame missing later is a loss.
        first_keyframe = expected.keyframes[0] if expected.keyframes else len(expected)
        skipped = min(bisect_left(expected.pts, table.pts[0]), first_keyframe)
        if len(table) < len(expected) - skipped:
            raise damaged(
                self._path,
                f"only {len(table)} of its {len(expected)} frames can be decoded, not frame {wrong_at}",
            )
        self._known_table = table
        self.close()

    def _frame(self, index: int) -> Frame:
        with self._lock:
            try:
                if self._cursor is None:
                    self._cursor = Cursor(self._decoder, self._table)
                return self._stamped(index, self._rgb(self._cursor, self._cursor.read(index)))
            except WrongTableError as wrong:
                self._correct_table(wrong.index)
                return self[index]  # a corrected table may no longer have this index

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        to_the_end = stop == len(self)
        index = start
        while index < stop:
            try:
                for image in self._images_by_table(index, stop):
                    yield index, image
                    index += 1
            except WrongTableError as wrong:
                with self._lock:
                    if wrong.table is self._known_table:  # otherwise another thread has corrected it
                        self._correct_table(wrong.index)
                stop = len(self) if to_the_end else min(stop, len(self))

    def _images_by_table(self, start: int, stop: int) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        table = self._table
        with closing(Cursor(self._decoder, table)) as cursor:
            for index in range(start, stop):
                yield self._rgb(cursor, cursor.read(index))
            if stop == len(table):
                cursor.expect_end()

    def _rgb(self, cursor: Cursor, frame: VideoFrame) -> UInt8[np.ndarray, "height width 3"]:
        size = upright_size(frame)
        if size != self.size:
            raise VideoError(
                f"{self.name} changes its size from {self.size} to {size} {shown_at(frame)}",
                remedy="re-encode it at one size with: ffmpeg -i IN -c:v libx264 OUT.mp4",
            )
        return cursor.rgb(frame)

    def _block_start(self, lowest: int, stop: int) -> int:
        """Return the first keyframe of the block, if it has one, so that no frame before it is decoded twice."""
        keyframes = self._table.keyframes
        position = bisect_left(keyframes, lowest)
        return keyframes[position] if position < len(keyframes) and keyframes[position] < stop else lowest


def _check_complete(decoder: Decoder, *, decoded: int | None = None) -> None:
    """Report missing frames, which only show after reading the whole file."""
    loss = loss_in(decoder) or (None if decoded is None else undecoded_in(decoder, decoded))
    if loss is not None:
        decoder.report(loss)
