"""The Python API: accepted types of arguments, error texts, and which files stay open."""

import dataclasses
import gc
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import timecycle as tc
from clips import small_world, write_clip, write_mask
from timecycle import inputs
from timecycle.errors import LabelError, OutputError, SettingsError, VideoError, WeightsError
from timecycle.inputs import as_config, as_encoder, as_labels
from timecycle.labels import KINDS, striped
from timecycle.video.frame import rgb_of

FRAMES = 5
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture(scope="module")
def clip(world, tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", world)


@pytest.fixture(scope="module")
def mask(world, clip):
    return write_mask(clip.with_name("first.png"), world)


def ids(frames) -> list[np.ndarray]:
    return [frame.labels.ids for frame in frames]


def unchecked(function):
    """The function without the type checks of the tests, which users do not have."""
    return inspect.unwrap(function)


def same(one, other) -> bool:
    return len(one) == len(other) and all((a == b).all() for a, b in zip(one, other, strict=True))


# Types of annotations, encoders and settings


@pytest.fixture(scope="module")
def expected(clip, mask):
    config = tc.propagate_config("fast")
    encoder = tc.load_encoder("rgb")
    return ids(tc.propagate(tc.open_video(clip), {0: tc.Masks.read(mask)}, encoder=encoder, config=config))


def test_arrays_files_and_names_give_the_same_result(clip, mask, world, expected):
    for annotations in ({0: world.mask(0)}, {0: str(mask)}, mask, tc.Masks(world.mask(0)), world.mask(0)):
        assert same(ids(tc.propagate(clip, annotations, encoder="rgb", config="fast")), expected)


def test_propagate_to_folder_accepts_the_same(clip, mask, expected, tmp_path):
    tc.propagate_to_folder(clip, {0: str(mask)}, tmp_path / "out", encoder="rgb", config="fast")
    written = [tc.Masks.read(tmp_path / "out" / "labels" / f"{t:05d}.png").ids for t in range(FRAMES)]
    assert same(written, expected)


def test_correspond_accepts_names(world):
    a, b = world.frame(0), world.frame(1)
    named = tc.correspond(a, b, encoder="rgb", config="fast").flow
    assert (named == tc.correspond(a, b, encoder=tc.load_encoder("rgb"), config=tc.propagate_config("fast")).flow).all()


def test_integer_and_boolean_arrays_are_masks():
    inside = np.zeros((4, 5), bool)
    inside[1, 2] = True
    for array in (inside, inside.astype(np.uint8) * 255, inside.astype(np.int64), torch.from_numpy(inside)):
        (labels,) = as_labels({3: array}).values()
        assert isinstance(labels, tc.Masks)
        assert ((labels.ids > 0) == inside).all()


def test_frame_indexes_may_be_numpy_integers():
    assert list(unchecked(as_labels)({np.int64(3): np.ones((4, 5), bool)})) == [3]


def test_one_colour_is_one_object_in_all_files_of_a_mapping(tmp_path):
    red, blue = (np.full((4, 4, 3), colour, np.uint8) for colour in ((200, 10, 10), (10, 10, 200)))
    Image.fromarray(red).save(tmp_path / "a.png")
    Image.fromarray(blue).save(tmp_path / "b.png")
    read = as_labels({0: tmp_path / "a.png", 4: str(tmp_path / "b.png")})
    assert {index: int(masks.ids.max()) for index, masks in read.items()} == {0: 2, 4: 1}


def test_csv_gives_the_points_of_its_frame(tmp_path):
    (tmp_path / "points.csv").write_text("frame,name,x,y\n0,nose,1,2\n3,nose,5,6\n")
    assert as_labels({3: tmp_path / "points.csv"})[3].xy.tolist() == [[5, 6]]
    assert sorted(as_labels(tmp_path / "points.csv")) == [0, 3]
    with pytest.raises(LabelError, match=r"points\.csv has no points on frame 1, for which it was passed"):
        as_labels({1: tmp_path / "points.csv"})


def test_mappings_use_indexes_and_files_use_frame_numbers(tmp_path):
    (tmp_path / "points.csv").write_text("frame,name,x,y\n1001,nose,1,2\n1003,nose,5,6\n")
    numbers = range(1001, 1011)
    assert sorted(as_labels(tmp_path / "points.csv", numbers)) == [0, 2]
    assert as_labels({2: tmp_path / "points.csv"}, numbers)[2].xy.tolist() == [[5, 6]]
    (tmp_path / "masks").mkdir()
    for number in (1001, 1003):
        tc.Masks(np.eye(4, dtype=np.uint16)).write(tmp_path / "masks" / f"{number}.png")
    assert sorted(as_labels(tmp_path / "masks", numbers)) == [0, 2]
    assert sorted(as_labels({2: tmp_path / "masks" / "1001.png"}, numbers)) == [2]


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        (
            {0: np.zeros((4, 5), np.float32)},
            r"the annotation of frame 0 is an array of float32 with the shape \(4, 5\)",
        ),
        (
            {2: np.zeros((4, 5, 3), np.uint8)},
            r"the annotation of frame 2 is an array of uint8 with the shape \(4, 5, 3\)",
        ),
        ({0: [1, 2]}, r"the annotation of frame 0 is a list; pass a mapping"),
        ({"first": np.zeros((4, 5), bool)}, r"'first' is not the index of a frame; pass a mapping of frame indexes"),
        ([np.zeros((4, 5), bool)], r"annotations were passed as a list; pass a mapping of frame indexes \(from 0\)"),
        (None, r"annotations were passed as a NoneType; pass a mapping"),
        ({0: "nothing.png"}, r"there is no label file nothing\.png"),
    ],
)
def test_wrong_annotations_are_refused_with_what_is_expected(annotations, problem):
    with pytest.raises(LabelError, match=problem):
        unchecked(as_labels)(annotations)


