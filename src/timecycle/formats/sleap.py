"""SLEAP's .slp files, through sleap-io: keypoints, and masks since version 1.5 of the format."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import LabelError
from timecycle.extras import import_extra
from timecycle.files import atomic_write
from timecycle.formats.format import Format
from timecycle.formats.hdf5_file import check_hdf5
from timecycle.formats.json_file import default_name, masks_of, object_ids
from timecycle.formats.skeletons import Skeletons, join_instances
from timecycle.formats.video_labels import (
    MAX_FRAMES,
    Known,
    LazyLabels,
    VideoFacts,
    VideoLabels,
    ids_of,
    points_of,
    usable_names,
)
from timecycle.labels import Keypoints, Masks

_EXTRA = "sleap"
_REMEDY = "save it again with SLEAP or sleap-io"


# Reading


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read keypoints, or masks where there are no keypoints; masks are decoded when they are asked for."""
    sleap_io = import_extra("sleap_io", extra=_EXTRA)
    check_hdf5(path, remedy=_REMEDY)
    try:
        project = sleap_io.load_slp(str(path), open_videos=False)
        return _read(path, project)
    except LabelError:
        raise
    except Exception as error:  # damaged files raise nearly anything
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error


def _read(path: Path, project: Any) -> VideoLabels:
    if len(project.videos) > 1:
        raise LabelError(f"{path} has {len(project.videos)} videos", remedy="save one file for each video")
    shape = project.videos[0].shape if project.videos else None
    facts = VideoFacts(
        name=str(path),
        frames=int(shape[0]) if shape and shape[0] else None,
        size=(int(shape[1]), int(shape[2])) if shape and shape[1] and shape[2] else None,
    )
    frames = {int(frame.frame_idx): frame for frame in project.labeled_frames}
    if not all(0 <= index < MAX_FRAMES for index in frames):
        raise LabelError(f"{path} has labels of the frame {min(frames)} or {max(frames)}", remedy=_REMEDY)
    if any(frame.instances for frame in frames.values()):
        # A track is an individual; without tracks, individuals are told apart by their order on a frame.
        several = any(len(frame.instances) > 1 for frame in frames.values()) or len(project.tracks) > 1
        points = {index: _points(frame.instances, several=several) for index, frame in sorted(frames.items())}
        return VideoLabels(kind=Keypoints, labels=points, video=facts)
    return _masks(path, frames, facts)


def _points(instances: Iterable[Any], *, several: bool) -> Keypoints:
    found: dict[str, Keypoints] = {}
    # An annotation by hand replaces the prediction of the same individual.
    for i, one in enumerate(sorted(instances, key=_is_predicted), 1):
        name = one.track.name if one.track is not None else str(i)
        if name in found:
            continue
        xy = np.asarray(one.points["xy"], np.float32).reshape(-1, 2)
        there = np.isfinite(xy).all(axis=1)
        scores = np.asarray(one.points["score"], np.float32) if _is_predicted(one) else None
        names = tuple(str(node) for node in one.skeleton.node_names)
        found[name] = Keypoints(names, xy, np.asarray(one.points["visible"], bool) & there, scores)
    return join_instances(found, several=several)


def _is_predicted(one: Any) -> bool:
    return type(one).__name__.startswith("Predicted")


def _track_name(mask: Any) -> str:
    return str(mask.name) or (str(mask.track.name) if mask.track is not None else "")


def _masks(path: Path, frames: dict[int, Any], facts: VideoFacts) -> VideoLabels:
    listed = [mask for frame in frames.values() for mask in frame.masks]
    if not listed:
        raise LabelError(f"{path} has neither keypoints nor masks", remedy=_REMEDY)
    keys = {_track_name(mask) for mask in listed}
    numbers = {key: int(key) if key.isdecimal() and len(key) < 6 else key for key in sorted(keys)}
    ids = object_ids(path, numbers.values())
    sizes = {(int(mask.height), int(mask.width)) for mask in listed}
    if len(sizes) > 1 or any(tuple(mask.scale) != (1, 1) or tuple(mask.offset) != (0, 0) for mask in listed):
        raise LabelError(
            f"{path} has masks of other sizes than the frames", remedy="save masks at the size of the video"
        )
    size = sizes.pop()

    def decode(index: int) -> Masks:
        regions = ((ids[numbers[_track_name(mask)]], partial(_region, mask, size)) for mask in frames[index].masks)
        return masks_of(size, regions, f"frame {index} of {path}")

    named = {str(ids[numbers[_track_name(mask)]]): str(mask.track.name) for mask in listed if mask.track is not None}
    known = {
        index: {str(ids[numbers[_track_name(mask)]]): _known(mask) for mask in frame.masks}
        for index, frame in sorted(frames.items())
    }
    names = {i: name for i, name in named.items() if name not in (i, default_name(i))}
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(list(frames), decode),
        video=VideoFacts(name=facts.name, frames=facts.frames, size=facts.size or size),
        names=usable_names(names, path),
        known=known,
    )


