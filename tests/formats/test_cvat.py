"""CVAT's XML: masks as CVAT's own package encodes them, shapes as CVAT exports them, and damaged files."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from label_samples import keypoints, mask, masks
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, write_file
from timecycle.formats.video_labels import VideoFacts

# As CVAT 2 exports a task of ten frames: an interpolated polygon, a box, and a mask that ends.
EXPORTED = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><job><id>1</id><size>10</size><mode>interpolation</mode><start_frame>0</start_frame>
    <stop_frame>9</stop_frame><frame_filter></frame_filter>
    <labels><label><name>cell</name><color>#fff</color><type>any</type></label></labels></job>
    <dumped>2026-01-01</dumped><original_size><width>20</width><height>12</height></original_size></meta>
  <track id="0" label="cell" source="manual">
    <polygon frame="2" keyframe="1" outside="0" occluded="1" points="2.00,3.00;8.00,3.00;8.00,7.00;2.00,7.00"/>
    <polygon frame="3" keyframe="0" outside="0" occluded="0" points="3.00,3.00;9.00,3.00;9.00,7.00;3.00,7.00"/>
    <polygon frame="4" keyframe="1" outside="1" occluded="0" points="3.00,3.00;9.00,3.00;9.00,7.00;3.00,7.00"/>
  </track>
  <track id="1" label="nucleus &amp; Kern" source="semi-auto">
    <mask frame="2" keyframe="1" outside="0" occluded="0" rle="0, 5, 1, 6" left="10" top="2" width="4" height="3"
      z_order="0"/>
  </track>
  <track id="2" label="cell" source="manual">
    <box frame="2" keyframe="1" outside="0" occluded="0" xtl="1.0" ytl="1.0" xbr="2.0" ybr="2.0" z_order="0"/>
  </track>
</annotations>
"""


@pytest.fixture
def exported(tmp_path):
    (tmp_path / "annotations.xml").write_text(EXPORTED)
    return tmp_path / "annotations.xml"


def test_shapes_of_cvat_are_read(exported, caplog):
    labels = read_file(exported)
    assert (labels.video.frames, labels.video.size) == (10, (12, 20))
    assert list(labels.labels) == [2, 3, 4]
    second = labels.labels[2].ids
    expected = np.zeros((12, 20), np.uint16)
    expected[3:7, 2:8] = 1
    expected[2:5, 10:14] = 2
    expected[3, 11] = 0
    assert np.array_equal(second, expected)
    assert (labels.labels[3].ids > 0).sum() == 24
    assert labels.labels[4].is_empty()
    assert labels.known[2]["1"].state == "occluded"
    assert [labels.known[frame]["1"].annotated for frame in (2, 3)] == [True, False]
    assert labels.names == {"1": "cell", "2": "nucleus & Kern"}
    assert "1 shapes of the kind box are left out" in caplog.text


def test_masks_are_those_of_cvats_own_package(tmp_path):
    encode_mask = pytest.importorskip("cvat_sdk.masks").encode_mask
    write_file(masks(), tmp_path / "labels.xml")
    for track in ElementTree.parse(tmp_path / "labels.xml").getroot().iter("track"):  # noqa: S314  ours
        for shape in track:
            if shape.get("outside") == "1":
                continue
            *rle, left, top, right, bottom = encode_mask(mask(int(shape.get("frame"))).ids == int(track.get("id")))
            assert [int(run) for run in shape.get("rle").split(",")] == rle
            box = [int(shape.get(name)) for name in ("left", "top", "width", "height")]
            assert box == [left, top, right - left + 1, bottom - top + 1]


def test_tracks_end_where_objects_vanish_or_labels_stop(tmp_path):
    write_file(masks(20, labelled=5), tmp_path / "labels.xml")
    root = ElementTree.parse(tmp_path / "labels.xml").getroot()  # noqa: S314  written above
    outside = {
        (track.get("id"), int(shape.get("frame")))
        for track in root.iter("track")
        for shape in track
        if shape.get("outside") == "1"
    }
    assert outside == {("1", 3), ("300", 3), ("1", 5), ("300", 5)}
    assert {shape.get("keyframe") for track in root.iter("track") for shape in track} == {"1"}


def test_points_are_measured_from_the_corner_of_the_first_pixel(tmp_path):
    write_file(keypoints(1), tmp_path / "labels.xml")
    assert 'points="10.750,21.000"' in (tmp_path / "labels.xml").read_text()


def test_a_task_of_a_part_of_the_video_does_not_say_how_long_the_video_is(exported):
    exported.write_text(EXPORTED.replace("<start_frame>0<", "<start_frame>5<"))
    assert read_file(exported).video.frames is None
    exported.write_text(EXPORTED.replace("<frame_filter></", "<frame_filter>step=10</"))
    assert read_file(exported).video.frames is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("0, 5, 1, 6", "0, 5, 1, 99", "does not fill its box"),
        ("0, 5, 1, 6", "0, 5, -1, 8", "does not fill its box"),
        ("0, 5, 1, 6", "0, 5, " + "9" * 40, "no mask"),
        ("0, 5, 1, 6", "a", "no mask"),
        ('left="10"', 'left="-1"', "leaves the frame"),
        ('width="4"', 'width="99999999"', "leaves the frame"),
        ("2.00,3.00;8.00,3.00", "2.00,3.00;nan,1", "no valid points"),
        ("2.00,3.00;8.00,3.00", "2.00,3.00;8.00", "no valid points"),
    ],
)
def test_damaged_shapes_are_refused_with_track_and_frame(exported, old, new, problem):
    exported.write_text(EXPORTED.replace(old, new, 1))
    with pytest.raises(LabelError, match=rf"track \d on frame 2 of .*{problem}"):
        dict(read_file(exported).labels)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<annotations>",
        EXPORTED[:900],
        EXPORTED.replace('frame="2"', 'frame="-2"'),
        EXPORTED.replace('frame="2"', 'frame="99999999999"'),
        EXPORTED.replace('id="1"', 'id="0"'),
        EXPORTED.replace("<width>20", "<width>0"),
        EXPORTED.replace("<track id", '<image id="0"/><track id'),
        re.sub(r"<annotations>", '<!DOCTYPE a [<!ENTITY b "bbbb">]><annotations>', EXPORTED),
        # A parser skips the comment; the search for the element's name stopped at it, and the entities were expanded.
        EXPORTED.replace("<annotations>", '<!-- <annotations> --><!DOCTYPE a [<!ENTITY b "bb">]><annotations>'),
        EXPORTED.replace("<annotations>", "<tasks><annotations>").replace("</annotations>", "</annotations></tasks>"),
    ],
)
def test_damaged_files_are_refused(exported, content):
    exported.write_text(content)
    with pytest.raises(LabelError, match=r"annotations\.xml"):
        read_file(exported, name="cvat")


def test_a_file_without_size_needs_the_video(exported):
    exported.write_text(re.sub("<original_size>.*</original_size>", "", EXPORTED))
    with pytest.raises(LabelError, match="say which video"):
        read_file(exported)
    assert read_file(exported, VideoFacts(name="clip.mp4", size=(12, 20), frames=10)).labels[3].size() == (12, 20)
