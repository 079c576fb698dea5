"""Intermediate files of a propagation: the label maps of the backward pass, and snapshots to resume from."""

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from timecycle.confidence.history import History
from timecycle.confidence.signals import Signals
from timecycle.errors import OutputError, TimecycleError, first_line
from timecycle.files import atomic_write, make_folder, prepend_checksum, read_checksummed
from timecycle.grid import Grid
from timecycle.labels.label_map import LabelMap
from timecycle.labels.space import Space
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.memory import MemoryFrame
from timecycle.propagation.propagator import Snapshot
from timecycle.propagation.target import TargetModel

_MAX_BYTES = 4 << 30  # of one frame's labels

EncodeFrame = Callable[[int], FeatureMap]


@dataclass(frozen=True)
class BackwardFrame:
    """What the backward pass leaves of a frame for the forward pass."""

    labels: LabelMap
    history: History | None = None  # if confidence is estimated
    signals: Signals | None = None  # of frames that only this pass labels


@dataclass(frozen=True)
class WorkFolder:
    """A folder of intermediate files. It grows with the backward pass on disk; memory does not."""

    path: Path

    def write_backward(self, index: int, backward: BackwardFrame) -> None:
        arrays = [tensor.numpy() for tensor in _tensors(backward)]
        known = backward.labels.known.tolist()
        header = json.dumps({"shapes": [array.shape for array in arrays], "known": known}).encode()
        # Mostly zeros and ones: compresses to about a twentieth.
        body = zlib.compress(b"".join(array.tobytes() for array in arrays), level=1)
        with atomic_write(make_folder(self.path / "backward") / f"{index}.labels") as file:
            file.write(prepend_checksum(len(header).to_bytes(4, "little") + header + body))

    def read_backward(self, index: int, grid: Grid, channels: int) -> BackwardFrame:
        """Read a frame of the backward pass, whose label map has this grid and so many channels."""
        shape = (grid.y.cells, grid.x.cells, channels)
        path = self.path / "backward" / f"{index}.labels"
        data = read_checksummed(path)
        with _reading(path):
            end = 4 + int.from_bytes(data[:4], "little")
            header = json.loads(data[4:end])
            sizes = [math.prod(shape_of) for shape_of in header["shapes"]]
            if tuple(header["shapes"][0]) != shape or not 0 < 4 * sum(sizes) <= _MAX_BYTES:
                raise ValueError(f"its label map is {header['shapes'][0]}, not {shape}")
            # Not a byte more than the header says, however far the file would decompress.
            whole = zlib.decompressobj().decompress(data[end:], 4 * sum(sizes))
            values = torch.from_numpy(np.frombuffer(whole, np.float32).copy())
            label_values, *rest = (
                tensor.reshape(size) for tensor, size in zip(torch.split(values, sizes), header["shapes"], strict=True)
            )
            known = torch.tensor(header["known"], dtype=torch.bool)
            if known.shape != shape[2:]:
                raise ValueError("its channels are others")
            history, signals = (History(rest[0]), rest[1:]) if rest else (None, [])
            return BackwardFrame(LabelMap(label_values, known, grid), history, Signals(*signals) if signals else None)

    def drop_backward(self, index: int) -> None:
        (self.path / "backward" / f"{index}.labels").unlink(missing_ok=True)

    def save_snapshot(self, name: str, next_index: int, snapshot: Snapshot) -> None:
        """Replace the snapshot `name`; `next_index` is the frame to resume at."""
        tensors: dict[str, Tensor] = {}
        for frame in snapshot.frames:
            tensors[f"{frame.index}.values"] = frame.labels.values.cpu().contiguous()
            tensors[f"{frame.index}.known"] = frame.labels.known.cpu()
            if frame.annotated is not None:
                tensors[f"{frame.index}.annotated"] = frame.annotated.cpu()
        if snapshot.history is not None:
            tensors["history"] = snapshot.history.values
        if snapshot.target is not None:
            tensors["target.weights"] = snapshot.target.weights.cpu().contiguous()
            tensors["target.seen"] = snapshot.target.seen.cpu()
        order = {
            "next_index": next_index,
            "frames": [frame.index for frame in snapshot.frames],
            "anchors": snapshot.anchors,
            "past": snapshot.past,
            "steps": snapshot.steps,
            "image_size": snapshot.image_size,
            "kind": snapshot.kind,
        }
        with atomic_write(self._snapshot(make_folder(self.path), name)) as file:
            file.write(prepend_checksum(_head(order) + save(tensors)))

    def is_empty(self) -> bool:
        """Return whether there is no snapshot to resume from."""
        return self.next_index("forward") is None and self.next_index("backward") is None

    def next_index(self, name: str) -> int | None:
        """Return the frame at which the snapshot `name` resumes, or None if there is no snapshot."""
        path = self._snapshot(self.path, name)
        return _read(path)[0].next_index if path.is_file() else None

    def load_snapshot(
        self, name: str, encode_frame: EncodeFrame, space: Space, frames: int, subcells: int = 1
    ) -> Snapshot:
        """Read the snapshot `name` of a propagator with that `space`, of a video of so many frames.

        The features of its memory frames are encoded again.
        """
        path = self._snapshot(self.path, name)
        order, tensors = _read(path)
        with _reading(path):
            if not all(0 <= index < frames for index in order.frames):
                raise ValueError("it has memory frames that the video lacks")
            memory = {
                index: _memory_frame(index, encode_frame(index), tensors, space, subcells) for index in order.frames
            }
            if not {*order.anchors, *order.past} <= memory.keys():
                raise ValueError("it refers to memory frames that it does not hold")
            target = _target(tensors, memory, space) if memory else None
        history = tensors.get("history")
        return Snapshot(
            tuple(memory.values()),
            order.anchors,
            order.past,
            None if history is None else History(history),
            space,
            order.steps,
            order.image_size,
            order.kind,
            target,
        )

    def _snapshot(self, folder: Path, name: str) -> Path:
        return folder / f"{name}.snapshot"


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What a snapshot holds besides tensors."""

    next_index: int
    frames: tuple[int, ...]
    anchors: tuple[int, ...]
    past: tuple[int, ...]
    steps: int
    image_size: tuple[int, int] | None
    kind: str | None


def _head(order: Mapping[str, Any]) -> bytes:
    text = json.dumps(order).encode()
    return len(text).to_bytes(4, "little") + text


def _read(path: Path) -> tuple[_Order, dict[str, Tensor]]:
    data = read_checksummed(path)
    with _reading(path):
        end = 4 + int.from_bytes(data[:4], "little")
        fields = json.loads(data[4:end])
        size, kind = fields["image_size"], fields["kind"]
        order = _Order(
            next_index=int(fields["next_index"]),
            frames=tuple(map(int, fields["frames"])),
            anchors=tuple(map(int, fields["anchors"])),
            past=tuple(map(int, fields["past"])),
            steps=int(fields["steps"]),
            image_size=(int(size[0]), int(size[1])) if size else None,
            kind=None if kind is None else str(kind),
        )
        return order, load(data[end:])


def _memory_frame(
    index: int, features: FeatureMap, tensors: Mapping[str, Tensor], space: Space, subcells: int
) -> MemoryFrame:
    """Build a memory frame whose label map fits its features and the space."""
    values, known, annotated = (tensors.get(f"{index}.{name}") for name in ("values", "known", "annotated"))
    channels, device = (space.channels,), features.cells.device
    grid = features.grid.subdivided(subcells)
    if values is None or values.shape != (grid.y.cells, grid.x.cells, *channels) or values.dtype != torch.float32:
        raise ValueError(f"the labels of frame {index} do not fit its features")
    masks = [mask for mask in (known, annotated) if mask is not None]
    if known is None or any(mask.shape != channels or mask.dtype != torch.bool for mask in masks):
        raise ValueError(f"the channels of frame {index} are others")
    labels = LabelMap(values.to(device), known, grid, subcells)
    return MemoryFrame(index, features, labels, annotated)


def _target(tensors: Mapping[str, Tensor], memory: Mapping[int, MemoryFrame], space: Space) -> TargetModel | None:
    """Build the target model, which fits the features of the memory frames and the space."""
    weights, seen = tensors.get("target.weights"), tensors.get("target.seen")
    if weights is None or seen is None:
        return None
    cells = next(iter(memory.values())).features.cells
    if weights.shape != (cells.shape[2] + 1, space.channels) or weights.dtype != torch.float32:
        raise ValueError("its target model does not fit the features")
    if seen.shape != (space.channels,) or seen.dtype != torch.bool:
        raise ValueError("its target model has other channels")
    return TargetModel(weights.to(cells.device), seen.to(cells.device))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn any failure to parse a file into one error that names it."""
    try:
        yield
    except TimecycleError:
        raise
    except Exception as error:
        raise OutputError(
            f"{path} was not written by a run: {first_line(error)}", remedy="start again with --overwrite"
        ) from error


def _tensors(backward: BackwardFrame) -> Iterator[Tensor]:
    """Yield the label map, then the history, then the signals, as far as they exist."""
    yield backward.labels.values
    if backward.history is not None:
        yield backward.history.values
        if backward.signals is not None:
            yield from (backward.signals.objects, backward.signals.cells, backward.signals.area)
