"""What a propagation keeps on disk while it runs: the backward pass's soft maps, and snapshots to go on from."""

import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from timecycle.files import atomic_write, make_folder
from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Space
from timecycle.propagation.evidence import Evidence
from timecycle.propagation.memory import Remembered
from timecycle.propagation.state import Snapshot
from timecycle.propagation.trail import Trail

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
        with atomic_write(make_folder(self.path / "backward") / f"{index}.soft") as file:
            file.write(len(header).to_bytes(4, "little") + header)
            # Mostly zeros and ones: about a twentieth.
            file.write(zlib.compress(b"".join(array.tobytes() for array in arrays), level=1))

    def take_backward(self, index: int) -> Backward:
        data = (self.path / "backward" / f"{index}.soft").read_bytes()
        end = 4 + int.from_bytes(data[:4], "little")
        header = json.loads(data[4:end])
        values = torch.from_numpy(np.frombuffer(zlib.decompress(data[end:]), np.float32).copy())
        sizes = [math.prod(shape) for shape in header["shapes"]]
        soft, *judged = (
            part.reshape(shape) for part, shape in zip(torch.split(values, sizes), header["shapes"], strict=True)
        )
        knows = torch.tensor(header["knows"], dtype=torch.bool)
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
        with atomic_write(make_folder(self.path) / f"{name}.safetensors") as file:
            file.write(save(tensors, metadata={"order": json.dumps(order)}))

    def is_empty(self) -> bool:
        """True where there is nothing to go on from."""
        return self.next_index("forward") is None and self.next_index("backward") is None

    def next_index(self, name: str) -> int | None:
        """The frame the snapshot `name` goes on with, or None where there is no snapshot."""
        path = self.path / f"{name}.safetensors"
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            return int(json.loads(file.metadata()["order"])["next_index"])

    def load_snapshot(self, name: str, encode_frame: EncodeFrame, space: Space) -> Snapshot:
        """The snapshot `name` of a state with that `space`; the features of its frames are encoded again."""
        with safe_open(self.path / f"{name}.safetensors", framework="pt") as file:
            order = json.loads(file.metadata()["order"])
            frames = []
            for index in order["frames"]:
                cells = encode_frame(index)
                speaks = f"{index}.speaks"
                frames.append(
                    Remembered(
                        index,
                        cells,
                        file.get_tensor(f"{index}.soft").to(cells.device),
                        file.get_tensor(f"{index}.knows").to(cells.device),
                        file.get_tensor(speaks) if speaks in file.keys() else None,  # noqa: SIM118
                    )
                )
            trail = Trail(file.get_tensor("trail")) if "trail" in file.keys() else None  # noqa: SIM118
        height_width = order["image_size"]
        return Snapshot(
            tuple(frames),
            tuple(order["anchors"]),
            tuple(order["past"]),
            trail,
            space,
            order["steps"],
            (height_width[0], height_width[1]) if height_width else None,
            order["kind"],
        )


def _parts(backward: Backward) -> Iterator[Tensor]:
    """Soft labels, then the trail, then the evidence, as far as they are there."""
    yield backward.soft
    if backward.trail is not None:
        yield backward.trail.values
        if backward.evidence is not None:
            yield from (backward.evidence.objects, backward.evidence.cells, backward.evidence.area)
