"""Names of objects in meta.json of YouTube-VOS, beside the folders of masks."""

import json

import numpy as np
import pytest

from clips import small_world, write_clip
from timecycle.cli.main import main
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, write_file
from timecycle.formats.video_labels import VideoFacts, VideoLabels
from timecycle.formats.youtube_vos import read_names
from timecycle.labels import Masks
from timecycle.runs.opened import Run


def labels(names=None):
    first, second = np.zeros((2, 12, 20), np.uint16)
    first[2:5, 2:5], first[6:9, 6:9], second[2:5, 3:6] = 1, 4, 1
    return VideoLabels(
        kind=Masks, labels={0: Masks(first), 5: Masks(second)}, video=VideoFacts(size=(12, 20)), names=names or {}
    )


def meta(root, objects, video="003234408d"):
    (root / "Annotations" / video).mkdir(parents=True, exist_ok=True)
    (root / "meta.json").write_text(json.dumps({"videos": {video: {"objects": objects}}}), encoding="utf-8")
    return root / "Annotations" / video


def test_names_come_back_through_meta_json(tmp_path):
    folder = tmp_path / "Annotations" / "dog"
    write_file(labels({"1": "Müllers Hund"}), folder, name="png")
    objects = json.loads((tmp_path / "meta.json").read_text(encoding="utf-8"))["videos"]["dog"]["objects"]
    assert objects == {
        "1": {"category": "Müllers Hund", "frames": ["00000", "00005"]},
        "4": {"category": "object 4", "frames": ["00000"]},
    }
    assert not (folder / "names.json").exists()
    assert read_file(folder).names == {"1": "Müllers Hund"}


def test_other_videos_of_the_data_set_stay(tmp_path):
    for name in ("dog", "cat"):
        write_file(labels({"1": name}), tmp_path / "Annotations" / name, name="png")
    write_file(labels({"4": "tail"}), tmp_path / "Annotations" / "dog", name="png")
    assert read_file(tmp_path / "Annotations" / "cat").names == {"1": "cat"}
    assert read_file(tmp_path / "Annotations" / "dog").names == {"4": "tail"}


def test_objects_of_one_category_are_told_apart_by_their_ids(tmp_path):
    objects = {
        "1": {"category": "penguin", "frames": ["00000"]},
        "2": {"category": "penguin", "frames": []},
        "3": {"category": "ape"},
    }
    assert read_names([meta(tmp_path, objects)]) == {"1": "penguin 1", "2": "penguin 2", "3": "ape"}


def test_names_json_comes_before_meta_json(tmp_path):
    folder = meta(tmp_path, {"1": {"category": "dog"}, "2": {"category": "cat"}})
    (folder / "names.json").write_text('{"1": "Rex"}')
    assert read_names([folder / "00000.png"]) == {"1": "Rex", "2": "cat"}


@pytest.mark.parametrize("content", ["{}", '{"videos": []}', '{"videos": {"v": {"objects": [1]}}}'])
def test_a_file_without_the_video_names_nothing(tmp_path, content):
    meta(tmp_path, {}, "v")
    (tmp_path / "meta.json").write_text(content)
    assert read_names([tmp_path / "Annotations" / "v"]) == {}


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000])
def test_a_damaged_file_is_refused_and_not_replaced(tmp_path, content):
    folder = meta(tmp_path, {}, "v")
    (tmp_path / "meta.json").write_text(content)
    with pytest.raises(LabelError, match=r"meta\.json .*; restore it"):
        read_names([folder])
    with pytest.raises(LabelError, match=r"meta\.json .*; restore it"):
        write_file(labels(), folder, name="png")
    assert (tmp_path / "meta.json").read_text() == content


def test_a_run_takes_its_names_from_the_data_set_and_gives_them_back(tmp_path):
    world = small_world(frames=3)
    first = meta(tmp_path / "in", {"1": {"category": "disc"}}, "clip") / "00000.png"
    Masks(world.mask(0)).write(first)
    clip = write_clip(tmp_path / "clip.mp4", world)
    assert main(["propagate", str(clip), str(first), "--encoder", "rgb", "-o", str(tmp_path / "out")]) == 0
    assert Run(tmp_path / "out").record["names"] == {"1": "disc"}
    assert main(["convert", str(tmp_path / "out"), str(tmp_path / "new" / "Annotations" / "clip"), "--to", "png"]) == 0
    assert read_names([tmp_path / "new" / "Annotations" / "clip"])["1"] == "disc"
