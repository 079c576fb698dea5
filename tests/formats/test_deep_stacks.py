"""Stacks of more than 8 bits or one channel, on the whole way: frames, labels, measurements, the page, training."""

import csv
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from clips import small_world, write_mask
from served import served
from timecycle.cli.main import main
from timecycle.data.corpus.footage import read_frames
from timecycle.data.corpus.index import find_videos
from timecycle.errors import VideoError
from timecycle.runs.opened import Run
from timecycle.video import open_video
from timecycle.video.source import VideoSlice
from timecycle.video.tiff import seconds_per_frame

tifffile = pytest.importorskip("tifffile")


def noise(*shape, top=4000, dtype=np.uint16):
    return (np.random.default_rng(0).random(shape) * top).astype(dtype)


def write(path, array, axes="TYX", **more):
    """Write as ImageJ does."""
    tifffile.imwrite(path, array, imagej=True, metadata={"axes": axes, **more})
    return path


def images(path):
    return np.stack([frame.image for frame in open_video(path)])


def run(*words) -> int:
    return main([str(word) for word in words])


def measured(folder, index, name="mean_intensity"):
    with (folder / "measurements.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["index"] == str(index)]
        return [float(row[name]) for row in rows if row[name]]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.float32])
def test_values_times_a_constant_give_the_same_frames(tmp_path, dtype):
    values = noise(6, 40, 60)
    one = write(tmp_path / "one.tif", values)
    tifffile.imwrite(tmp_path / "other.tif", values.astype(dtype) * dtype(8), metadata=None)
    assert np.array_equal(images(one), images(tmp_path / "other.tif"))


def test_a_stack_has_the_frames_of_a_folder_with_the_same_images(tmp_path):
    for dtype, top in ((np.uint8, 255), (np.uint16, 4000)):
        values = noise(20, 40, 60, top=top, dtype=dtype)
        values[7:] //= 2
        for suffix in ("png", "tif"):
            folder = tmp_path / f"{np.dtype(dtype)}-{suffix}"
            folder.mkdir()
            for index, image in enumerate(values):
                Image.fromarray(image).save(folder / f"{index:02d}.{suffix}")
            assert np.array_equal(images(write(tmp_path / "a.tif", values)), images(folder))


def test_channels_are_scaled_each_by_itself_and_colours_together(tmp_path):
    values = noise(5, 2, 40, 60)
    dim = values.copy()
    dim[:, 1] //= 16
    both, dimmed = (images(write(tmp_path / f"{i}.tif", one, "TCYX")) for i, one in enumerate((values, dim)))
    assert np.abs(both.astype(int) - dimmed)[..., 1].max() <= 1
    assert np.array_equal(both[..., 0], dimmed[..., 0])
    assert not both[..., 2].any()
    rgb = np.moveaxis(noise(5, 3, 40, 60), 1, -1)
    rgb[..., 1] //= 16
    tifffile.imwrite(tmp_path / "rgb.tif", rgb, photometric="rgb")
    green = images(tmp_path / "rgb.tif")[..., 1]
    assert green.max() <= 255 / 16 + 1


def test_order_of_channels_is_that_of_colours(tmp_path):
    values = noise(5, 3, 40, 60)
    forth = images(write(tmp_path / "a.tif", values, "TCYX"))
    assert np.array_equal(images(write(tmp_path / "b.tif", values[:, ::-1], "TCYX")), forth[..., ::-1])
    tifffile.imwrite(tmp_path / "c.ome.tif", np.moveaxis(values, 1, 0), metadata={"axes": "CTYX"})
    assert np.array_equal(images(tmp_path / "c.ome.tif"), forth)
    tifffile.imwrite(tmp_path / "d.tif", values, imagej=True, compression="zlib", metadata={"axes": "TCYX"})
    assert np.array_equal(images(tmp_path / "d.tif"), forth)


