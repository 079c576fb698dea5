"""The verbs: what the command line offers, for Python."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from jaxtyping import UInt8

from timecycle import runs
from timecycle.errors import OutputError
from timecycle.files import atomic_write, make_folder
from timecycle.inputs import (
    Annotations,
    ArrayLike,
    ConfigLike,
    EncoderLike,
    as_config,
    as_encoder,
    as_labels,
    encoder_word,
)
from timecycle.labels import Labels, Masks
from timecycle.labels.names import check_names, names_of
from timecycle.outputs import LabelFiles
from timecycle.propagation import flow
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.flow import Correspondence
from timecycle.propagation.propagate import LabelledFrame, check_labels, space_of
from timecycle.propagation.propagate import propagate as stream
from timecycle.propagation.settings import PropagateConfig
from timecycle.render import Captioned, arrows, match_lines, save_picture, side_by_side
from timecycle.video import Frame, Video, open_video
from timecycle.video.frame import rgb_of

_TRUST = TrustConfig()

LabelsT = TypeVar("LabelsT", bound=Labels)
VideoLike = Video | str | Path | np.ndarray
ImageLike = Frame | UInt8[np.ndarray, "height width 3"]


@overload
def propagate(
    video: VideoLike,
    labels: Mapping[int, LabelsT] | LabelsT,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    trust: TrustConfig | None = _TRUST,
) -> Iterator[LabelledFrame[LabelsT]]: ...


@overload
def propagate(
    video: VideoLike,
    labels: Mapping[int, ArrayLike] | ArrayLike,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    trust: TrustConfig | None = _TRUST,
) -> Iterator[LabelledFrame[Masks]]: ...


@overload
def propagate(
    video: VideoLike,
    labels: Annotations,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    trust: TrustConfig | None = _TRUST,
) -> Iterator[LabelledFrame]: ...


def propagate(
    video: VideoLike,
    labels: Annotations,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    trust: TrustConfig | None = _TRUST,
) -> Iterator[LabelledFrame]:
    """Every frame of the video with its labels, in order, as soon as they are known.

    `labels` maps frame numbers (from 0) to labels of one kind: Masks, Parts, Keypoints, Texture or Coordinates; files
    of labels and arrays of object ids are taken for what they hold. `encoder` may be a name or a path, `config` the
    name of a preset. Every frame says how far to trust it (`confidence`) unless `trust` is None. Memory does not grow
    with the video, and a video that is given as a path is closed with the stream.
    """
    with _opened(video) as source:  # opens again with the first frame: a stream that is never begun holds nothing open
        # Now, not when the first frame is asked for.
        annotated = check_labels(source, as_labels(labels, source.numbers, source.size.shape))
        frames = stream(source, annotated, encoder=as_encoder(encoder), config=as_config(config), trust=trust)
    return _closing(video, source, frames)


def propagate_to_folder(
    video: VideoLike,
    labels: Annotations,
    folder: str | Path,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    trust: TrustConfig | None = _TRUST,
    names: Mapping[int, str] | None = None,
    label_files: LabelFiles = "palette",
    resume: bool = False,
    overwrite: bool = False,
    progress: runs.Progress | None = None,
) -> runs.Finished:
    """Propagate the labels through the video; write them, their confidence, an overlay video and a record of the run.

    `names` says what objects are called, by id, in tables and pictures. `label_files` "grey" writes masks as plain grey
    PNGs whose values are the ids.
    """
    with _opened(video) as source:
        annotated = check_labels(
            source, as_labels(labels, source.numbers, source.size.shape)
        )  # before weights are loaded
        task = runs.Task(
            video=source,
            labels=annotated,
            encoder=as_encoder(encoder),
            config=as_config(config),
            trust=trust,
            names=names_of(space_of(annotated).objects, {}, check_names(names or {})),
            label_files=label_files,
            origin=_origin(video, encoder),
        )
        return runs.run(task, Path(folder), resume=resume, overwrite=overwrite, progress=progress)


def correspond(
    a: ImageLike,
    b: ImageLike,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
) -> Correspondence:
    """Where everything in image `a` is found in image `b`: dense flow in pixels, at the size of `a`.

    Of the settings only the image's size, the window for labelled frames and its shape matter; without settings the
    whole of `b` is searched.
    """
    settings = as_config(config, default=PropagateConfig(anchor_window_px=None))
    return flow.correspond(_pixels(a), _pixels(b), encoder=as_encoder(encoder), config=settings)


def flow_to_folder(
    a: ImageLike,
    b: ImageLike,
    folder: str | Path,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    overwrite: bool = False,
) -> Correspondence:
    """Write flow.npy, warp.png, arrows.png and matches.png of the correspondence from `a` to `b`.

    The last two show only matches that are forward-backward consistent and move with those around them; flow.npy has
    all.
    """
    target = make_folder(Path(folder))
    for name in ("flow.npy", "warp.png", "arrows.png", "matches.png"):
        if (target / name).exists() and not overwrite:
            raise OutputError(
                f"{target / name} is there already", remedy="choose another folder with -o, or pass --overwrite"
            )
    encoder = as_encoder(encoder)
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
    sure = flow.consistent(found, correspond(b, a, encoder=encoder, config=config))
    save_picture(target / "arrows.png", arrows(image_a, found.flow, sure=flow.at_pixels(sure, found)))
    save_picture(target / "matches.png", match_lines(image_a, image_b, found.start, found.end, sure=sure))
    return found


def _origin(video: VideoLike, encoder: EncoderLike | None) -> runs.Origin | None:
    """So that `correct` finds the video again; an array or an encoder of the caller's own cannot be found."""
    word, path, fps = encoder_word(encoder), video, None
    if isinstance(video, Video):
        path, fps = video.name, video.given_fps
        if not Path(path).exists():
            return None
    if not isinstance(path, str | Path) or word is None:
        return None
    return runs.Origin(video=str(Path(path).absolute()), fps=fps, encoder=word, device="auto", precision="fp32")


@contextmanager
def _opened(video: VideoLike) -> Iterator[Video]:
    """The video; what is opened here is closed here, what was passed open stays open."""
    if isinstance(video, Video):
        yield video
        return
    with open_video(video) as source:
        yield source


def _closing(video: VideoLike, source: Video, frames: Iterator[LabelledFrame]) -> Iterator[LabelledFrame]:
    """The frames; a source that was opened for them is closed when they end, fail or are not wanted any more."""
    try:
        yield from frames
    finally:
        if source is not video:
            source.close()


def _pixels(image: ImageLike) -> UInt8[np.ndarray, "height width 3"]:
    return rgb_of(image)
