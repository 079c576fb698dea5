"""Feature maps on disk: what the backward pass encoded, the forward pass reads instead of encoding it again."""

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from timecycle.files import make_folder
from timecycle.grid import Grid
from timecycle.model.encoder import FeatureMap

_MOST_BYTES = 2 << 30  # about 300 frames of 480p; frames beyond it are encoded twice
_MOST_OF_FREE = 0.25  # of the space that is free on the disk


@dataclass(frozen=True, eq=False)
class _Stored:
    """What the file of a feature map does not say."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    grid: Grid


@dataclass(eq=False)
class FeatureSpool:
    """Feature maps of frames, by index, in a folder of bounded size. Exact: what is read is what was kept.

    Only for the process that made it: files are not synced, and a folder left by another process is emptied.
    """

    path: Path
    room_bytes: int = field(default_factory=lambda: _MOST_BYTES)
    _stored: dict[int, _Stored] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        make_folder(self.path)
        self.room_bytes = min(self.room_bytes, int(shutil.disk_usage(self.path).free * _MOST_OF_FREE))

    def keep(self, index: int, features: FeatureMap) -> None:
        """Keep the feature map of a frame, if there is room."""
        cells = features.cells
        size = cells.numel() * cells.element_size()
        if size > self.room_bytes or index in self._stored:
            return
        try:
            cells.cpu().contiguous().view(torch.uint8).numpy().tofile(self._file(index))
        except OSError:  # the disk is full all the same: nothing is lost but time
            self.room_bytes = 0
            with contextlib.suppress(OSError):
                self._file(index).unlink(missing_ok=True)
            return
        self.room_bytes -= size
        self._stored[index] = _Stored(cells.shape, cells.dtype, cells.device, features.grid)

    def read(self, index: int) -> FeatureMap | None:
        """The feature map of a frame, or None where it was not kept."""
        stored = self._stored.get(index)
        if stored is None:
            return None
        cells = torch.from_numpy(np.fromfile(self._file(index), np.uint8)).view(stored.dtype).reshape(stored.shape)
        return FeatureMap(cells.to(stored.device), stored.grid)

    def _file(self, index: int) -> Path:
        return self.path / f"{index}.features"