def test_wrong_encoders_and_settings_are_refused_with_what_is_expected():
    with pytest.raises(WeightsError, match="there is no encoder 'rbg'"):
        as_encoder("rbg")
    with pytest.raises(SettingsError, match=r"the encoder was passed as dict; pass a name or a path"):
        unchecked(tc.load_encoder)({"name": "rgb"})
    with pytest.raises(WeightsError, match="the module Linear cannot encode an image"):
        as_encoder(torch.nn.Linear(2, 2))
    with pytest.raises(SettingsError, match="there is no propagate preset 'fats'; did you mean fast"):
        as_config("fats")
    with pytest.raises(SettingsError, match=r"the settings were passed as a dict; pass the name of a preset"):
        unchecked(as_config)({"neighbours": 5})


def test_run_with_a_named_encoder_can_be_corrected(clip, mask, world, tmp_path):
    tc.propagate_to_folder(str(clip), {0: mask}, tmp_path / "out", encoder="rgb", config="fast")
    assert tc.correct(tmp_path / "out", {3: tc.Masks(world.mask(3))})


def test_run_with_an_open_video_and_a_loaded_encoder_can_be_corrected(clip, mask, world, tmp_path):
    frames = tmp_path / "frames"
    frames.mkdir()
    for t, image in enumerate(world.video()):
        Image.fromarray(image).save(frames / f"{t}.png")
    for name, video in (("file", tc.open_video(clip)), ("images", tc.open_video(frames, fps=12.5))):
        out = tmp_path / name
        tc.propagate_to_folder(video, {0: mask}, out, encoder=tc.load_encoder("rgb"), config="fast")
        assert tc.correct(out, {3: tc.Masks(world.mask(3))})


def test_min_confidence_for_coordinates_is_refused_at_the_call(clip, world, tmp_path):
    coordinates = tc.Coordinates.of_image(64, 96)
    confidence = tc.ConfidenceConfig(min_confidence=0.5)
    with pytest.raises(LabelError, match="coordinates have no background that could replace uncertain ones"):
        tc.propagate(clip, {0: coordinates}, encoder="rgb", confidence=confidence)
    with pytest.raises(LabelError, match="coordinates have no background that could replace uncertain ones"):
        tc.propagate_to_folder(clip, {0: coordinates}, tmp_path / "out", encoder="rgb", confidence=confidence)
    assert not (tmp_path / "out").exists()


# Reading and writing every kind of labels


