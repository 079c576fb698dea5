"""Evidence for labels that come from anywhere: a person, another program, or carried elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from timecycle.labels import Labels
from timecycle.labels.soft import SoftMap
from timecycle.model.encoder import Encoder
from timecycle.propagation.ahead import encode_ahead, workers_for
from timecycle.propagation.confidence import Confidence
from timecycle.propagation.judge import Judge
from timecycle.propagation.memory import Memory, Remembered
from timecycle.propagation.neighbours import packed_like
from timecycle.propagation.propagate import space_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import Propagation
from timecycle.propagation.trail import Trail
from timecycle.video import Video


@dataclass(frozen=True, eq=False)
class Testimony:
    """What the video says about the labels of one frame."""

    index: int
    confidence: Confidence


def examine(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    trusted: Iterable[int],
    encoder: Encoder,
    config: PropagateConfig | None = None,
) -> Iterator[Testimony]:
    """The evidence for the labels of every labelled frame, held against the `trusted` frames and the frames before."""
    config = config or PropagateConfig()
    space = space_of(labels)
    state = Propagation(encoder, config, space)
    judge = Judge(
        space=space,
        labels={index: labels[index] for index in trusted},
        encode=partial(state.encode_frame, video),
        config=config,
    )
    memory = Memory(past_frames=max(config.past_frames, 1), anchor_frames=1)
    trail: Trail | None = None
    knows = torch.ones(space.channels, dtype=torch.bool)
    frames = (frame for frame in video.frames(min(labels)) if frame.index in labels)
    for encoded in encode_ahead(frames, state.encode, workers=workers_for(encoder)):
        index, features = encoded.frame.index, encoded.features
        grid = features.grid.rescaled(*encoded.frame.image.shape[:2])
        soft: SoftMap = space.to_soft(labels[index], grid)
        packing = packed_like(features.cells, (frame.packing for frame in memory))
        frame = Remembered(index, features.cells, soft.to(features.cells.device), knows, None, packing)
        trail = judge.trail_after(index, soft, trail)
        evidence = None if judge.is_drawn(index) else judge.evidence(frame, soft, trail, memory, features.grid)
        memory.remember(frame)
        confidence = judge.confidence(index, evidence, grid, knows=knows)
        if confidence is not None:
            yield Testimony(index, confidence)
