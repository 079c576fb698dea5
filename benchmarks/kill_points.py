"""The points at which benchmarks/kills.py kills a run, and how a process is made to kill itself at one.

The process wraps a function of Python, torch or the package before it trains; the package has no hooks for it.
"""

import io
import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import torch

from timecycle.data.augment.clips import ClipReader
from timecycle.data.corpus import index
from timecycle.model.resnet import BasicBlock
from timecycle.training import heldout, step
from timecycle.training.corpus import Examples
from timecycle.training.step import Learner, State


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def on_call(owner: Any, name: str, nth: int = 1, act: Callable[[], None] = die) -> None:
    """Act right before the nth call of a function."""
    original, calls = getattr(owner, name), itertools.count(1)

    def armed(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            act()
        return original(*args, **kwargs)

    setattr(owner, name, armed)


def on_file(pattern: str, act: Callable[[], None] = die, nth: int = 1) -> None:
    """Act right before the nth atomic write of a matching file creates its temporary file."""
    original, calls = io.open, itertools.count(1)

    def armed(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        temporary = mode == "xb" and fnmatch(Path(file).name, f".{pattern}.*.part")
        if temporary and next(calls) == nth:
            io.open = original
            act()
            return io.open(file, mode, *args, **kwargs)  # noqa: UP020  which `act` may have replaced
        return original(file, mode, *args, **kwargs)

    io.open = armed


def in_backward(nth: int) -> None:
    """Die in the nth backward pass, when only the later layers have gradients."""
    original, calls = Learner.forward, itertools.count(1)

    def armed(self: Learner, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            next(self.encoder.layer2.parameters()).register_hook(die)
        return original(self, *args, **kwargs)

    Learner.forward = armed  # type: ignore[method-assign]


class Cut(io.BufferedWriter):
    """A file that writes a share of its nth write, and then kills the process."""

    def __init__(self, file: int | Path, mode: str, nth: int, share: float) -> None:
        super().__init__(io.FileIO(file, mode))
        self.left, self.share = nth, share

    def write(self, content: Any, /) -> int:
        self.left -= 1
        if self.left == 0:
            super().write(content[: int(self.share * len(content))])
            self.flush()
            die()
        return super().write(content)


def cut(nth: int, share: float) -> None:
    """Die when a share of the nth write to the next temporary file is written."""
    original = io.open

    def armed(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return Cut(file, mode, nth, share) if mode == "xb" else original(file, mode, *args, **kwargs)

    io.open = armed


def tear(name: str, nth: int) -> None:
    """Die when half of the nth line is appended to a journal, which is flushed line by line."""
    original = io.open

    def armed(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode in ("a", "w") and isinstance(file, Path) and file.name == name:
            return io.TextIOWrapper(Cut(file, mode, nth, 0.5), encoding="utf-8")
        return original(file, mode, *args, **kwargs)

    io.open = armed


@dataclass(frozen=True)
class Kill:
    """A kill: by the process itself at a point of its work, or from outside."""

    name: str
    arm: Callable[[], None] | None = None  # called in the process before it trains
    in_save: bool = False


def saving(name: str, act: Callable[[], None] = die, *, nth: int = 1) -> Kill:
    """Return a kill inside the nth save of a checkpoint after a start."""
    return Kill(f"save: {name}", partial(on_file, "step-*.ckpt", act, nth), in_save=True)


# In this order the run advances: a kill before the renaming of a checkpoint loses all steps since the last.
KILLS = (
    Kill("index: the third video is being probed", partial(on_call, index, "probe_video", 3)),
    Kill("index: half a line of its journal is written", partial(tear, "index.jsonl.part", 2)),
    Kill("held-out clips: the second is being read", partial(on_call, ClipReader, "read", 2)),
    Kill("record: half of train.json is written", partial(on_file, "train.json", partial(cut, 1, 0.5))),
    Kill("loader thread: the fifth example is being made", partial(on_call, Examples, "__call__", 5)),
    Kill("step: in the forward pass", partial(on_call, BasicBlock, "forward", 9)),
    saving("nothing is written"),
    saving("the head line is written", partial(cut, 1, 1.0)),
    saving("half of the content is written", partial(cut, 2, 0.5), nth=2),
    saving("all is written, nothing synced", partial(on_call, os, "fsync")),
    saving("a tenth of the content is written", partial(cut, 2, 0.1), nth=2),
    saving("it is renamed, the old one not removed", partial(on_call, os, "unlink")),
    Kill("validation: held-out clips are being scored", partial(on_call, heldout, "cycle_accuracy")),
    Kill("picture: half of its pixels are written", partial(on_file, "*.png", partial(cut, 6, 0.5))),
    Kill("journal: half of the third line is written", partial(tear, "journal.jsonl", 3)),
    saving("one of two old ones is removed", partial(on_call, os, "unlink", 2)),
    saving("all is ready, it is not renamed", partial(on_call, os, "replace"), nth=2),
    Kill("step: in the backward pass", partial(in_backward, 2)),
    Kill("step: after the optimiser, before the EMA", partial(on_call, step, "update_average", 3)),
    Kill(
        "step: in the EMA",
        partial(on_call, step, "update_average", 1, partial(on_call, torch.Tensor, "lerp_", 20)),
    ),
    Kill("journal: shortened, not renamed", partial(on_file, "journal.jsonl", partial(on_call, os, "replace"))),
    saving("an empty temporary file is made", partial(cut, 1, 0.0), nth=2),
    *(Kill(f"random moment {number}") for number in range(1, 5)),
    saving("all but the last byte is written", partial(cut, 2, 1 - 1e-9), nth=2),
    Kill("between two steps", partial(on_call, State, "advance", 4)),
    Kill("weights: half of them are written", partial(on_file, "weights.safetensors", partial(cut, 1, 0.5))),
    Kill("weights: written, without their card", partial(on_file, "weights.json")),
)
