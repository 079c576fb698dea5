"""Cache of both passes' label maps beside a run: a correction matches only frames whose inputs it changed.

The label map of a frame in a pass depends on the annotated frames before it in that pass, and on nothing else.
Corrections add annotated frames between others, so each pass meets many frames as it did before.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from timecycle.files import make_folder, writing
from timecycle.grid import Grid
from timecycle.labels.label_map import LabelMap

Direction = Literal["forward", "backward"]


@dataclass(frozen=True, eq=False)
class PassCache:
    """A folder with the newest label map of every frame and pass, each under a key of its inputs.

    A map that is missing, damaged, of another size or under another key reads as None; nothing depends on the cache.
    """

    path: Path
    offset: int = 0  # index in the whole video of the frame that is called 0

    def read(self, direction: Direction, index: int, key: bytes, grid: Grid, channels: int) -> LabelMap | None:
        """Return the cached label map of a frame."""
        size = len(key) + channels + 4 * grid.cells * channels
        decompressor = zlib.decompressobj()
        try:
            data = decompressor.decompress(self._file(direction, index).read_bytes(), size + 1)
        except (OSError, zlib.error):
            return None
        # Whole, with its checksum, and not a byte more.
        if not decompressor.eof or len(data) != size or not data.startswith(key):
            return None
        known = torch.from_numpy(np.frombuffer(data, np.uint8, channels, len(key)) > 0)
        values = torch.from_numpy(np.frombuffer(data, np.float32, offset=len(key) + channels).copy())
        return LabelMap(values.reshape(grid.y.cells, grid.x.cells, channels), known, grid)

    def write(self, direction: Direction, index: int, key: bytes, labels: LabelMap) -> None:
        """Replace the cached label map of a frame."""
        known, values = labels.known.numpy().astype(np.uint8), labels.values.contiguous().numpy()
        path = self._file(direction, index)
        make_folder(path.parent)
        with writing(path):
            # Mostly zeros and ones: compresses to about a twentieth.
            path.write_bytes(zlib.compress(key + known.tobytes() + values.tobytes(), level=1))

    def _file(self, direction: Direction, index: int) -> Path:
        return self.path / direction / f"{index + self.offset}.map"


class PassKey:
    """Identify the inputs of a pass: its settings, and the annotated frames up to a frame, in the pass's order."""

    def __init__(self, direction: Direction, settings: str, annotated: Iterable[int]) -> None:
        self._backward = direction == "backward"
        self._remaining = sorted(annotated, reverse=not self._backward)  # the next one is the last
        self._key = hashlib.sha256(f"{direction} {settings}".encode()).digest()

    def at(self, index: int, content: Callable[[int], bytes]) -> bytes:
        """Return the key of a frame; call it in the pass's order. `content` serialises an annotated frame."""
        while self._remaining and (self._remaining[-1] >= index if self._backward else self._remaining[-1] <= index):
            self._key = hashlib.sha256(self._key + content(self._remaining.pop())).digest()
        return self._key
