"""The annotated frames nearest to a frame, found by bisection however many there are."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

FramePerChannel = Float[Tensor, " channels"]


@dataclass(frozen=True, eq=False)
class _Group:
    """Channels that are annotated on the same frames."""

    frames: Sequence[int]  # in order
    channels: Bool[Tensor, " channels"]


@dataclass(frozen=True, eq=False)
class NearestAnnotated:
    """Annotated frames, in order: all of them, and channel by channel those that decide it."""

    frames: Sequence[int]
    groups: Sequence[_Group]

    @classmethod
    def of(cls, speaks: Mapping[int, Bool[Tensor, " channels"]]) -> "NearestAnnotated":
        """From the channels that each annotated frame decides."""
        frames = sorted(speaks)
        groups: dict[tuple[bool, ...], list[int]] = {}
        decided = torch.stack([speaks[frame] for frame in frames])
        for channel, column in enumerate(decided.T.tolist()):
            groups.setdefault(tuple(column), []).append(channel)
        return cls(frames, [_group(frames, column, chosen, decided.shape[1]) for column, chosen in groups.items()])

    def around(self, index: int) -> tuple[FramePerChannel, FramePerChannel]:
        """The annotated frames before and after a frame, or on it: those that decide a channel where there are both,
        otherwise those of any channel, and the frame itself where there is none."""
        channels = len(self.groups[0].channels)
        before, after = around(self.frames, index)
        earlier = torch.full((channels,), float(index if before is None else before))
        later = torch.full((channels,), float(index if after is None else after))
        for group in self.groups:
            own_before, own_after = around(group.frames, index)
            if own_before is not None and own_after is not None:
                earlier[group.channels], later[group.channels] = float(own_before), float(own_after)
        return earlier, later


def around(frames: Sequence[int], index: int) -> tuple[int | None, int | None]:
    """The last of `frames`, which are in order, that is not after `index`, and the first that is not before it."""
    stop, start = bisect_right(frames, index), bisect_left(frames, index)
    return (frames[stop - 1] if stop else None), (frames[start] if start < len(frames) else None)


def two_nearest(frames: Sequence[int], index: int) -> list[int]:
    """The nearest frames before and after, or two on one side, nearest first; `frames` are in order.

    One annotated frame can be matched by wrong labels: where an object fills the picture, everything that follows looks
    like part of it. A second one tells.
    """
    stop, start = bisect_left(frames, index), bisect_right(frames, index)
    if stop and start < len(frames):
        pair = [frames[stop - 1], frames[start]]
    else:
        pair = [*frames[max(stop - 2, 0) : stop], *frames[start : start + 2]]
    return sorted(pair, key=lambda frame: abs(frame - index))


def _group(frames: Sequence[int], column: Sequence[bool], chosen: Sequence[int], channels: int) -> _Group:
    mask = torch.zeros(channels, dtype=torch.bool)
    mask[list(chosen)] = True
    return _Group([frame for frame, decides in zip(frames, column, strict=True) if decides], mask)
