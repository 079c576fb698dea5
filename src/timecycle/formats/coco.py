"""COCO JSON of one video: images and annotations, with the tracks and videos of CocoVID.

Every object is a category of its own, named after the object. `frame_id` is the index of a frame; without it the number
in `file_name` names the frame.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.errors import LabelError
from timecycle.files import atomic_text, frame_number
from timecycle.formats import rle
from timecycle.formats.format import Format
from timecycle.formats.json_file import (
    Table,
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
from timecycle.formats.skeletons import Skeletons, join_instances
from timecycle.formats.video_labels import Known, LazyLabels, VideoFacts, VideoLabels, ids_of, points_of, size_of
from timecycle.labels import Keypoints, Labels, Masks

_TRACK_KEYS = ("track_id", "instance_id")
_REMEDY = "export the labels again"


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read masks (run lengths or polygons) or keypoints; masks are decoded when they are asked for."""
    tables = read_json(path, "images", "annotations", "categories", "videos")
    if not tables["images"]:
        raise LabelError(f"{path} has no images", remedy=_REMEDY)
    images, size = _images(path, tables["images"], video)
    facts = video_facts(path, single_video(path, tables["videos"]), size)
    by_frame: dict[int, list[tuple[str, Mapping[str, Any]]]] = {index: [] for index in sorted(images.values())}
    for i, annotation in enumerate(tables["annotations"]):
        place = f"annotation {annotation.get('id', i)} of {path}"
        if annotation.get("image_id") not in images:
            raise LabelError(f"{place} is of an image that the file lacks", remedy=_REMEDY)
        by_frame[images[annotation["image_id"]]].append((place, annotation))
    if any("keypoints" in annotation for annotation in tables["annotations"]):
        return _keypoints(by_frame, tables["categories"], facts)
    return _masks(path, by_frame, tables["categories"], facts, size)


def _images(path: Path, images: Table, video: VideoFacts) -> tuple[dict[Any, int], tuple[int, int]]:
    """Return the frame index of every image by its id, and the size of all images."""
    indices: dict[Any, int] = {}
    used, sizes = set(), set()
    for image in images:
        place = f"image {str(image.get('id'))[:40]} of {path}"
        sizes.add(image_size(image, place))
        if "frame_id" in image:
            index = whole(image, "frame_id", place, most=10**9)
        else:
            digits = frame_number(Path(str(image.get("file_name", ""))))
            if digits is None:
                raise LabelError(f"{place} has no frame number in its file name", remedy="name images by frame number")
            index = video.index(digits)
        if index in used or image.get("id") in indices:
            raise LabelError(f"{place} has the frame or the id of another image", remedy="give one image per frame")
        indices[image.get("id")] = index
        used.add(index)
    if len(sizes) > 1:
        raise LabelError(f"{path} has images of {len(sizes)} sizes", remedy="give the images of one video")
    return indices, sizes.pop()


def _track(annotation: Mapping[str, Any]) -> Any:
    """Return what tells an object from others over time: its track, or else its category."""
    track, category = _track_id(annotation), annotation.get("category_id")
    return category if track is None and isinstance(category, int | str) else track


def _track_id(annotation: Mapping[str, Any]) -> int | str | None:
    attributes = annotation.get("attributes")
    for source in (annotation, attributes if isinstance(attributes, dict) else {}):
        for key in _TRACK_KEYS:
            track = source.get(key)
            if isinstance(track, int | str):
                return track
    return None


