"""DeepLabCut's tables: a real project's, what pandas and sleap-io make of ours, and damaged ones."""

import os
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from label_samples import keypoints, points
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, recognise, write_file
from timecycle.formats.video_labels import VideoFacts
from timecycle.labels import Keypoints

HEADER = "scorer,me,me,me,me\nbodyparts,nose,nose,tail,tail\ncoords,x,y,x,y\n"


def table(tmp_path, rows, header=HEADER):
    (tmp_path / "CollectedData_me.csv").write_text(header + rows)
    return tmp_path / "CollectedData_me.csv"


def positions(points):
    return {name: xy.tolist() for name, xy in zip(points.names, points.xy, strict=True)}


def same(a, b):
    return list(a.labels) == list(b.labels) and all(positions(a.labels[i]) == positions(b.labels[i]) for i in a.labels)


@pytest.mark.data
def test_a_real_project_is_read_with_its_holes_and_written_again(data, tmp_path):
    path = data / "mirror_mouse" / "CollectedData.csv"
    labels = read_file(path)
    assert len(labels.labels) == 90
    assert len(labels.labels[1].names) == 15  # two of 17 points are not annotated on this image
    assert labels.labels[1].xy[0].tolist() == [77.25, 36.25]
    write_file(labels, tmp_path / "again.csv", name="deeplabcut")
    assert same(labels, read_file(tmp_path / "again.csv"))


@pytest.mark.data
@pytest.mark.parametrize("layout", ["fixed", "table", "multi"])
def test_a_real_project_in_hdf5_is_read_in_every_layout(data, tmp_path, layout):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    pytest.importorskip("h5py")
    path = data / "mirror_mouse" / "CollectedData.csv"
    frame = pandas.read_csv(path, header=[0, 1, 2], index_col=0)
    if layout == "multi":
        frame.index = pandas.MultiIndex.from_tuples([("labeled-data", "v", name[-9:]) for name in frame.index])
    frame.to_hdf(tmp_path / "a.h5", key="df_with_missing", mode="w", format="table" if layout == "table" else "fixed")
    assert recognise(tmp_path / "a.h5").name == "deeplabcut"
    assert same(read_file(path), read_file(tmp_path / "a.h5"))