def _known(mask: Any) -> Known:
    return Known(float(mask.score)) if _is_predicted(mask) else Known(None, "", annotated=True)


def _region(mask: Any, size: tuple[int, int]) -> np.ndarray:
    counts = np.asarray(mask.rle_counts, np.int64)
    if counts.min(initial=0) < 0 or counts.sum() != size[0] * size[1]:
        raise LabelError("a mask does not fill its frame", remedy=_REMEDY)
    return np.asarray(mask.data, bool)


# Writing


def write(labels: VideoLabels, path: Path) -> None:
    """Write predictions where there is a confidence, otherwise annotations by hand; held in memory by sleap-io."""
    sleap_io = import_extra("sleap_io", extra=_EXTRA)
    height, width = labels.video.size or (0, 0)
    shape = {"shape": (labels.frames, height, width, 3)} if labels.video.size else {}
    video = sleap_io.Video(filename=labels.video.name, backend_metadata=shape, open_backend=False)
    if issubclass(labels.kind, Keypoints):
        frames, skeletons = _instances(labels, video, sleap_io)
    else:
        frames, skeletons = _segmentations(labels, video, sleap_io), []
    project = sleap_io.Labels(labeled_frames=frames, videos=[video], skeletons=skeletons)
    with atomic_write(path) as file:
        sleap_io.save_slp(project, file.name, embed=False, verbose=False)


def _instances(labels: VideoLabels, video: Any, sleap_io: Any) -> tuple[list[Any], list[Any]]:
    skeletons = Skeletons.of(labels.labels)
    skeleton = sleap_io.Skeleton(nodes=[sleap_io.Node(name) for name in skeletons.parts], name="skeleton")
    tracks = {name: sleap_io.Track(name or "1") for name in skeletons.individuals}
    frames = []
    for index, one in labels.labels.items():
        instances = []
        for name, points in skeletons.split(points_of(one)).items():
            xy = points.xy.astype(np.float64)
            if points.confidence is None:
                instance = sleap_io.Instance.from_numpy(xy, skeleton=skeleton, track=tracks[name])
            else:
                scores = np.nan_to_num(points.confidence.astype(np.float64))
                instance = sleap_io.PredictedInstance.from_numpy(
                    xy, skeleton=skeleton, point_scores=scores, score=float(scores.mean()), track=tracks[name]
                )
            instance.points["visible"] = points.visible
            instances.append(instance)
        frames.append(sleap_io.LabeledFrame(video=video, frame_idx=index, instances=instances))
    return frames, [skeleton]


def _segmentations(labels: VideoLabels, video: Any, sleap_io: Any) -> list[Any]:
    tracks: dict[int, Any] = {}
    frames = []
    for index, one in labels.labels.items():
        ids, masks = ids_of(one), []
        for identity in np.unique(ids[ids > 0]).tolist():
            name = labels.names.get(str(identity), default_name(identity))
            track = tracks.setdefault(identity, sleap_io.Track(name))
            known = labels.known.get(index, {}).get(str(identity), Known())
            kind: Any = sleap_io.UserSegmentationMask
            score = {}
            if known.confidence is not None and not known.annotated:
                kind, score = sleap_io.PredictedSegmentationMask, {"score": known.confidence}
            masks.append(kind.from_numpy(ids == identity, name=str(identity), track=track, **score))
        frames.append(sleap_io.LabeledFrame(video=video, frame_idx=index, masks=masks))
    return frames


FORMAT = Format(
    name="sleap",
    title="SLEAP .slp",
    suffixes=(".slp",),
    kinds=("masks", "parts", "keypoints"),
    loses="the rate; the confidence of annotated masks; states",
    read=read,
    write=write,
    recognises=lambda path: path.suffix.lower() == ".slp",
    extra=_EXTRA,
    module="sleap_io",
)