def _check_told_apart(of_frame: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse two masks of one category on a frame without track ids; masks of one track are parts of its object."""
    seen: dict[Any, bool] = {}  # whether the track id tells an object apart
    for place, one in of_frame:
        track, has_id = _track(one), _track_id(one) is not None
        if track in seen and not (has_id and seen[track]):
            raise _second_object(place)
        seen[track] = has_id


def _second_object(place: str) -> LabelError:
    return LabelError(
        f"{place} is a second object of its category or track on its frame",
        remedy="export with a track_id for every annotation",
    )


def _masks(
    path: Path,
    by_frame: Mapping[int, list[tuple[str, Mapping[str, Any]]]],
    categories: Table,
    facts: VideoFacts,
    size: tuple[int, int],
) -> VideoLabels:
    for of_frame in by_frame.values():
        _check_told_apart(of_frame)
    annotations = [one for of_frame in by_frame.values() for _, one in of_frame]
    ids = object_ids(path, map(_track, annotations))
    category_of = {ids[_track(one)]: one.get("category_id") for one in annotations}

    def decode(index: int) -> Masks:
        regions = (
            (ids[_track(one)], partial(rle.decode, one.get("segmentation"), size, place))
            for place, one in by_frame[index]
        )
        return masks_of(size, regions, f"frame {index} of {path}")

    known = {index: {str(ids[_track(one)]): _known(one) for _, one in of_frame} for index, of_frame in by_frame.items()}
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(list(by_frame), decode),
        video=facts,
        names=object_names(path, categories, category_of),
        known=known,
    )


def _known(annotation: Mapping[str, Any]) -> Known:
    score, attributes = annotation.get("score"), annotation.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    state = "occluded" if attributes.get("occluded") is True else str(attributes.get("state", ""))[:20]
    return Known(float(score) if is_score(score) else None, state, attributes.get("keyframe") is True)


def _keypoints(
    by_frame: Mapping[int, list[tuple[str, Mapping[str, Any]]]], categories: Table, facts: VideoFacts
) -> VideoLabels:
    names = {row.get("id"): row.get("keypoints") for row in categories}
    labels: dict[int, Labels] = {}
    tracks = {_track(one) for of_frame in by_frame.values() for _, one in of_frame}
    several = len(tracks) > 1 or any(isinstance(track, str) for track in tracks)
    for index, annotations in by_frame.items():
        instances: dict[str, Keypoints] = {}
        for place, one in annotations:
            points, of_category = one.get("keypoints"), names.get(one.get("category_id"))
            if not isinstance(of_category, list) or not all(isinstance(name, str) for name in of_category):
                raise LabelError(f"{place} is of a category without names of keypoints", remedy=_REMEDY)
            if not _is_points(points, len(of_category)):
                raise LabelError(f"{place} does not have x, y and visibility of its keypoints", remedy=_REMEDY)
            values = np.array(points, np.float32).reshape(-1, 3)
            xy = np.where(values[:, 2:] > 0, values[:, :2], np.nan).astype(np.float32)
            track = str(_track(one))
            if track in instances:
                raise _second_object(place)
            instances[track] = Keypoints(tuple(of_category), xy, values[:, 2] == 2)
        labels[index] = join_instances(instances, several=several)
    return VideoLabels(kind=Keypoints, labels=labels, video=facts)


def _is_points(points: Any, count: int) -> bool:
    return (
        isinstance(points, list)
        and len(points) == 3 * count
        and all(isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9 for value in points)
    )


# Writing


def write(labels: VideoLabels, path: Path) -> None:
    """Write frame by frame; only the ids of the objects are kept in memory."""
    height, width = size_of(labels)
    video = {"id": 1, "name": labels.video.name, "height": height, "width": width, "length": labels.frames}
    video |= {"fps": labels.video.fps} if labels.video.fps else {}
    images = (
        {
            "id": index + 1,
            "video_id": 1,
            "frame_id": index,
            "file_name": f"{labels.video.number(index):05d}.png",
            "height": height,
            "width": width,
        }
        for index in labels.labels
    )
    with atomic_text(path) as text:
        text.write('{"info": {"description": "written by timecycle"},\n"videos": [' + json.dumps(video) + "],\n")
        _write_table(text, "images", images)
        text.write(",\n")
        if issubclass(labels.kind, Keypoints):
            skeletons = Skeletons.of(labels.labels)
            _write_table(text, "annotations", _point_annotations(labels, skeletons))
            categories: list[dict[str, Any]] = [
                {"id": 1, "name": "object", "keypoints": list(skeletons.parts), "skeleton": []}
            ]
        else:
            objects: set[int] = set()
            _write_table(text, "annotations", _mask_annotations(labels, objects))
            categories = write_categories(labels, sorted(objects))
        text.write(",\n")
        _write_table(text, "categories", iter(categories))
        text.write("}\n")


def _write_table(text: io.TextIOWrapper, name: str, rows: Iterator[dict[str, Any]]) -> None:
    text.write(f'"{name}": [')
    for i, row in enumerate(rows):
        text.write((",\n" if i else "\n") + json.dumps(row, ensure_ascii=False))
    text.write("]")


def _mask_annotations(labels: VideoLabels, objects: set[int]) -> Iterator[dict[str, Any]]:
    count = 0
    for index, one in labels.labels.items():
        ids = ids_of(one)
        for identity in np.unique(ids[ids > 0]).tolist():
            objects.add(identity)
            count += 1
            region = ids == identity
            known = labels.known.get(index, {}).get(str(identity), Known())
            yield {
                "id": count,
                "image_id": index + 1,
                "video_id": 1,
                "category_id": identity,
                "track_id": identity,
                "instance_id": identity,
                "segmentation": {"size": list(ids.shape), "counts": rle.encode(region)},
                "bbox": box_of(region),
                "area": int(region.sum()),
                "iscrowd": 0,
                **({} if known.confidence is None else {"score": round(known.confidence, 4)}),
                "attributes": {
                    "occluded": known.state == "occluded",
                    **({"state": known.state} if known.state else {}),
                    "keyframe": known.annotated,
                },
            }


def _point_annotations(labels: VideoLabels, skeletons: Skeletons) -> Iterator[dict[str, Any]]:
    count = 0
    for index, one in labels.labels.items():
        for track, (instance, points) in enumerate(skeletons.split(points_of(one)).items(), 1):
            count += 1
            there = np.isfinite(points.xy).all(axis=1)
            values = [
                [round(float(x), 3), round(float(y), 3), 2 if seen else 1] if has else [0, 0, 0]
                for (x, y), seen, has in zip(points.xy, points.visible, there, strict=True)
            ]
            seen_xy = points.xy[points.visible]
            left, top = seen_xy.min(axis=0).tolist() if len(seen_xy) else (0.0, 0.0)
            right, bottom = seen_xy.max(axis=0).tolist() if len(seen_xy) else (0.0, 0.0)
            confidence = None if points.confidence is None else points.confidence[points.visible]
            known = confidence is not None and len(confidence) and np.isfinite(confidence).all()
            yield {
                "id": count,
                "image_id": index + 1,
                "video_id": 1,
                "category_id": 1,
                "track_id": instance or track,
                "keypoints": [value for point in values for value in point],
                "num_keypoints": int(there.sum()),
                "bbox": [round(value, 3) for value in (left, top, right - left, bottom - top)],
                "area": round((right - left) * (bottom - top), 3),
                "iscrowd": 0,
                **({"score": round(float(confidence.mean()), 4)} if known and confidence is not None else {}),
            }


FORMAT = Format(
    name="coco",
    title="COCO JSON (with the tracks of CocoVID)",
    suffixes=(".json",),
    kinds=("masks", "parts", "keypoints"),
    loses="of keypoints the confidence of each point (one score per frame is kept); several videos in one file",
    read=read,
    write=write,
    recognises=lambda path: starts_with_tables(path, "images", "annotations"),
    extra="coco",
    module="pycocotools",
)