def test_hdf5_comes_back_and_pandas_reads_it(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    pytest.importorskip("h5py")
    write_file(keypoints(), tmp_path / "labels.h5", name="deeplabcut")
    write_file(keypoints(), tmp_path / "labels.csv", name="deeplabcut")
    assert same(read_file(tmp_path / "labels.csv"), read_file(tmp_path / "labels.h5"))
    frame = pandas.read_hdf(tmp_path / "labels.h5")
    assert list(frame.columns.names) == ["scorer", "bodyparts", "coords"]
    assert frame.loc[1, ("timecycle", "хвост", "likelihood")] == 0.25


def test_predictions_have_a_likelihood_and_annotations_name_images(tmp_path):
    write_file(keypoints(2), tmp_path / "predicted.csv", name="deeplabcut")
    assert (tmp_path / "predicted.csv").read_text(encoding="utf-8").splitlines()[2:4] == [
        "coords,x,y,likelihood,x,y,likelihood,x,y,likelihood",
        "0,10.25,20.5,0.5,3.125,40.0,0.25,,,",
    ]
    drawn = replace(points(1), confidence=None)
    write_file(replace(keypoints(2), labels={1: drawn}), tmp_path / "annotated.csv", name="deeplabcut")
    lines = (tmp_path / "annotated.csv").read_text(encoding="utf-8").splitlines()
    assert lines[3] == "labeled-data/clip/img00001.png,11.25,20.5,3.125,39.0,55.5,7.0"


def test_sleap_io_reads_the_same_points(tmp_path):
    sleap_io = pytest.importorskip("sleap_io")
    drawn = {index: replace(points(index), confidence=None) for index in (1, 4, 6)}
    folder = tmp_path / "labeled-data" / "clip"
    folder.mkdir(parents=True)
    for index in drawn:  # sleap-io leaves out frames whose images are missing
        Image.new("RGB", (64, 48)).save(folder / f"img{index:05d}.png")
    write_file(replace(keypoints(), labels=drawn), folder / "CollectedData_timecycle.csv", name="deeplabcut")
    theirs = sleap_io.load_file(str(folder / "CollectedData_timecycle.csv"), format="dlc")
    assert len(theirs) == 3
    for frame, index in zip(theirs, drawn, strict=True):
        instance = frame.instances[0]
        for name, xy, visible in zip(drawn[index].names, drawn[index].xy, drawn[index].visible, strict=True):
            node = theirs.skeleton.node_names.index(name)  # sorted by name there
            assert np.array_equal(instance.numpy()[node], xy if visible else [np.nan, np.nan], equal_nan=True)


def test_several_individuals_have_a_fourth_header_row(tmp_path):
    names = ("mouse1/nose", "mouse1/tail", "mouse2/nose", "mouse2/tail")
    drawn = Keypoints(names, np.arange(8, dtype=np.float32).reshape(4, 2), np.ones(4, bool))
    labels = replace(keypoints(1), labels={0: drawn})
    write_file(labels, tmp_path / "labels.csv", name="deeplabcut")
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[1] == "individuals,mouse1,mouse1,mouse1,mouse1,mouse2,mouse2,mouse2,mouse2"
    assert same(read_file(tmp_path / "labels.csv"), labels)


def test_of_several_videos_the_one_in_question_is_read(tmp_path):
    rows = "labeled-data,dog,img007.png,1,2,3,4\nlabeled-data,cat,img007.png,5,6,7,8\n"
    path = table(tmp_path, rows, re.sub("^([a-z]+),", r"\1,,,", HEADER, flags=re.MULTILINE))
    with pytest.raises(LabelError, match="images of 2 videos: dog, cat"):
        read_file(path)
    assert read_file(path, VideoFacts(name="cat.mp4", frames=10)).labels[7].xy.tolist() == [[5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("rows", "header", "problem"),
    [
        ("img1.png,1,2,3\n", HEADER, "another length"),
        ("img1.png,1,2,3,x\n", HEADER, "cannot be read"),
        ("img1.png,1,2,3,4\nimg1.png,1,2,3,4\n", HEADER, "two rows of frame 1"),
        ("img.png,1,2,3,4\n", HEADER, "without a frame number"),
        ("", "scorer,me\ncoords,x\n", "not a table"),
        ("", f"\n{HEADER}", "not a table"),
        ("", HEADER.replace("\n", "\n\n", 1), "not a table"),
        ("", HEADER.replace("tail,tail", "nose,nose"), "two columns"),
        ("", HEADER.replace("x,y,x,y", "x,y,x,z"), "columns of z"),
        ("1,1,2,3\n", "scorer,a,a,a\nbodyparts,n,n,n\ncoords,x,y,likelihood\n", "not between 0 and 1"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, rows, header, problem):
    with pytest.raises(LabelError, match=problem):
        read_file(table(tmp_path, rows, header), name="deeplabcut")


class Attack:
    """Unpickles to a call of a function."""

    def __reduce__(self):
        return os.mkdir, ("attacked",)


def test_a_pickle_in_a_file_is_never_run(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    with h5py.File(tmp_path / "attack.h5", "w") as file:
        group = file.create_group("df_with_missing")
        group["table"] = np.zeros(1, [("index", "<i8"), ("values_block_0", "<f8", (2,))])
        group.attrs["non_index_axes"] = np.void(pickle.dumps(Attack(), protocol=0))
    with pytest.raises(LabelError, match="which is not read"):
        read_file(tmp_path / "attack.h5", name="deeplabcut")
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_damaged_hdf5_is_refused(tmp_path, content):
    pytest.importorskip("h5py")
    (tmp_path / "damaged.h5").write_bytes(content)
    with pytest.raises(LabelError, match=r"damaged\.h5"):
        read_file(tmp_path / "damaged.h5", name="deeplabcut")
