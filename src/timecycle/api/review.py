"""Review labels: rank the frames to check, correct them, undo, audit the labels of any tool, and tune settings."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

from timecycle.errors import LabelError
from timecycle.formats.reading import outside_format
from timecycle.formats.video_labels import facts_of
from timecycle.inputs import (
    Annotations,
    ConfigLike,
    EncoderLike,
    VideoLike,
    as_config,
    as_encoder,
    as_labels,
    opened,
)
from timecycle.labels import Keypoints, Labels, Masks, Parts
from timecycle.progress import ProgressLike, bars_for
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import check_labels
from timecycle.review import audit as auditing
from timecycle.review import check as checking
from timecycle.review import corrections as correcting
from timecycle.review import tune as tuning
from timecycle.review.audit import Audit, AuditConfig
from timecycle.review.check import CheckResult
from timecycle.review.corrections import CorrectedInterval
from timecycle.review.tune import Candidate, TunedCandidate
from timecycle.runs.folder import is_run
from timecycle.runs.opened import Run

RunLike = Run | str | Path

_TRACKED = (Masks, Parts, Keypoints)  # kinds with objects that can be followed


def check(run: RunLike, *, count: int = 10, together: bool = False) -> CheckResult:
    """Rank the frames of a run to review first, and write report.html, review.png and review/ into its folder.

    run: what `propagate_to_folder` returned, or its folder.
    count: the largest number of frames to suggest.
    together: choose the frames as a set, for when you will annotate them all.

    The result has the frames as `queue`, the best first, each with `index`, `reason` and `gain`.
    """
    return checking.check(_as_run(run).folder, count=count, together=together)


def correct(
    run: RunLike,
    corrections: Annotations,
    *,
    object_id: int | None = None,
    exhaustive: bool = False,
    video: VideoLike | None = None,
    encoder: EncoderLike | None = None,
    progress: ProgressLike = None,
) -> list[CorrectedInterval]:
    """Annotate frames of a run again; only the frames that depend on them are propagated again.

    run: what `propagate_to_folder` returned, or its folder, which is changed.
    corrections: new labels by frame index: labels of the run's kind, label files, or arrays of object ids. A CSV of
        points, or a folder of files named by frame number, may be passed alone. An empty mask says that no object is
        on its frame.
    object_id: the object that a mask of one object shows; a new id adds an object.
    exhaustive: the corrections show every object: one that is not annotated there is absent.
    video, encoder: those of the run, for a run that was made from arrays or from an encoder that has no name.
    progress: True for a bar on standard error, or a function that is called with (done, total).

    Returns the frames that were propagated again, and those of them that changed. `undo` takes all of it back.
    """
    finished = _as_run(run)
    labels = _corrections(finished, corrections)
    if exhaustive:
        labels = {index: one.as_exhaustive() for index, one in labels.items()}
    with bars_for(progress) as bar:
        return correcting.correct(
            finished.folder,
            labels,
            video=video,
            encoder=None if encoder is None else as_encoder(encoder),
            object_id=object_id,
            progress=bar("correcting"),
        )


def undo(run: RunLike) -> list[int]:
    """Undo the last call of `correct`; the files become byte-identical again.

    run: what `propagate_to_folder` returned, or its folder, which is changed.

    Returns the indexes of the frames that had been corrected.
    """
    return correcting.undo(_as_run(run).folder)


def audit(
    video: VideoLike | Run,
    labels: Annotations | Run | None = None,
    *,
    kind: str | None = None,
    encoder: EncoderLike | None = None,
    config: ConfigLike = "fast",
    limits: AuditConfig | None = None,
    progress: ProgressLike = None,
) -> Audit:
    """Find errors in the masks, parts or keypoints of a whole video, made by any tool.

    video: the video; or a run alone, which says where its video is.
    labels: labels of many frames: by frame index, a folder of files named by frame number, a CSV of points, or a run.
    kind: the kind of the label files; by default keypoints for CSV files and masks for images.
    encoder: what `load_encoder` takes. None is the bundled one.
    config: settings, or the name of a preset.
    limits: the thresholds of the findings.
    progress: True for a bar on standard error, or a function that is called with (done, total).

    The result has `findings`, the strongest first: identity swaps, jumps, dropped objects, frozen labels, drift and
    shifted tracks, each with its frames and a `message`.
    """
    with ExitStack() as stack:
        if labels is None:
            run = video if isinstance(video, Run) else _run_alone(video)
            source, track = stack.enter_context(run.video), dict(run.labels)
        else:
            if isinstance(video, Run):
                video = video.video
            source = stack.enter_context(opened(video))
            if isinstance(labels, Run) or (isinstance(labels, str | Path) and is_run(labels)):
                track = dict(_as_run(labels).labels)
            else:
                track = as_labels(
                    labels,
                    source.numbers,
                    source.size.shape,
                    kind=kind,
                    video=facts_of(source),
                    every_frame=True,
                )
        other = next((one for one in track.values() if not isinstance(one, _TRACKED)), None)
        if other is not None:
            raise LabelError(
                f"{other.kind} cannot be audited", remedy=f"audit {', '.join(kind.kind for kind in _TRACKED)}"
            )
        bar = stack.enter_context(bars_for(progress))
        return auditing.audit(
            source,
            track,
            encoder=as_encoder(encoder),
            config=as_config(config),
            limits=limits,
            progress=bar("auditing"),
        )


def tune(
    video: VideoLike,
    labels: Annotations,
    *,
    encoders: Sequence[EncoderLike | None] = (None,),
    configs: Sequence[ConfigLike] = ("fast", "default", "best"),
    frames: int = 60,
    kind: str | None = None,
    progress: ProgressLike = None,
) -> list[TunedCandidate]:
    """Rank encoders and settings on a clip by their forward-backward cycle error; no ground truth is needed.

    video: a path, RGB arrays, or what `open_video` returns.
    labels: the annotation of a frame, as for `propagate`; of several frames the first is used.
    encoders: the encoders to try, as `load_encoder` takes them. None is the bundled one.
    configs: the settings to try, or names of presets.
    frames: propagate at most this many frames forward.
    kind: the kind of the label files; by default keypoints for CSV files and masks for images.
    progress: True for a bar on standard error, or a function that is called with (done, total).

    Returns the candidates, the best first, each with `name` and `cycle_error`.
    """
    with opened(video) as source, bars_for(progress) as bar:
        annotations = check_labels(
            source, as_labels(labels, source.numbers, source.size.shape, kind=kind, video=facts_of(source))
        )
        index = min(annotations)
        candidates = [
            Candidate(f"{encoder.name} {_config_name(config)}", encoder, as_config(config))
            for encoder in map(as_encoder, encoders)
            for config in configs
        ]
        show = bar("forward and back")
        return tuning.tune(source, index, annotations[index], candidates, frames=frames, progress=show)


def _as_run(run: RunLike) -> Run:
    return run if isinstance(run, Run) else Run(run)


def _run_alone(video: object) -> Run:
    if not isinstance(video, str | Path) or not is_run(video):
        raise LabelError("no labels were given", remedy="pass the labels too, or a finished run alone: audit(run)")
    return Run(video)


def _corrections(run: Run, corrections: Annotations) -> dict[int, Labels]:
    """Convert corrections to labels; a single one must say itself which frames it is of."""
    kind = run.record["labels"]["kind"]
    alone = isinstance(corrections, str | Path) and (
        kind == Keypoints.kind or Path(corrections).is_dir() or outside_format([corrections]) is not None
    )
    if not alone and not isinstance(corrections, Mapping):
        raise LabelError("a correction was given without its frame", remedy="pass {43: masks}: labels by frame index")
    numbers = [frame.number for frame in run.frames]
    # What colours mean is defined by the run, not by these files.
    return as_labels(corrections, numbers, kind=kind, together=False)


def _config_name(config: ConfigLike) -> str:
    """Name settings by their preset, or by what differs from the default."""
    if isinstance(config, str):
        return config
    default = PropagateConfig()
    changed = [
        f"{field.name}={getattr(config, field.name)}"
        for field in fields(config)
        if getattr(config, field.name) != getattr(default, field.name)
    ]
    return " ".join(changed) or "default"