@pytest.mark.parametrize(
    ("shape", "written", "problem"),
    [
        (
            (5, 2, 40, 60),
            {},
            "of its axes are times and channels: 5 x 2 x 40 x 60; save it from ImageJ",
        ),
        ((5, 40, 60, 2), {}, "does not say which of its axes are times and channels: 5 x 40 x 60 x 2"),
        ((3, 4, 2, 40, 60), {"imagej": True, "axes": "TZCYX"}, "3 along T, 4 along Z; save one plane, or a projection"),
        ((50, 40, 60), {"imagej": True, "axes": "CYX"}, "50 channels; save at most three .* if they are times, Image"),
        ((5, 2, 40, 60, 3), {"imagej": True, "axes": "TCYXS", "dtype": np.uint8}, "2 channels of 3 colours each"),
        ((5, 40, 60), {"dtype": np.complex64}, "values of complex64; save whole"),
    ],
)
def test_stacks_without_one_axis_of_time_are_refused(tmp_path, shape, written, problem):
    metadata = {"axes": written["axes"]} if "axes" in written else {}
    values = np.ones(shape, written.get("dtype", np.uint16))
    tifffile.imwrite(tmp_path / "a.tif", values, imagej=written.get("imagej", False), metadata=metadata)
    with pytest.raises(VideoError, match=problem):
        open_video(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("noted", "seconds"),
    [
        ({"finterval": 2.0}, 2.0),
        ({"finterval": 2.0, "tunit": "min"}, 120.0),
        ({"finterval": 250, "tunit": "ms"}, 0.25),
        ({"finterval": 2.0, "tunit": "fortnights"}, None),
        ({"fps": 4.0}, 0.25),
        ({}, None),
    ],
)
def test_intervals_of_imagej_are_read_in_their_unit(tmp_path, noted, seconds):
    assert seconds_per_frame(noted, None) == seconds
    video = open_video(write(tmp_path / "a.tif", noise(3, 40, 60), **noted))
    assert video[1].time_seconds == pytest.approx(seconds or 1 / 24)


def test_intervals_of_ome_are_read_in_their_unit(tmp_path):
    metadata = {"axes": "TYX", "TimeIncrement": 2.0, "TimeIncrementUnit": "min"}
    tifffile.imwrite(tmp_path / "a.ome.tif", noise(3, 40, 60), metadata=metadata)
    assert open_video(tmp_path / "a.ome.tif")[1].time_seconds == 120.0


def test_values_are_those_of_the_file_where_the_image_has_others(tmp_path):
    deep = noise(4, 40, 60)
    video = open_video(write(tmp_path / "a.tif", deep))
    assert np.array_equal(video.values(2), deep[2])
    assert np.array_equal(VideoSlice(video, 1, 3).values(1), deep[2])
    two = noise(4, 2, 40, 60, top=255, dtype=np.uint8)
    assert np.array_equal(open_video(write(tmp_path / "b.tif", two, "TCYX")).values(3), np.moveaxis(two[3], 0, -1))
    assert open_video(write(tmp_path / "c.tif", two[:, 0])).values(1) is None
    (tmp_path / "png").mkdir()
    for index, image in enumerate(deep):
        Image.fromarray(image).save(tmp_path / "png" / f"{index}.png")
    assert np.array_equal(open_video(tmp_path / "png").values(1), deep[1])


@pytest.mark.parametrize("kind", ["uint16", "float32", "two channels"])
def test_intensities_are_measured_in_the_units_of_the_file(tmp_path, kind):
    world = small_world(frames=4)
    grey = world.video().mean(axis=-1)
    values = {
        "uint16": (grey * 16 + 100).astype(np.uint16),
        "float32": (grey / 1000).astype(np.float32),
        "two channels": np.stack([grey * 16, grey * 2], axis=1).astype(np.uint16),
    }[kind]
    write(tmp_path / "clip.tif", values, "TCYX" if kind == "two channels" else "TYX")
    words = ("propagate", tmp_path / "clip.tif", write_mask(tmp_path / "first.png", world), "--encoder", "rgb")
    assert run(*words, "-o", tmp_path / "out") == 0

    def expected(index):
        ids = Run(tmp_path / "out").labels[index].ids
        frame = values[index] if kind == "two channels" else values[index][None]
        return [frame[:, ids == i].astype(float).mean() for i in np.unique(ids[ids > 0])]

    digits = 1e-6 if kind == "float32" else 0.006
    for index in (0, 2):
        assert measured(tmp_path / "out", index) == pytest.approx(expected(index), abs=digits)
    write_mask(tmp_path / "fix.png", world, 3)
    assert run("correct", tmp_path / "out", f"3={tmp_path / 'fix.png'}") == 0
    assert measured(tmp_path / "out", 3) == pytest.approx(expected(3), abs=digits)
    assert run("audit", tmp_path / "clip.tif", tmp_path / "out" / "labels", "--encoder", "rgb") == 0


