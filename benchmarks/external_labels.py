"""Confidence of labels that come from elsewhere: from a person, or from another program."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch

from timecycle.confidence.estimator import ConfidenceEstimator
from timecycle.confidence.fusion import Confidence
from timecycle.confidence.history import History
from timecycle.labels import Labels
from timecycle.labels.label_map import LabelMap
from timecycle.matching.neighbours import packed_like
from timecycle.model.encoder import Encoder
from timecycle.propagation.frame_encoder import FrameEncoder
from timecycle.propagation.memory import Memory, MemoryFrame, memory_signals
from timecycle.propagation.prefetch import encoding_workers, prefetch_features
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import space_of
from timecycle.video import Video


def score_labels(
    video: Video,
    labels: Mapping[int, Labels],
    *,
    trusted: Iterable[int],
    encoder: Encoder,
    config: PropagateConfig | None = None,
) -> Iterator[tuple[int, Confidence]]:
    """Yield index and confidence of every labelled frame, compared with the `trusted` frames and the frames before."""
    config = config or PropagateConfig()
    space = space_of(labels)
    frame_encoder = FrameEncoder(encoder, config)
    estimator = ConfidenceEstimator(
        space=space,
        labels={index: labels[index] for index in trusted},
        encode=partial(frame_encoder.encode_frame, video),
    )
    memory = Memory(past_frames=max(config.past_frames, 1), anchor_frames=1)
    history: History | None = None
    known = torch.ones(space.channels, dtype=torch.bool)
    frames = (frame for frame in video.frames(min(labels)) if frame.index in labels)
    for encoded in prefetch_features(frames, frame_encoder.encode, workers=encoding_workers(encoder)):
        index, features = encoded.frame.index, encoded.features
        grid = features.grid.rescaled(*encoded.frame.image.shape[:2])
        label_map = LabelMap(space.encode(labels[index], grid), known, grid)
        packing = packed_like(features.cells, (frame.packing for frame in memory))
        on_device = LabelMap(label_map.values.to(features.cells.device), known, grid)
        frame = MemoryFrame(index, features, on_device, None, packing)
        history = estimator.history_after(index, label_map, history)
        signals = None
        if not estimator.is_fully_annotated(index):
            signals = memory_signals(
                estimator,
                frame,
                label_map,
                memory=memory,
                history=history,
                config=config,
                image=encoded.frame.image,
            )
        memory.add(frame)
        confidence = estimator.confidence(index, signals, grid, known=known)
        if confidence is not None:
            yield index, confidence
