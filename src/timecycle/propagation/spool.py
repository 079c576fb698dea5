"""Feature maps on disk: the forward pass reads what the backward pass encoded."""

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from timecycle.device import host_tensor
from timecycle.files import make_folder
from timecycle.grid import Grid
from timecycle.model.encoder import FeatureMap

_MAX_BYTES = 2 << 30  # about 300 frames of 480p; frames beyond it are encoded twice
_MAX_SHARE_OF_FREE = 0.25  # of the free space on the disk


@dataclass(frozen=True, eq=False)
class _Stored:
    """What the file of a feature map does not contain."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    grid: Grid


@dataclass(eq=False)
class FeatureSpool:
    """Feature maps of frames, by index, in a folder of bounded size; exact to the bit.

    Only for the process that made it: files are not synced, and a folder left by another process is emptied.
    """

    path: Path
    room_bytes: int = field(default_factory=lambda: _MAX_BYTES)
    _stored: dict[int, _Stored] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        make_folder(self.path)
        self.room_bytes = min(self.room_bytes, int(shutil.disk_usage(self.path).free * _MAX_SHARE_OF_FREE))

    def write(self, index: int, features: FeatureMap) -> None:
        """Store the feature map of a frame, if there is room."""
        cells = features.cells
        size = cells.numel() * cells.element_size()
        if size > self.room_bytes or index in self._stored:
            return
        try:
            host_tensor(cells, "spool").contiguous().view(torch.uint8).numpy().tofile(self._file(index))
        except OSError:  # the disk is full after all: only time is lost
            self.room_bytes = 0
            with contextlib.suppress(OSError):
                self._file(index).unlink(missing_ok=True)
            return
        self.room_bytes -= size
        self._stored[index] = _Stored(cells.shape, cells.dtype, cells.device, features.grid)

    def read(self, index: int) -> FeatureMap | None:
        """Return the feature map of a frame, or None if it was not stored."""
        stored = self._stored.get(index)
        if stored is None:
            return None
        cells = torch.from_numpy(np.fromfile(self._file(index), np.uint8)).view(stored.dtype).reshape(stored.shape)
        return FeatureMap(cells.to(stored.device), stored.grid)

    def _file(self, index: int) -> Path:
        return self.path / f"{index}.features"
