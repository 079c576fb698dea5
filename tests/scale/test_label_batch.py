"""`label_batch`: what `map_batches` of Ray Data and `mapInPandas` of Spark call."""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import timecycle as tc
from bulk_runs import contents, environment
from timecycle.bulk import worker
from timecycle.errors import SettingsError, ShortageError

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
CONFIG = {"encoder": "rgb", "config": tc.propagate_config("fast", ["image_size_px=64"])}


def unpacked(output: bytes, folder: Path) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(output)) as tar:
        tar.extractall(folder, filter="data")
    return contents(folder)


def test_outputs_are_those_of_propagate_and_errors_have_their_row(corpus, expected, tmp_path, monkeypatch):
    loaded = []
    load = worker.load_encoder
    monkeypatch.setattr(worker, "load_encoder", lambda name, **options: loaded.append(name) or load(name, **options))
    worker._encoder.cache_clear()
    batch = {
        "video": np.array([str(corpus / f"v{number}.mp4") for number in (0, 3, 5, 1)], object),
        "labels": np.array([str(corpus / "m0.png"), str(corpus / "m3.png"), [str(corpus / "m5.png")], None], object),
    }
    done = tc.label_batch(batch, **CONFIG)
    assert loaded == ["rgb"]
    assert tc.label_batch({name: column[:1] for name, column in batch.items()}, **CONFIG)["frames"].tolist() == [8]
    assert loaded == ["rgb"]
    assert done["name"].tolist() == ["v0", "v3", "v5", str(corpus / "v1.mp4")]
    assert done["frames"].tolist() == [8, 0, 8, 0]
    assert np.isnan(done["mean_confidence"]).tolist() == [False, True, False, True]
    assert [bool(error) for error in done["error"]] == [False, True, False, True]
    assert "v3.mp4" in done["error"][1]
    assert "has no labels" in done["error"][3]
    assert [done["output"][row] for row in (1, 3)] == [b"", b""]
    for row, name in ((0, "v0"), (2, "v5")):
        assert unpacked(done["output"][row], tmp_path / name) == expected[name]
        assert len(tc.Run(tmp_path / name)) == 8


def test_names_are_used_and_other_columns_are_refused(corpus):
    batch = {"video": [corpus / "v0.mp4"], "labels": [corpus / "m0.png"], "name": ["first"]}
    assert tc.label_batch(batch, **CONFIG)["name"].tolist() == ["first"]
    with pytest.raises(SettingsError, match="the batch has the columns film, labels; give it the columns video and"):
        tc.label_batch({"film": ["a"], "labels": ["b"]}, **CONFIG)
    assert {name: len(column) for name, column in tc.label_batch({"video": [], "labels": []}, **CONFIG).items()} == {
        "name": 0, "frames": 0, "mean_confidence": 0, "output": 0, "error": 0,
    }  # fmt: skip


def test_shortage_is_raised_and_an_unexpected_error_has_its_row(corpus, monkeypatch):
    batch = {"video": [str(corpus / "v0.mp4")], "labels": [str(corpus / "m0.png")]}

    def fail(*arguments, **options):
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(worker, "run", fail)
    assert tc.label_batch(batch, **CONFIG)["error"].tolist() == ["ZeroDivisionError: of the test"]

    def lack(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(worker, "run", lack)
    with pytest.raises(ShortageError, match="memory"):
        tc.label_batch(batch, **CONFIG)


@pytest.fixture
def four(corpus, tmp_path, monkeypatch) -> Path:
    """A folder with four of the videos, one of them corrupt, as the current folder."""
    for number in (0, 3, 5, 6):
        shutil.copy(corpus / f"v{number}.mp4", tmp_path)
        shutil.copy(corpus / f"m{number}.png", tmp_path)
    lines = "".join(f"{tmp_path}/v{number}.mp4,{tmp_path}/m{number}.png\n" for number in (0, 3, 5, 6))
    (tmp_path / "videos.csv").write_text(f"video,labels\n{lines}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(block: str) -> str:
    """An example of the page with the settings of these tests."""
    settings = 'tc.propagate_config("fast", ["image_size_px=64"])'
    changed = block.replace('{"config": "fast"}', f'{{"config": {settings}, "encoder": "rgb"}}')
    changed = changed.replace('config="fast"', f'config={settings}, encoder="rgb"').replace(
        "batch_size=8", "batch_size=2"
    )
    assert changed != block
    return changed


@pytest.mark.slow  # starts a Ray cluster
def test_the_example_for_ray_data_runs(four, expected):
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("ray.data")
    (block,) = (block for block in BLOCKS if "import ray" in block)
    start = "import ray\nray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level='error')\n"
    (four / "example.py").write_text(start + small(block))
    done = subprocess.run(
        [sys.executable, "example.py"], capture_output=True, text=True, env=environment(), timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = sorted(parquet.read_table(four / "labelled").to_pylist(), key=lambda row: row["name"])
    assert [(row["name"], row["frames"], bool(row["error"])) for row in rows] == [
        ("v0", 8, False), ("v3", 0, True), ("v5", 8, False), ("v6", 8, False),
    ]  # fmt: skip
    for row in (rows[0], rows[2]):
        assert unpacked(row["output"], four / "unpacked" / row["name"]) == expected[row["name"]]


def test_the_wrapper_for_spark_maps_data_frames(four, expected):
    pandas = pytest.importorskip("pandas")
    (block,) = (block for block in BLOCKS if "mapInPandas" in block)
    names: dict[str, object] = {}
    exec(compile(small(block), "example", "exec"), names)  # noqa: S102  the example of the docs
    table = pandas.read_csv("videos.csv")
    done = pandas.concat(names["label"](iter([table[:2], table[2:]])))
    assert [word.split()[0] for word in names["SCHEMA"].split(", ")] == list(done.columns)
    assert done["frames"].tolist() == [8, 0, 8, 8]
    assert unpacked(done["output"].iloc[2], four / "unpacked") == expected["v5"]


def test_labels_are_also_written_in_other_formats_and_units(corpus, tmp_path):
    batch = {"video": [corpus / "v0.mp4"], "labels": [corpus / "m0.png"]}
    done = tc.label_batch(batch, **CONFIG, scale="2px/mm", formats=["cvat"])
    assert done["error"].tolist() == [""]
    unpacked(done["output"][0], tmp_path / "v0")
    assert (tmp_path / "v0" / "exports" / "cvat.xml").is_file()
    assert "area_mm2" in (tmp_path / "v0" / "measurements.csv").read_text(encoding="utf-8").splitlines()[0]
    with pytest.raises(SettingsError, match="crayon"):
        tc.label_batch(batch, **CONFIG, formats=["crayon"])
