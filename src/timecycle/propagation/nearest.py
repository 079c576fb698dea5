"""The annotated frames nearest to a frame, found by bisection."""

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

    frames: Sequence[int]  # ascending
    channels: Bool[Tensor, " channels"]


@dataclass(frozen=True, eq=False)
class NearestAnnotated:
    """Annotated frames, ascending: all of them, and for each group of channels those that annotate it."""

    frames: Sequence[int]
    groups: Sequence[_Group]

    @classmethod
    def of(cls, annotated: Mapping[int, Bool[Tensor, " channels"]]) -> "NearestAnnotated":
        """Build it from the channels that are annotated on each frame."""
        frames = sorted(annotated)
        groups: dict[tuple[bool, ...], list[int]] = {}
        channels_by_frame = torch.stack([annotated[frame] for frame in frames])
        for channel, column in enumerate(channels_by_frame.T.tolist()):
            groups.setdefault(tuple(column), []).append(channel)
        channels = channels_by_frame.shape[1]
        return cls(frames, [_group(frames, column, members, channels) for column, members in groups.items()])

    def around(self, index: int) -> tuple[FramePerChannel, FramePerChannel]:
        """Return, per channel, the annotated frames before and after a frame, or the frame itself.

        Those that annotate the channel are taken if there is one on either side, otherwise those of any channel; where
        there is none at all, the frame itself.
        """
        channels = len(self.groups[0].channels)
        before, after = _around(self.frames, index)
        earlier = torch.full((channels,), float(index if before is None else before))
        later = torch.full((channels,), float(index if after is None else after))
        for group in self.groups:
            own_before, own_after = _around(group.frames, index)
            if own_before is not None and own_after is not None:
                earlier[group.channels], later[group.channels] = float(own_before), float(own_after)
        return earlier, later


def _around(frames: Sequence[int], index: int) -> tuple[int | None, int | None]:
    """Return the last of the ascending `frames` that is not after `index`, and the first that is not before it."""
    stop, start = bisect_right(frames, index), bisect_left(frames, index)
    return (frames[stop - 1] if stop else None), (frames[start] if start < len(frames) else None)


def _group(frames: Sequence[int], column: Sequence[bool], members: Sequence[int], channels: int) -> _Group:
    mask = torch.zeros(channels, dtype=torch.bool)
    mask[list(members)] = True
    return _Group([frame for frame, is_annotated in zip(frames, column, strict=True) if is_annotated], mask)
