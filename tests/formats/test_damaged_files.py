"""Damaged files of other tools that were once read with an exception of another library; found by fuzzing."""

import io
import json
import zipfile

import numpy as np
import pytest

from label_samples import keypoints, masks
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, write_file


def read_all(path, name):
    return dict(read_file(path, name=name).labels)


def changed_json(path, name, table, key, value):
    write_file(masks(), path, name=name)
    content = json.loads(path.read_bytes())
    content[table][0][key] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["coco", "ytvis"])
@pytest.mark.parametrize(
    ("table", "key"), [("annotations", "id"), ("annotations", "category_id"), ("categories", "id")]
)
def test_an_id_that_is_a_list_is_refused(tmp_path, name, table, key):
    pytest.importorskip("pycocotools")
    changed_json(tmp_path / "a.json", name, table, key, [1, 2])
    with pytest.raises(LabelError, match=rf"a\.json has \[1, 2\] for {key} in {table}; export"):
        read_all(tmp_path / "a.json", name)


def test_an_image_whose_id_is_a_table_is_refused(tmp_path):
    pytest.importorskip("pycocotools")
    changed_json(tmp_path / "a.json", "coco", "images", "id", {"a": 1})
    with pytest.raises(LabelError, match="for id in images"):
        read_all(tmp_path / "a.json", "coco")


@pytest.mark.parametrize("size", [7, True, None, "x"])
def test_run_lengths_of_no_size_are_refused(tmp_path, size):
    pytest.importorskip("pycocotools")
    changed_json(tmp_path / "a.json", "coco", "annotations", "segmentation", {"size": size, "counts": "0"})
    with pytest.raises(LabelError, match="has the size"):
        read_all(tmp_path / "a.json", "coco")


def test_xml_of_an_unknown_encoding_is_refused(tmp_path):
    write_file(masks(), tmp_path / "a.xml", name="cvat")
    content = (tmp_path / "a.xml").read_bytes()
    (tmp_path / "a.xml").write_bytes(content.replace(b"utf-8", b"utf-0", 1))
    assert b"utf-0" in (tmp_path / "a.xml").read_bytes()
    with pytest.raises(LabelError, match=r"a\.xml cannot be read: unknown encoding"):
        read_all(tmp_path / "a.xml", "cvat")


def npz(path, name, member):
    """Tracks of which one member has other bytes."""
    write_file(keypoints(), path, name="tapvid")
    with zipfile.ZipFile(path) as whole:
        members = {one: whole.read(one) for one in whole.namelist()}
    with zipfile.ZipFile(path, "w") as changed:
        for one, content in (members | {f"{name}.npy": member}).items():
            changed.writestr(one, content)


@pytest.mark.parametrize(("at", "byte"), [(0, b"Q"), (6, b"\xff")], ids=["signature", "version"])
def test_an_archive_with_a_damaged_list_of_members_is_of_no_known_format(tmp_path, at, byte):
    write_file(keypoints(), tmp_path / "a.npz", name="tapvid")
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + at] = byte[0]
    (tmp_path / "a.npz").write_bytes(content)
    assert zipfile.is_zipfile(tmp_path / "a.npz")
    with pytest.raises(LabelError, match=r"a\.npz is of no known format"):
        read_file(tmp_path / "a.npz")


def test_a_member_whose_header_does_not_end_is_refused(tmp_path):
    written = io.BytesIO()
    np.save(written, np.zeros(3))
    npz(tmp_path / "a.npz", "points", written.getvalue().replace(b"}", b"{", 1))
    with pytest.raises(LabelError, match=r"a\.npz cannot be read"):
        read_all(tmp_path / "a.npz", "tapvid")


@pytest.mark.parametrize("name", ["points", "occluded", "names", "size", "fps"])
def test_a_member_that_is_no_array_is_refused(tmp_path, name):
    npz(tmp_path / "a.npz", name, b"bytes")
    with pytest.raises(LabelError, match=f"has no array in {name}; save arrays"):
        read_all(tmp_path / "a.npz", "tapvid")


def test_a_compressed_member_with_damaged_bytes_is_refused(tmp_path):
    write_file(keypoints(), tmp_path / "a.npz", name="tapvid")
    with np.load(tmp_path / "a.npz") as arrays:
        np.savez_compressed(tmp_path / "b.npz", **arrays)
    content = bytearray((tmp_path / "b.npz").read_bytes())
    content[60:90] = b"\xff" * 30
    (tmp_path / "b.npz").write_bytes(bytes(content))
    with pytest.raises(LabelError, match=r"b\.npz cannot be read"):
        read_all(tmp_path / "b.npz", "tapvid")


@pytest.mark.parametrize("kind", ["type", "group"])
@pytest.mark.parametrize("name", ["axis0_level0", "axis0_label1", "axis1", "block0_values"])
def test_hdf5_file_with_a_type_or_a_group_for_a_dataset_is_refused(tmp_path, kind, name):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("tables")
    write_file(keypoints(), tmp_path / "a.h5", name="deeplabcut")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        group = file["df_with_missing"]
        del group[name]
        group[name] = np.dtype("f4") if kind == "type" else file.create_group("empty")
    with pytest.raises(LabelError, match=rf"a\.h5 cannot be read: {name} is no dataset"):
        read_all(tmp_path / "a.h5", "deeplabcut")
