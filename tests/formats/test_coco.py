"""COCO and YouTube-VIS files as their own tools read and write them, and damaged ones."""

import contextlib
import io
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from label_samples import keypoints, mask, masks
from timecycle.errors import LabelError
from timecycle.formats import coco, rle
from timecycle.formats.registry import read_file, write_file
from timecycle.formats.video_labels import VideoFacts
from timecycle.labels import Keypoints

mask_tools = pytest.importorskip("pycocotools.mask")
COCO = pytest.importorskip("pycocotools.coco").COCO


def opened(path):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(path)


def test_pycocotools_reads_the_same_masks_tracks_and_scores(tmp_path):
    labels = masks()
    write_file(labels, tmp_path / "labels.json", name="coco")
    coco = opened(tmp_path / "labels.json")
    assert {row["name"] for row in coco.cats.values()} == set(labels.names.values())
    for image in coco.imgs.values():
        ids = mask(image["frame_id"]).ids
        annotations = coco.imgToAnns[image["id"]]
        assert [one["track_id"] for one in annotations] == [i for i in np.unique(ids).tolist() if i]
        for one in annotations:
            region = ids == one["track_id"]
            assert np.array_equal(coco.annToMask(one), region)
            assert one["area"] == mask_tools.area(one["segmentation"]) == region.sum()
            assert one["bbox"] == mask_tools.toBbox(one["segmentation"]).tolist()
            assert one["score"] == labels.known[image["frame_id"]][str(one["track_id"])].confidence


@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 12))))
def test_run_lengths_are_decoded_as_pycocotools_does(region):
    counts = rle.encode(region)
    size = region.shape
    assert np.array_equal(rle.decode({"size": list(size), "counts": counts}, size, "x"), region)
    plain = {"size": list(size), "counts": _plain(region)}
    assert np.array_equal(rle.decode(plain, size, "x"), region)
    theirs = mask_tools.frPyObjects(plain, *size)
    assert theirs["counts"].decode() == counts


