"""A short run with two annotated frames, so that a correction concerns a part of it only."""

from typing import Any

from oracle import OracleEncoder
from timecycle.labels import Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs.run import RunSpec
from timecycle.synthetic import World
from timecycle.video import open_video


def spec_of(world: World, **settings: Any) -> RunSpec:
    """The run of a small world, annotated on its first and last frames, with exact features."""
    return RunSpec(
        video=open_video(world.video(), fps=12.5),
        labels={index: Masks(world.mask(index)) for index in (0, 11)},
        encoder=OracleEncoder(world, stride_px=4),
        config=PropagateConfig(window_px=32, anchor_window_px=32),
        **settings,
    )