@pytest.mark.parametrize("path_type", [str, Path])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_reads_and_writes_strings_and_paths(kind, path_type, tmp_path):
    ids = np.eye(6, dtype=np.uint16)
    labels = {
        "masks": tc.Masks(ids),
        "parts": tc.Parts(ids, ids),
        "keypoints": tc.Keypoints(("nose",), np.ones((1, 2), np.float32), np.ones(1, bool)),
        "texture": striped(tc.Masks(ids)),
        "coordinates": tc.Coordinates.of_image(6, 6),
    }[kind]
    path = path_type(tmp_path / f"00007{labels.suffix}")
    labels.write(path)
    again = KINDS[kind].read(path)
    for field in dataclasses.fields(labels):
        if field.compare:
            assert np.array_equal(getattr(again, field.name), getattr(labels, field.name))


# Open files


linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed only on Linux")


def open_files(path: Path) -> int:
    gc.collect()
    links = (link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return sum(link == path.resolve() for link in links)


@pytest.fixture
def opened(monkeypatch):
    """All videos that the API opens, referenced so that garbage collection does not close them."""
    videos = []
    plain = inputs.open_video
    monkeypatch.setattr(inputs, "open_video", lambda source: videos.append(plain(source)) or videos[-1])
    return videos


@linux
@pytest.mark.parametrize("how", ["ended", "closed", "abandoned", "never started", "refused"])
def test_video_opened_by_propagate_is_closed_with_the_iterator(clip, mask, opened, how):
    annotations = {2: mask, 40 if how == "refused" else 0: mask}
    if how == "refused":
        with pytest.raises(LabelError, match="frame 40"):
            tc.propagate(clip, annotations, encoder="rgb", config="fast")
    else:
        frames = tc.propagate(clip, annotations, encoder="rgb", config="fast")
        if how != "never started":
            next(frames)
        if how == "ended":
            list(frames)
        if how == "closed":
            frames.close()
        del frames
    assert len(opened) == 1
    assert open_files(clip) == 0


@linux
def test_video_opened_for_a_run_is_closed_and_a_passed_one_stays_open(clip, mask, opened, tmp_path):
    tc.propagate_to_folder(clip, {0: mask}, tmp_path / "a", encoder="rgb", config="fast")
    assert len(opened) == 1
    assert open_files(clip) == 0
    with tc.open_video(clip) as video:
        video[1]
        assert len(list(tc.propagate(video, {0: mask}, encoder="rgb", config="fast"))) == FRAMES
        assert open_files(clip) == 1
    assert open_files(clip) == 0


# repr


def test_repr_is_one_short_line(clip, mask, world):
    video = tc.open_video(clip)
    labels = tc.Masks.of(np.arange(64 * 96).reshape(64, 96))
    points = tc.Keypoints(
        tuple(f"point number {i} of them" * 9 for i in range(40)), np.ones((40, 2), np.float32), np.ones(40, bool)
    )
    encoder = tc.load_encoder("rgb")
    state = tc.Propagator(encoder)
    state.step(video[0], tc.Masks(world.mask(0)))
    frames = list(tc.propagate(video, {0: mask}, encoder="rgb", config="fast"))
    values = [
        *frames,
        dataclasses.replace(frames[-1], labels=labels),
        labels,
        tc.Parts(labels.ids, labels.ids),
        points,
        striped(labels),
        tc.Coordinates.of_image(64, 96),
        video,
        video[0],
        encoder.encode(world.frame(0)),
        tc.correspond(world.frame(0), world.frame(1), encoder=encoder),
        state,
        state.latest,
    ]
    for value in values:
        assert len(repr(value)) <= 220, repr(value)
        assert "\n" not in repr(value)
    assert repr(tc.Masks(world.mask(0))) == "Masks(2 objects: 1, 2; 96x64 px)"
    assert repr(points).endswith("; 40 visible)")


# The README


@pytest.mark.slow  # type checks everything the script imports, torch among it
def test_readme_script_passes_mypy_strict(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "script.py").write_text(text.split("```python\n")[1].split("```")[0], encoding="utf-8")
    source = str(Path(tc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "script.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Wrong arguments of Propagator.step


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((64, 96, 3), np.float64),
        np.zeros((64, 96), np.uint8),
        np.zeros((64, 96, 4), np.uint8),
        torch.zeros(64, 96, 3, dtype=torch.uint8),
        None,
    ],
)
def test_image_that_is_not_uint8_rgb_is_refused_and_changes_no_state(image, world):
    state = tc.Propagator(tc.load_encoder("rgb"))
    masks = tc.Masks(world.mask(0))
    with pytest.raises(VideoError, match=r"an image was passed as .*; pass a frame of a video, or RGB as an array"):
        unchecked(tc.Propagator.step)(state, image, masks)
    with pytest.raises(VideoError, match="an image was passed as"):
        unchecked(rgb_of)(image)
    with pytest.raises(LabelError, match="the stream has no labels yet"):
        state.step(world.frame(0))
    assert (state.step(world.frame(0), masks).ids == masks.ids).all()


def test_refused_step_changes_no_state(world):
    state = tc.Propagator(tc.load_encoder("rgb"))
    state.step(world.frame(0), tc.Masks(world.mask(0)))
    small = tc.Masks(np.full((32, 32), 9, np.uint16))
    with pytest.raises(VideoError, match="frame 1 is 32x32"):
        state.step(np.zeros((32, 32, 3), np.uint8), small)
    alone = tc.Propagator(tc.load_encoder("rgb"))
    alone.step(world.frame(0), tc.Masks(world.mask(0)))
    assert (state.step(world.frame(1)).ids == alone.step(world.frame(1)).ids).all()


def test_wrong_arguments_are_refused_with_what_is_expected():
    """The process has no type checks of the tests, like those of users."""
    expected = {
        "tc.Propagator('rgb')": "passed as str; load it first",
        "tc.Propagator(encoder, 'fast')": "the settings were passed as str; read them first",
        "tc.Propagator(encoder).step(image, image[..., 0])": "were passed as ndarray; pass tc.Masks.of(array)",
        "tc.Texture(image)": "a texture is an array of uint8 with the shape (4, 4, 3)",
        "tc.Coordinates(image / 1)": "coordinates are an array of float64 with the shape (4, 4, 3)",
        "tc.Keypoints(('nose',), [[3, 4]], [True])": "points were passed as a list with visibilities as a list",
    }
    script = (
        "import json, numpy as np, timecycle as tc\n"
        "encoder, image = tc.load_encoder('rgb'), np.zeros((4, 4, 3), np.uint8)\n"
        f"for expression in {list(expected)}:\n"
        "    try: eval(expression)\n"
        "    except tc.TimecycleError as error: print(json.dumps(str(error)))\n"
        "    else: print(json.dumps('nothing was raised'))"
    )
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    for (expression, message), error in zip(expected.items(), map(json.loads, printed.splitlines()), strict=True):
        assert message in error, expression


def test_arrays_of_1_and_of_255_are_noted_as_two_objects(world, mask, caplog):
    one = world.mask(0) == 1
    as_labels({0: one, 3: one.astype(np.uint8) * 255})
    assert "note: the annotation of frame 3 shows object 255 and the annotation of frame 0 object 1" in caplog.text
    caplog.clear()
    as_labels({0: one, 3: one})
    assert not caplog.text


def test_pillow_images_are_masks(world):
    image = Image.fromarray(world.mask(0).astype(np.uint8))
    assert (as_labels({0: image})[0].ids == world.mask(0)).all()
    assert (as_labels(image)[0].ids == world.mask(0)).all()


def test_single_override_may_be_a_string():
    assert tc.propagate_config("fast", "neighbours=5").neighbours == 5


def test_unfinished_iterator_at_exit_leaves_no_files_and_no_warnings(clip, mask, tmp_path):
    script = f"import timecycle as tc; s = tc.propagate({str(clip)!r}, {str(mask)!r}, encoder='rgb'); next(s)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert "Warning" not in done.stderr
    assert not list(tmp_path.glob("timecycle-*"))


def test_resuming_a_finished_run_changes_nothing(clip, mask, tmp_path):
    tc.propagate_to_folder(clip, mask, tmp_path / "out", encoder="rgb", config="fast")
    before = (tmp_path / "out" / "frames.csv").stat().st_mtime_ns
    again = tc.propagate_to_folder(clip, mask, tmp_path / "out", encoder="rgb", config="fast", resume=True)
    assert len(again) == FRAMES
    assert (tmp_path / "out" / "frames.csv").stat().st_mtime_ns == before
    config = tc.propagate_config("fast", "neighbours=3")
    with pytest.raises(OutputError, match="was begun with config neighbours"):
        tc.propagate_to_folder(clip, mask, tmp_path / "out", encoder="rgb", config=config, resume=True)
