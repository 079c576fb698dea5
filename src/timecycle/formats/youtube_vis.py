"""YouTube-VIS JSON of one video: one annotation per object with a segmentation for every frame, or null."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import LabelError
from timecycle.files import atomic_text, frame_number
from timecycle.formats import rle
from timecycle.formats.format import Format
from timecycle.formats.json_file import (
    box_of,
    image_size,
    is_score,
    masks_of,
    object_ids,
    object_names,
    read_json,
    single_video,
    starts_with_tables,
    video_facts,
    whole,
    write_categories,
)
from timecycle.formats.video_labels import MAX_FRAMES, Known, LazyLabels, VideoFacts, VideoLabels, ids_of, size_of
from timecycle.labels import Masks

_FRAMES = "video_frames"  # our own key: the number of frames of the video


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read the masks of all frames in `file_names`; each is decoded when it is asked for."""
    tables = read_json(path, "videos", "annotations", "categories")
    row = single_video(path, tables["videos"])
    if not row:
        raise LabelError(f"{path} has no video", remedy="export the labels again")
    size = image_size(row, f"{path}: the video")
    facts = video_facts(path, row, size)
    listed = row.get("file_names")
    count = len(listed) if isinstance(listed, list) else facts.frames or 0
    # `length` counts the frames that the file lists, which may be every fifth of the video or the annotated ones.
    frames = whole(row, _FRAMES, f"{path}: the video", most=MAX_FRAMES) if _FRAMES in row else None
    for annotation in tables["annotations"]:
        segmentations = annotation.get("segmentations")
        if not isinstance(segmentations, list) or len(segmentations) != count:
            raise LabelError(
                f"annotation {str(annotation.get('id'))[:40]} of {path} does not have {count} segmentations",
                remedy="export the labels again: there must be one for every frame, or null",
            )
    ids = object_ids(path, [one.get("id") for one in tables["annotations"]])
    if len(ids) != len(tables["annotations"]):
        raise LabelError(f"{path} has two annotations of one id", remedy="give every object one annotation")
    tracks = {ids[one.get("id")]: one for one in tables["annotations"]}
    positions = _positions(path, listed, count, video)

    def decode(index: int) -> Masks:
        there = {identity: one["segmentations"][positions[index]] for identity, one in tracks.items()}
        regions = [
            (identity, partial(rle.decode, segmentation, size, f"object {identity} on frame {index} of {path}"))
            for identity, segmentation in there.items()
            if segmentation is not None
        ]
        return masks_of(size, regions, f"frame {index} of {path}")

    scores = {str(identity): one["score"] for identity, one in tracks.items() if is_score(one.get("score"))}
    known = (
        {index: {name: Known(float(score)) for name, score in scores.items()} for index in positions} if scores else {}
    )
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(list(positions), decode),
        video=replace(facts, frames=frames),
        names=object_names(path, tables["categories"], {i: one.get("category_id") for i, one in tracks.items()}),
        known=known,
    )


def _positions(path: Path, listed: Any, count: int, video: VideoFacts) -> dict[int, int]:
    """Return the position in the lists of segmentations by frame index."""
    if not isinstance(listed, list):
        return {i: i for i in range(count)}
    numbers = [frame_number(Path(str(name))) for name in listed]
    if None in numbers or len(set(numbers)) != len(numbers):
        raise LabelError(f"{path} has file names without frame numbers of their own", remedy="name images by frame")
    return {video.index(number): i for i, number in enumerate(numbers) if number is not None}


def write(labels: VideoLabels, path: Path) -> None:
    """Write all objects; their compressed masks are held in memory until the last frame is read."""
    size = size_of(labels)
    count = len(labels.labels)
    tracks: dict[int, dict[str, list[Any]]] = {}
    scores: dict[int, list[float]] = {}
    for position, (index, one) in enumerate(labels.labels.items()):
        ids = ids_of(one)
        for identity in np.unique(ids[ids > 0]).tolist():
            region = ids == identity
            track = tracks.setdefault(identity, {name: [None] * count for name in ("segmentations", "bboxes", "areas")})
            track["segmentations"][position] = {"size": list(ids.shape), "counts": rle.encode(region)}
            track["bboxes"][position] = box_of(region)
            track["areas"][position] = int(region.sum())
            confidence = labels.known.get(index, {}).get(str(identity), Known()).confidence
            if confidence is not None:
                scores.setdefault(identity, []).append(confidence)
    video = {
        "id": 1,
        "name": labels.video.name,
        "height": size[0],
        "width": size[1],
        "length": count,
        _FRAMES: labels.frames,
        "file_names": [f"{labels.video.number(index):05d}.png" for index in labels.labels],
        **({"fps": labels.video.fps} if labels.video.fps else {}),
    }
    with atomic_text(path) as text:
        text.write('{"info": {"description": "written by timecycle"},\n"videos": [' + json.dumps(video) + "],\n")
        text.write('"annotations": [')
        for i, (identity, track) in enumerate(sorted(tracks.items())):
            row: dict[str, Any] = {"id": identity, "video_id": 1, "category_id": identity, "iscrowd": 0}
            if identity in scores:
                row["score"] = round(sum(scores[identity]) / len(scores[identity]), 4)
            text.write((",\n" if i else "\n") + json.dumps(row | {"height": size[0], "width": size[1]} | track))
        categories = write_categories(labels, sorted(tracks))
        text.write('],\n"categories": ' + json.dumps(categories, ensure_ascii=False) + "}\n")


FORMAT = Format(
    name="ytvis",
    title="YouTube-VIS JSON",
    suffixes=(".json",),
    kinds=("masks", "parts"),
    loses="confidence on each frame (one score per object is kept) and states",
    read=read,
    write=write,
    recognises=lambda path: starts_with_tables(path, "videos", "annotations", "segmentations"),
    extra="coco",
    module="pycocotools",
)
