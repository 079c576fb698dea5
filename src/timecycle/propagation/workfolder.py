"""What a propagation keeps on disk while it runs: the backward pass's soft maps, and snapshots to go on from."""

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
from jaxtyping import Bool, Float
from safetensors.torch import load, save
from torch import Tensor

from timecycle.errors import OutputError, TimecycleError, first_line
from timecycle.files import atomic_write, make_folder, seal, unseal
from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Space
from timecycle.propagation.evidence import Evidence
from timecycle.propagation.memory import Remembered
from timecycle.propagation.state import Snapshot
from timecycle.propagation.trail import Trail

_MOST_BYTES = 4 << 30  # of one frame's labels

EncodeFrame = Callable[[int], Float[Tensor, "rows columns features"]]


@dataclass(frozen=True)
class Backward:
    """A frame's labels as carried back in time."""

    soft: SoftMap
    knows: Bool[Tensor, " channels"]
    trail: Trail | None = None  # where frames are judged
    evidence: Evidence | None = None  # of frames that only this pass labels


@dataclass(frozen=True)
class WorkFolder:
    """A folder of intermediate files: its size on disk grows with the backward pass, memory does not."""

    path: Path

    def keep_backward(self, index: int, backward: Backward) -> None:
        arrays = [part.numpy() for part in _parts(backward)]
        header = json.dumps({"shapes": [array.shape for array in arrays], "knows": backward.knows.tolist()}).encode()
        # Mostly zeros and ones: about a twentieth.
        body = zlib.compress(b"".join(array.tobytes() for array in arrays), level=1)
        with atomic_write(make_folder(self.path / "backward") / f"{index}.soft") as file:
            file.write(seal(len(header).to_bytes(4, "little") + header + body))

    def take_backward(self, index: int, shape: tuple[int, int, int]) -> Backward:
        """A frame's labels; their soft map has `shape` (rows, columns, channels)."""
        path = self.path / "backward" / f"{index}.soft"
        data = unseal(path)
        with _reading(path):
            end = 4 + int.from_bytes(data[:4], "little")
            header = json.loads(data[4:end])
            sizes = [math.prod(part) for part in header["shapes"]]
            if tuple(header["shapes"][0]) != shape or not 0 < 4 * sum(sizes) <= _MOST_BYTES:
                raise ValueError(f"its labels are of {header['shapes'][0]}, not {shape}")
            # Not a byte more than was told, however far the file would unfold.
            whole = zlib.decompressobj().decompress(data[end:], 4 * sum(sizes))
            values = torch.from_numpy(np.frombuffer(whole, np.float32).copy())
            soft, *judged = (
                part.reshape(size) for part, size in zip(torch.split(values, sizes), header["shapes"], strict=True)
            )
            knows = torch.tensor(header["knows"], dtype=torch.bool)
            if knows.shape != shape[2:]:
                raise ValueError("it knows of other channels")
            trail, evidence = (Trail(judged[0]), judged[1:]) if judged else (None, [])
            return Backward(soft, knows, trail, Evidence(*evidence) if evidence else None)

    def drop_backward(self, index: int) -> None:
        (self.path / "backward" / f"{index}.soft").unlink(missing_ok=True)

    def save_snapshot(self, name: str, next_index: int, snapshot: Snapshot) -> None:
        """Replace the snapshot `name`; `next_index` is the frame to go on with."""
        tensors: dict[str, Tensor] = {}
        for frame in snapshot.frames:
            tensors[f"{frame.index}.soft"] = frame.soft.cpu().contiguous()
            tensors[f"{frame.index}.knows"] = frame.knows.cpu()
            if frame.speaks is not None:
                tensors[f"{frame.index}.speaks"] = frame.speaks.cpu()
        if snapshot.trail is not None:
            tensors["trail"] = snapshot.trail.values
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
            file.write(seal(_head(order) + save(tensors)))

    def is_empty(self) -> bool:
        """True where there is nothing to go on from."""
        return self.next_index("forward") is None and self.next_index("backward") is None

    def next_index(self, name: str) -> int | None:
        """The frame the snapshot `name` goes on with, or None where there is no snapshot."""
        path = self._snapshot(self.path, name)
        return _read(path)[0].next_index if path.is_file() else None

    def load_snapshot(self, name: str, encode_frame: EncodeFrame, space: Space, frames: int) -> Snapshot:
        """The snapshot `name` of a state with that `space`, of a video of so many frames; the features of what it
        remembers are encoded again."""
        path = self._snapshot(self.path, name)
        order, tensors = _read(path)
        with _reading(path):
            if not all(0 <= index < frames for index in order.frames):
                raise ValueError("it remembers frames that the video lacks")
            remembered = {index: _remembered(index, encode_frame(index), tensors, space) for index in order.frames}
            if not {*order.anchors, *order.past} <= remembered.keys():
                raise ValueError("it counts on frames that it does not remember")
        trail = tensors.get("trail")
        return Snapshot(
            tuple(remembered.values()),
            order.anchors,
            order.past,
            None if trail is None else Trail(trail),
            space,
            order.steps,
            order.image_size,
            order.kind,
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
    data = unseal(path)
    with _reading(path):
        end = 4 + int.from_bytes(data[:4], "little")
        told = json.loads(data[4:end])
        size, kind = told["image_size"], told["kind"]
        order = _Order(
            next_index=int(told["next_index"]),
            frames=tuple(map(int, told["frames"])),
            anchors=tuple(map(int, told["anchors"])),
            past=tuple(map(int, told["past"])),
            steps=int(told["steps"]),
            image_size=(int(size[0]), int(size[1])) if size else None,
            kind=None if kind is None else str(kind),
        )
        return order, load(data[end:])


def _remembered(index: int, cells: Tensor, tensors: Mapping[str, Tensor], space: Space) -> Remembered:
    """A frame of the memory, whose labels fit its features and the space."""
    soft, knows, speaks = (tensors.get(f"{index}.{part}") for part in ("soft", "knows", "speaks"))
    channels = (space.channels,)
    if soft is None or soft.shape != (*cells.shape[:2], *channels) or soft.dtype != torch.float32:
        raise ValueError(f"the labels of frame {index} do not fit its features")
    given = [part for part in (knows, speaks) if part is not None]
    if knows is None or any(part.shape != channels or part.dtype != torch.bool for part in given):
        raise ValueError(f"frame {index} knows of other channels")
    return Remembered(index, cells, soft.to(cells.device), knows.to(cells.device), speaks)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what a file that a run did not write makes its reader stumble over into one line."""
    try:
        yield
    except TimecycleError:
        raise
    except Exception as error:
        raise OutputError(
            f"{path} is not what a run keeps: {first_line(error)}", remedy="begin anew with --overwrite"
        ) from error


def _parts(backward: Backward) -> Iterator[Tensor]:
    """Soft labels, then the trail, then the evidence, as far as they are there."""
    yield backward.soft
    if backward.trail is not None:
        yield backward.trail.values
        if backward.evidence is not None:
            yield from (backward.evidence.objects, backward.evidence.cells, backward.evidence.area)
