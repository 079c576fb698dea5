"""Label one video: propagate its annotations, as a stream or into a folder, and match two of its frames."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from jaxtyping import UInt8

from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.errors import OutputError
from timecycle.files import atomic_write, make_folder
from timecycle.formats.video_labels import facts_of
from timecycle.inputs import (
    Annotations,
    ArrayLike,
    ConfigLike,
    EncoderLike,
    VideoLike,
    as_config,
    as_encoder,
    as_labels,
    encoder_reference,
    opened,
)
from timecycle.labels import Labels, Masks
from timecycle.labels.names import check_names, names_of
from timecycle.progress import Bar, ProgressLike, bars_for
from timecycle.propagation import flow
from timecycle.propagation.flow import Correspondence
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import LabelledFrame, check_labels, count_steps, space_of
from timecycle.propagation.video import propagate as stream
from timecycle.render import Captioned, arrows, match_lines, save_picture, side_by_side
from timecycle.runs import run as runs
from timecycle.runs.measurements import MeasurementConfig, as_scale
from timecycle.runs.opened import Run
from timecycle.runs.outputs import LabelFiles
from timecycle.video import Frame, Video, open_video
from timecycle.video.frame import rgb_of

_CONFIDENCE = ConfidenceConfig()

LabelsT = TypeVar("LabelsT", bound=Labels)
ImageLike = Frame | UInt8[np.ndarray, "height width 3"] | str | Path


@overload
def propagate(
    video: VideoLike,
    labels: Mapping[int, LabelsT] | LabelsT,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    progress: ProgressLike = None,
) -> Iterator[LabelledFrame[LabelsT]]: ...


@overload
def propagate(
    video: VideoLike,
    labels: Mapping[int, ArrayLike] | ArrayLike,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    progress: ProgressLike = None,
) -> Iterator[LabelledFrame[Masks]]: ...


@overload
def propagate(
    video: VideoLike,
    labels: Annotations,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    progress: ProgressLike = None,
) -> Iterator[LabelledFrame]: ...


def propagate(
    video: VideoLike,
    labels: Annotations,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    progress: ProgressLike = None,
) -> Iterator[LabelledFrame]:
    """Propagate labels through a video; yield every frame with its labels, in order.

    video: a path, RGB arrays, or what `open_video` returns. A video given as a path is closed when the iterator ends.
    labels: labels by frame index (from 0), all of one kind: Masks, Parts, Keypoints, Texture or Coordinates, label
        files, or arrays of object ids. Labels without an index belong to frame 0.
    encoder: what `load_encoder` takes: a name, a path, a model, an encoder. None is the bundled one.
    config: settings, or the name of a preset: fast, default, best ...
    confidence: settings of the confidence estimate; with None, frames have no `confidence`, and it is faster.
    progress: True for a bar on standard error, or a function that is called with (done, total).

    Memory does not grow with the length of the video.
    """
    with opened(video) as source:  # closed here and opened again at the first frame: an unused iterator holds no file
        # Errors in the labels are raised by this call, not at the first frame.
        annotations = check_labels(source, as_labels(labels, source.numbers, source.size.shape, video=facts_of(source)))
        settings = as_config(config)
        steps = _Steps(count_steps(source, annotations, settings))
        frames = stream(
            source,
            annotations,
            encoder=as_encoder(encoder),
            config=settings,
            confidence=confidence,
            on_step=steps.step,
        )
    return _close_after(video, source, frames, steps, progress)


def propagate_to_folder(
    video: VideoLike,
    labels: Annotations,
    folder: str | Path,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    confidence: ConfidenceConfig | None = _CONFIDENCE,
    names: Mapping[int, str] | None = None,
    label_files: LabelFiles = "palette",
    scale: float | str | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    formats: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    progress: ProgressLike = None,
) -> Run:
    """Propagate labels through a video; write labels, confidence, an overlay video and a record of the run to a folder.

    video, labels, encoder, config, confidence: as for `propagate`.
    folder: the output folder, new or empty.
    names: names of objects in tables and pictures, by object id.
    label_files: "palette", or "grey" to write masks as grey PNGs whose values are the ids.
    scale: pixels per unit of length for measurements.csv: 4.2, or with the unit's name "4.2px/mm".
    pairs: names of two keypoints each, whose distances are measured.
    formats: other formats to write the labels in as well, to folder/exports: "coco", "cvat" ... (see `convert`).
    resume: resume an interrupted run in the folder; the output is byte-identical.
    overwrite: replace a run in the folder.
    progress: True for a bar on standard error, or a function that is called with (done, total).
    """
    with opened(video) as source, bars_for(progress) as bar:
        # Labels are checked before weights are loaded.
        annotations = check_labels(source, as_labels(labels, source.numbers, source.size.shape, video=facts_of(source)))
        spec = runs.RunSpec(
            video=source,
            labels=annotations,
            encoder=as_encoder(encoder),
            config=as_config(config),
            confidence=confidence,
            names=names_of(space_of(annotations).objects, {}, check_names(names or {})),
            label_files=label_files,
            measurements=MeasurementConfig(as_scale(scale), tuple((first, second) for first, second in pairs)),
            formats=tuple(formats),
            origin=_origin(video, encoder),
        )
        done = runs.run(spec, Path(folder), resume=resume, overwrite=overwrite, progress=bar("propagating"))
    return Run(done.folder)


def correspond(
    a: ImageLike,
    b: ImageLike,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
) -> Correspondence:
    """Compute dense correspondence from one image to another: flow in pixels, at the size of the first.

    a, b: frames of a video, image files, or RGB arrays (height, width, 3) of uint8.
    encoder: what `load_encoder` takes. None is the bundled one.
    config: settings, or the name of a preset. Only `image_size_px`, `square`, `anchor_window_px` and `window_shape`
        matter; by default all of `b` is searched.
    """
    settings = as_config(config, default=PropagateConfig(anchor_window_px=None))
    return flow.correspond(_pixels(a), _pixels(b), encoder=as_encoder(encoder), config=settings)


def _pixels(image: ImageLike) -> UInt8[np.ndarray, "height width 3"]:
    """Return the pixels of an image; of a file, its first frame."""
    if not isinstance(image, str | Path):
        return rgb_of(image)
    with open_video(image) as video:
        return video[0].image


def flow_to_folder(
    a: ImageLike,
    b: ImageLike,
    folder: str | Path,
    *,
    encoder: EncoderLike | None = None,
    config: ConfigLike | None = None,
    overwrite: bool = False,
) -> Correspondence:
    """Write the correspondence from `a` to `b` as flow.npy, warp.png, arrows.png and matches.png.

    flow.npy has all matches; arrows.png and matches.png show only those that are forward-backward consistent and move
    with their neighbours.
    """
    target = make_folder(Path(folder))
    for name in ("flow.npy", "warp.png", "arrows.png", "matches.png"):
        if (target / name).exists() and not overwrite:
            raise OutputError(
                f"{target / name} already exists", remedy="choose another folder with -o, or pass --overwrite"
            )
    encoder = as_encoder(encoder)
    forward = correspond(a, b, encoder=encoder, config=config)
    image_a, image_b = _pixels(a), _pixels(b)
    with atomic_write(target / "flow.npy") as file:
        np.save(file, forward.flow)
    warped = flow.warp(image_b, forward.flow)
    save_picture(
        target / "warp.png",
        side_by_side(
            [Captioned(image_a, "A"), Captioned(warped, "B warped to A by the flow"), Captioned(image_b, "B")]
        ),
    )
    consistent = flow.consistent(forward, correspond(b, a, encoder=encoder, config=config))
    save_picture(target / "arrows.png", arrows(image_a, forward.flow, reliable=flow.at_pixels(consistent, forward)))
    save_picture(target / "matches.png", match_lines(image_a, image_b, forward.start, forward.end, reliable=consistent))
    return forward


def _origin(video: VideoLike, encoder: EncoderLike | None) -> runs.Origin | None:
    """Record where video and encoder come from, so that `correct` can load them; None for arrays, custom encoders."""
    name, path, fps = encoder_reference(encoder), video, None
    if isinstance(video, Video):
        path, fps = video.name, video.assumed_fps
        if not Path(path).exists():
            return None
    if not isinstance(path, str | Path) or name is None:
        return None
    return runs.Origin(video=str(Path(path).absolute()), fps=fps, encoder=name, device="auto", precision="fp32")


class _Steps:
    """Counts the steps of a stream; the bar is there once the stream has begun."""

    def __init__(self, total: int) -> None:
        self.done, self.total = 0, total
        self.bar: Bar | None = None

    def step(self) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar(self.done, self.total)


def _close_after(
    video: VideoLike, source: Video, frames: Iterator[LabelledFrame], steps: _Steps, progress: ProgressLike
) -> Iterator[LabelledFrame]:
    """Yield the frames; close a source that was opened for them when they end, fail or are abandoned."""
    try:
        with bars_for(progress) as bar:
            steps.bar = bar("propagating")
            yield from frames
    finally:
        if source is not video:
            source.close()