def test_labels_do_not_depend_on_the_scale_of_the_values(tmp_path):
    world = small_world(frames=4)
    grey = world.video().mean(axis=-1).astype(np.uint16)
    mask, labels = write_mask(tmp_path / "first.png", world), []
    for factor in (1, 64):
        clip = write(tmp_path / f"{factor}.tif", grey * np.uint16(factor))
        assert run("propagate", clip, mask, "--encoder", "rgb", "-o", tmp_path / f"out{factor}") == 0
        labels.append([Run(tmp_path / f"out{factor}").labels[index].ids for index in range(4)])
    assert np.array_equal(*labels)


def test_a_folder_of_stacks_is_one_of_videos_to_train_on(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.tif", noise(6, 40, 60))
    assert list(find_videos(tmp_path)) == ["a.tif", "b.tif"]
    read = read_frames(tmp_path / "a.tif", [1, 4])
    assert np.array_equal(np.stack(read), images(tmp_path / "a.tif")[[1, 4]])


def test_training_reads_deep_images_with_the_brightness_of_their_folder(tmp_path):
    values = noise(20, 40, 60)
    values[0] //= 8  # the first is dark
    for index, image in enumerate(values):
        Image.fromarray(image).save(tmp_path / f"{index:02d}.png")
    assert np.array_equal(np.stack(read_frames(tmp_path, [3, 9])), images(tmp_path)[[3, 9]])


def test_the_page_lists_and_opens_stacks(tmp_path):
    pytest.importorskip("starlette")
    clips = tmp_path / "clips"
    clips.mkdir()
    for name in ("a", "b"):
        write(clips / f"{name}.tif", noise(5, 40, 60))
    Image.fromarray(noise(40, 60)).save(clips / "one.tif")
    with served(clips, cwd=tmp_path) as page:
        listed = {one["name"]: one["kind"] for one in page.ask("GET", "/api/browse").json["entries"]}
        assert listed == {"a.tif": "video", "b.tif": "video"}
        assert page.ask("POST", "/api/open", {"path": "b.tif"}).status == 200
        video = page.project()["video"]
        assert (video["frames"], video["width_px"], video["height_px"]) == (5, 60, 40)
        answer = page.ask("GET", f"/api/frames/{page.project()['key']}/2")
        assert (answer.status, answer.headers["content-type"].partition("/")[0]) == (200, "image")


@pytest.mark.parametrize(("codec", "deep", "shallow"), [("ffv1", "gray10le", "gray"), ("ffv1", "gray16le", "gray")])
def test_video_of_more_bits_has_the_frames_of_its_eight_bit_version(tmp_path, codec, deep, shallow):
    full = noise(3, 48, 64, top=255.99, dtype=np.uint8)
    bits = 10 if deep == "gray10le" else 16
    for name, format_, values in (
        ("deep", deep, full.astype(np.uint16) << (bits - 8)),
        ("shallow", shallow, full),
    ):
        with av.open(str(tmp_path / f"{name}.mkv"), "w") as container:
            stream = container.add_stream(codec, rate=24)
            stream.width, stream.height, stream.pix_fmt, stream.time_base = 64, 48, format_, Fraction(1, 24)
            for index, image in enumerate(values):
                frame = av.VideoFrame.from_ndarray(image, format=format_)
                frame.pts = index
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    difference = images(tmp_path / "deep.mkv").astype(int) - images(tmp_path / "shallow.mkv")
    assert np.abs(difference).max() <= 1
