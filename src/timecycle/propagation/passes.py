"""Label maps of both passes, kept beside a run: a correction matches only frames whose causes it changed.

What a pass finds on a frame depends on the annotated frames it has met so far and on nothing else. Corrections add
annotated frames between others, so each pass meets many frames as it did before.
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from timecycle.files import make_folder, writing
from timecycle.propagation.election import Elected

Direction = Literal["forward", "backward"]


@dataclass(frozen=True, eq=False)
class PassMaps:
    """A folder with the newest label map of every frame and pass, each under the key of its causes.

    A cache: what is missing, damaged, of another size or of another cause is None, and nothing else depends on it.
    """

    path: Path
    offset: int = 0  # index in the whole video of the frame that is called 0

    def read(self, direction: Direction, index: int, key: bytes, shape: tuple[int, int, int]) -> Elected | None:
        """The label map of a frame, of `shape` (rows, columns, channels)."""
        channels = shape[2]
        size = len(key) + channels + 4 * math.prod(shape)
        unpack = zlib.decompressobj()
        try:
            data = unpack.decompress(self._file(direction, index).read_bytes(), size + 1)
        except (OSError, zlib.error):
            return None
        # Whole, with its checksum, and not a byte more.
        if not unpack.eof or len(data) != size or not data.startswith(key):
            return None
        knows = np.frombuffer(data, np.uint8, channels, len(key))
        soft = np.frombuffer(data, np.float32, offset=len(key) + channels)
        return Elected(torch.from_numpy(soft.copy()).reshape(shape), torch.from_numpy(knows > 0))

    def keep(self, direction: Direction, index: int, key: bytes, elected: Elected) -> None:
        """Keep a label map in the place of an older one."""
        knows, soft = elected.knows.numpy().astype(np.uint8), elected.soft.contiguous().numpy()
        path = self._file(direction, index)
        make_folder(path.parent)
        with writing(path):
            # Mostly zeros and ones: about a twentieth.
            path.write_bytes(zlib.compress(key + knows.tobytes() + soft.tobytes(), level=1))

    def _file(self, direction: Direction, index: int) -> Path:
        return self.path / direction / f"{index + self.offset}.map"


class PassKey:
    """Identifies what a pass has met: its settings, and the annotated frames up to a frame, in its order."""

    def __init__(self, direction: Direction, settings: str, annotated: Iterable[int]) -> None:
        self._backward = direction == "backward"
        self._left = sorted(annotated, reverse=not self._backward)  # the next one is the last
        self._key = hashlib.sha256(f"{direction} {settings}".encode()).digest()

    def at(self, index: int, content: Callable[[int], bytes]) -> bytes:
        """The key of a frame, which come in the order of the pass; `content` is what an annotated frame says."""
        while self._left and (self._left[-1] >= index if self._backward else self._left[-1] <= index):
            self._key = hashlib.sha256(self._key + content(self._left.pop())).digest()
        return self._key