def _plain(region):
    flat = region.ravel(order="F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *changes, flat.size]).tolist()
    return ([0] if flat[0] else []) + counts


@given(st.text(alphabet=[chr(c) for c in range(40, 120)], max_size=30))
def test_any_string_is_decoded_or_refused(counts):
    with contextlib.suppress(LabelError):
        assert rle.decode({"size": [5, 6], "counts": counts}, (5, 6), "annotation 1 of x.json").shape == (5, 6)


def polygon_file(tmp_path, **annotation):
    """As labelling tools write it: polygons, classes instead of objects, no videos, file names with numbers."""
    row = {"id": 1, "image_id": 11, "category_id": 4, "segmentation": [[10, 10, 30, 10, 30, 25, 10, 25]]}
    content = {
        "images": [
            {"id": 10, "file_name": "dog/img0000.png", "height": 48, "width": 64},
            {"id": 11, "file_name": "dog/img0007.png", "height": 48, "width": 64},
        ],
        "annotations": [row | annotation],
        "categories": [{"id": 4, "name": "dog"}],
    }
    (tmp_path / "polygons.json").write_text(json.dumps(content))
    return tmp_path / "polygons.json"


def test_polygons_are_filled_as_pycocotools_does(tmp_path):
    path = polygon_file(tmp_path)
    labels = read_file(path)
    assert list(labels.labels) == [0, 7]
    assert labels.names == {"4": "dog"}
    theirs = opened(path)
    assert np.array_equal(labels.labels[7].ids == 4, theirs.annToMask(theirs.anns[1]))
    assert labels.labels[0].is_empty()


def test_two_images_of_one_frame_are_refused(tmp_path):
    path = polygon_file(tmp_path)
    path.write_text(path.read_text().replace("img0007", "img0000"))
    with pytest.raises(LabelError, match=r"image 11 of .* has the frame or the id of another image"):
        read_file(path)


def test_many_images_are_indexed_in_time_that_grows_with_their_number():
    def seconds(count: int) -> float:
        rows = [{"id": i, "frame_id": i, "height": 48, "width": 64} for i in range(count)]
        began = time.process_time()
        indices, _ = coco._images(Path("many.json"), rows, VideoFacts())
        assert len(indices) == count
        return time.process_time() - began

    few, many = map(min, zip(*((seconds(2000), seconds(16_000)) for _ in range(3)), strict=True))
    assert many < 14 * few  # 8 times as many; comparing all with all took 24 times as long


def test_track_ids_that_are_no_object_ids_are_numbered(tmp_path, caplog):
    labels = read_file(polygon_file(tmp_path, track_id=70_000))
    assert np.unique(labels.labels[7].ids).tolist() == [0, 1]
    assert "numbered from 1" in caplog.text


TWO = ({"segmentation": [[2, 2, 8, 2, 8, 8, 2, 8]]}, {"segmentation": [[20, 20, 30, 20, 30, 30, 20, 30]]})
POSES = ({"keypoints": [2, 3, 2]}, {"keypoints": [20, 30, 2]})


def two_on_one_frame(tmp_path, annotations, *tracks):
    content = {
        "images": [{"id": 1, "file_name": "0.png", "height": 48, "width": 64}],
        "annotations": [
            {"id": number, "image_id": 1, "category_id": 4} | one | track
            for number, (one, track) in enumerate(zip(annotations, tracks, strict=True), 1)
        ],
        "categories": [{"id": 4, "name": "person", "keypoints": ["nose"]}],
    }
    (tmp_path / "two.json").write_text(json.dumps(content))
    return tmp_path / "two.json"


@pytest.mark.parametrize("annotations", [TWO, POSES], ids=["masks", "keypoints"])
@pytest.mark.parametrize("tracks", [({}, {}), ({"track_id": 4}, {})], ids=["no track ids", "one track id"])
def test_two_objects_of_one_category_without_track_ids_are_refused(tmp_path, annotations, tracks):
    with pytest.raises(LabelError, match=r"annotation 2 of .* second object of its category.*export with a track_id"):
        read_file(two_on_one_frame(tmp_path, annotations, *tracks))


def test_two_objects_of_one_category_with_track_ids_are_two_objects(tmp_path):
    tracks = {"track_id": 1}, {"track_id": 2}
    ids = read_file(two_on_one_frame(tmp_path, TWO, *tracks)).labels[0].ids
    assert np.unique(ids).tolist() == [0, 1, 2]
    points = read_file(two_on_one_frame(tmp_path, POSES, *tracks)).labels[0]
    assert dict(zip(points.names, points.xy.tolist(), strict=True)) == {"1/nose": [2, 3], "2/nose": [20, 30]}


def test_skeletons_that_never_share_a_frame_are_told_apart_by_their_track_ids(tmp_path):
    content = json.loads(two_on_one_frame(tmp_path, POSES, {"track_id": 1}, {"track_id": 2}).read_text())
    content["images"].append(content["images"][0] | {"id": 2, "file_name": "1.png"})
    content["annotations"][1]["image_id"] = 2
    (tmp_path / "two.json").write_text(json.dumps(content))
    labels = read_file(tmp_path / "two.json").labels
    assert [labels[index].names for index in (0, 1)] == [("1/nose",), ("2/nose",)]


def test_masks_of_one_track_on_a_frame_are_parts_of_one_object_and_skeletons_are_refused(tmp_path):
    tracks = {"track_id": 3}, {"track_id": 3}
    ids = read_file(two_on_one_frame(tmp_path, TWO, *tracks)).labels[0].ids
    assert ids[5, 5] == ids[25, 25] == 3
    with pytest.raises(LabelError, match=r"annotation 2 of .* second object"):
        read_file(two_on_one_frame(tmp_path, POSES, *tracks))


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ({"segmentation": None}, "neither run lengths nor polygons"),
        ({"segmentation": [[1, 2, 3]]}, "three or more vertices"),
        ({"segmentation": [[1, 2, 3, float("nan"), 5, 6]]}, "three or more vertices"),
        ({"segmentation": [[1e300] * 8]}, "three or more vertices"),
        ({"segmentation": {"size": [48, 65], "counts": "0"}}, r"not \[48, 64\]"),
        ({"segmentation": {"size": [48, 64], "counts": "000000"}}, "do not add up"),
        ({"segmentation": {"size": [48, 64], "counts": "oo"}}, "damaged run lengths"),
        ({"segmentation": {"size": [48, 64], "counts": [10**30, -5]}}, "whole numbers"),
        ({"segmentation": {"size": [48, 64], "counts": 5}}, "no run lengths"),
        ({"image_id": 99}, "an image that the file lacks"),
    ],
)
def test_damaged_annotations_are_refused_with_their_place(tmp_path, annotation, problem):
    with pytest.raises(LabelError, match=problem) as refused:
        dict(read_file(polygon_file(tmp_path, **annotation)).labels)
    assert "annotation 1 of" in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"images": [], "annotations": []}',
        '{"images": 3, "annotations": []}',
        '{"images": [1], "annotations": []}',
        '{"images": [{"id": 1, "height": -1, "width": 2, "frame_id": 0}], "annotations": []}',
        '{"images": [{"id": 1, "height": 4, "width": 2, "frame_id": 1e99}], "annotations": []}',
    ],
)
def test_damaged_files_are_refused(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(LabelError, match=r"labels\.json"):
        read_file(tmp_path / "labels.json", name="coco")


def test_points_of_several_animals_keep_their_names(tmp_path):
    names = ("mouse1/nose", "mouse1/tail", "mouse2/nose", "mouse2/tail")
    points = Keypoints(names, np.arange(8, dtype=np.float32).reshape(4, 2), np.array([True, True, False, True]))
    write_file(replace(keypoints(1), labels={0: points}), tmp_path / "labels.json", name="coco")
    back = read_file(tmp_path / "labels.json").labels[0]
    assert back.names == names
    assert np.array_equal(back.xy, points.xy)
    assert opened(tmp_path / "labels.json").cats[1]["keypoints"] == ["nose", "tail"]


def test_youtube_vis_has_one_segmentation_or_null_for_every_frame(tmp_path):
    write_file(masks(), tmp_path / "labels.json", name="ytvis")
    content = json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))
    late = next(one for one in content["annotations"] if one["id"] == 300)
    assert [one is None for one in late["segmentations"]] == [i in (0, 1, 3) for i in range(7)]
    assert content["videos"][0]["length"] == len(content["videos"][0]["file_names"]) == 7
    for index, segmentation in enumerate(late["segmentations"]):
        if segmentation is not None:
            assert np.array_equal(mask_tools.decode(segmentation), mask(index).ids == 300)
    late["segmentations"].pop()
    (tmp_path / "labels.json").write_text(json.dumps(content))
    with pytest.raises(LabelError, match=r"annotation 300 of .* does not have 7 segmentations"):
        read_file(tmp_path / "labels.json")
