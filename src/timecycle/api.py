"""The verbs: what the command line offers, for Python."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from timecycle import runs
from timecycle.errors import OutputError
from timecycle.files import atomic_write, make_folder
from timecycle.labels import Labels
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation import flow
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.flow import Correspondence
from timecycle.propagation.propagate import LabelledFrame, check_labels
from timecycle.propagation.propagate import propagate as stream
from timecycle.propagation.settings import PropagateConfig
from timecycle.render import Captioned, arrows, match_lines, save_picture, side_by_side
from timecycle.video import Frame, Video, open_video

_TRUST = TrustConfig()

VideoLike = Video | str | Path | np.ndarray
ImageLike = Frame | UInt8[np.ndarray, "height width 3"]


def propagate(
    video: VideoLike,
    labels: Mapping[int, Labels],
    *,
    encoder: Encoder | None = None,
    config: PropagateConfig | None = None,
    trust: TrustConfig | None = _TRUST,
) -> Iterator[LabelledFrame]:
    """Every frame of the video with its labels, in order, as soon as they are known.

    `labels` maps frame numbers (from 0) to labels of one kind: Masks, Parts, Keypoints, Texture or Coordinates.
    Every frame says how far to trust it (`confidence`) unless `trust` is None. Memory does not grow with the video.
    """
    video = _video(video)
    check_labels(video, labels)  # now, not when the first frame is asked for
    return stream(video, labels, encoder=encoder or load_encoder(), config=config, trust=trust)


def propagate_to_folder(
    video: VideoLike,
    labels: Mapping[int, Labels],
    folder: str | Path,
    *,
    encoder: Encoder | None = None,
    config: PropagateConfig | None = None,
    trust: TrustConfig | None = _TRUST,
    resume: bool = False,
    overwrite: bool = False,
    progress: runs.Progress | None = None,
) -> runs.Finished:
    """Carry the labels through the video and write labels, their confidence, a film and a record of the run."""
    task = runs.Task(
        video=_video(video),
        labels=labels,
        encoder=encoder or load_encoder(),
        config=config or PropagateConfig(),
        trust=trust,
        origin=_origin(video) if encoder is None else None,
    )
    return runs.run(task, Path(folder), resume=resume, overwrite=overwrite, progress=progress)


def correspond(
    a: ImageLike,
    b: ImageLike,
    *,
    encoder: Encoder | None = None,
    config: PropagateConfig | None = None,
) -> Correspondence:
    """Where everything in image `a` is found in image `b`: dense flow in pixels, at the size of `a`.

    Of the settings only the image's size, the window for labelled frames and its shape matter; without settings the
    whole of `b` is searched.
    """
    config = config or PropagateConfig(anchor_window_px=None)
    return flow.correspond(_pixels(a), _pixels(b), encoder=encoder or load_encoder(), config=config)


def flow_to_folder(
    a: ImageLike,
    b: ImageLike,
    folder: str | Path,
    *,
    encoder: Encoder | None = None,
    config: PropagateConfig | None = None,
    overwrite: bool = False,
) -> Correspondence:
    """Write flow.npy, warp.png, arrows.png and matches.png of the correspondence from `a` to `b`."""
    target = make_folder(Path(folder))
    for name in ("flow.npy", "warp.png", "arrows.png", "matches.png"):
        if (target / name).exists() and not overwrite:
            raise OutputError(
                f"{target / name} is there already", remedy="choose another folder with -o, or pass --overwrite"
            )
    found = correspond(a, b, encoder=encoder, config=config)
    image_a, image_b = _pixels(a), _pixels(b)
    with atomic_write(target / "flow.npy") as file:
        np.save(file, found.flow)
    warped = flow.warp(image_b, found.flow)
    save_picture(
        target / "warp.png",
        side_by_side(
            [Captioned(image_a, "A"), Captioned(warped, "B warped to A by the flow"), Captioned(image_b, "B")]
        ),
    )
    save_picture(target / "arrows.png", arrows(image_a, found.flow))
    save_picture(target / "matches.png", match_lines(image_a, image_b, found.start, found.end))
    return found


def _origin(video: VideoLike) -> runs.Origin | None:
    """So that `correct` finds the video again; an array cannot be found."""
    if not isinstance(video, str | Path):
        return None
    return runs.Origin(
        video=str(Path(video).absolute()), fps=None, encoder=DEFAULT_ENCODER, device="auto", precision="fp32"
    )


def _video(video: VideoLike) -> Video:
    return video if isinstance(video, Video) else open_video(video)


def _pixels(image: ImageLike) -> UInt8[np.ndarray, "height width 3"]:
    return image.image if isinstance(image, Frame) else image
