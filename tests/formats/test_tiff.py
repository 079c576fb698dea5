"""TIFF stacks as videos and as labels: as tifffile and ImageJ write them, of 8 and 16 bits, and damaged ones."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clips import small_world
from label_samples import FPS, mask, masks
from timecycle.cli.main import main
from timecycle.errors import LabelError, TimecycleError, VideoError
from timecycle.formats.registry import read_file, recognise, write_file
from timecycle.labels import Masks
from timecycle.runs.opened import Run
from timecycle.tiff_header import is_stack
from timecycle.video import open_video

tifffile = pytest.importorskip("tifffile")


def stack(frames=5, height=12, width=20, dtype=np.uint8, top=255):
    values = np.random.default_rng(0).random((frames, height, width)) * top
    return values.astype(dtype)


@pytest.mark.parametrize("imagej", [True, False])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_frames_of_eight_bits_are_read_exactly(tmp_path, imagej, compression):
    images = stack()
    tifffile.imwrite(tmp_path / "a.tif", images, imagej=imagej, compression=compression, metadata={"axes": "TYX"})
    video = open_video(tmp_path / "a.tif")
    assert (len(video), video.size.shape, video.assumed_fps) == (5, (12, 20), 24.0)
    for frame in video:
        assert np.array_equal(frame.image, np.repeat(images[frame.index][..., None], 3, 2))
    assert np.array_equal(video[3].image[..., 0], images[3])
    assert [frame.index for frame in video.backwards()] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_sixteen_bits_are_scaled_by_percentiles_of_the_whole_stack(tmp_path, byteorder):
    images = stack(frames=6, height=50, width=60, dtype=np.uint16, top=1000) + 200
    images[3:] += 2000  # later frames are brighter: the scale must cover them too
    images[0, 0, 0] = 65535  # a hot pixel
    tifffile.imwrite(tmp_path / "a.tif", images, imagej=byteorder == ">", byteorder=byteorder, metadata={"axes": "TYX"})
    pixels = np.stack([frame.image[..., 0] for frame in open_video(tmp_path / "a.tif")]).astype(int)
    assert pixels[:3].mean() < 80
    assert pixels[3:].mean() > 150
    order = np.argsort(images[4].ravel())
    assert (np.diff(pixels[4].ravel()[order]) >= 0).all()
    assert pixels.min() == 0
    assert pixels.max() == 255


def test_channels_become_colours(tmp_path):
    images = np.stack([stack(), 255 - stack()], axis=1)
    tifffile.imwrite(tmp_path / "two.tif", images, imagej=True, metadata={"axes": "TCYX"})
    frame = open_video(tmp_path / "two.tif")[2].image
    assert np.array_equal(frame[..., 0], images[2, 0])
    assert np.array_equal(frame[..., 1], images[2, 1])
    assert not frame[..., 2].any()
    rgb = np.random.default_rng(1).integers(0, 256, (4, 12, 20, 3), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "rgb.tif", rgb, photometric="rgb")
    assert np.array_equal(open_video(tmp_path / "rgb.tif")[3].image, rgb[3])


def test_times_of_imagej_are_those_of_the_video_and_fps_replaces_them(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", stack(), imagej=True, metadata={"axes": "TYX", "finterval": 2.5})
    video = open_video(tmp_path / "a.tif")
    assert video[2].time_seconds == 5.0
    assert video.assumed_fps is None
    assert open_video(tmp_path / "a.tif", fps=10)[2].time_seconds == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("axes", "shape", "problem"),
    [("TZYX", (3, 4, 12, 20), "along several axes: 3 along T, 4 along Z"), ("TCYX", (3, 5, 12, 20), "5 channels")],
)
def test_stacks_that_are_no_video_are_refused_with_a_remedy(tmp_path, axes, shape, problem):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros(shape, np.uint8), imagej=True, metadata={"axes": axes})
    with pytest.raises(VideoError, match=f"{problem}.*; save"):
        open_video(tmp_path / "a.tif")


def test_a_single_image_is_not_a_stack(tmp_path):
    tifffile.imwrite(tmp_path / "one.tif", stack(1)[0])
    assert not is_stack(tmp_path / "one.tif")
    assert len(open_video(tmp_path / "one.tif")) == 1
    assert recognise(tmp_path / "one.tif") is None


def test_damaged_stacks_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", stack(), compression="zlib", metadata=None)
    whole = (tmp_path / "a.tif").read_bytes()
    rng = np.random.default_rng(0)
    for i in range(60):
        damaged = bytearray(whole[: rng.integers(8, len(whole))] if i % 2 else whole)
        for at in rng.integers(8, len(damaged), 5):
            damaged[at] = rng.integers(0, 256)
        (tmp_path / "b.tif").write_bytes(bytes(damaged))
        try:
            for frame in open_video(tmp_path / "b.tif"):
                assert frame.image.shape[2] == 3
            dict(read_file(tmp_path / "b.tif", name="tiff").labels)
        except TimecycleError:
            pass


def is_open(path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("only Linux lists the open files of a process")
    return any(one.exists() and one.samefile(path) for one in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_a_closed_stack_holds_no_file_open_and_the_next_read_opens_it(tmp_path, compression, byteorder):
    path, images = tmp_path / "a.tif", stack(dtype=np.uint16, top=9)
    tifffile.imwrite(path, images, compression=compression, byteorder=byteorder, metadata={"axes": "TYX"})

    with open_video(path) as video:
        assert np.array_equal(video.values(3), images[3])
        assert is_open(path)
    assert not is_open(path)
    with video:
        assert np.array_equal(video.values(4), images[4])
        assert video[4].image.max() == 255
    assert not is_open(path)


def test_a_refused_stack_is_closed(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", stack())
    with pytest.raises(VideoError, match="more than 10 pixels") as refused:  # which keeps what the function had open
        open_video(tmp_path / "a.tif", max_pixels=10)
    assert not is_open(tmp_path / "a.tif")
    del refused


def test_a_stack_that_is_cut_off_is_refused_when_it_is_opened(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", stack(), metadata={"axes": "TYX"})
    content = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(content[: stack().nbytes])  # of the header and all images
    with pytest.raises(VideoError, match=r"a\.tif is shorter than its 5 images"):
        open_video(tmp_path / "a.tif")


def test_several_threads_read_the_same_frames(tmp_path):
    images = stack(frames=40)
    tifffile.imwrite(tmp_path / "a.tif", images, compression="zlib", metadata=None)
    video = open_video(tmp_path / "a.tif")
    wrong = []

    def read():
        wrong.extend(frame.index for frame in video if not np.array_equal(frame.image[..., 0], images[frame.index]))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tifffile_reads_written_labels_with_axes_and_interval(tmp_path):
    write_file(masks(), tmp_path / "labels.tif")
    with tifffile.TiffFile(tmp_path / "labels.tif") as file:
        assert (file.series[0].axes, file.series[0].dtype) == ("TYX", np.uint16)
        assert file.imagej_metadata["finterval"] == pytest.approx(1 / FPS)
        assert np.array_equal(file.asarray(), np.stack([mask(index).ids for index in range(7)]))


def test_ids_that_fit_are_written_in_eight_bits(tmp_path):
    few = {index: Masks(one.ids % 256) for index, one in masks().labels.items()}
    small = replace(masks(), labels=few)
    write_file(small, tmp_path / "labels.tif")
    assert tifffile.imread(tmp_path / "labels.tif").dtype == np.uint8


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, ">u2"])
def test_labels_of_napari_are_read_in_any_whole_type(tmp_path, dtype):
    ids = np.stack([mask(index).ids % 200 for index in range(6)]).astype(dtype)
    tifffile.imwrite(tmp_path / "labels.tif", ids)
    labels = read_file(tmp_path / "labels.tif")
    assert all(np.array_equal(labels.labels[index].ids, ids[index]) for index in range(6))


def test_values_that_are_no_ids_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "labels.tif", np.full((6, 4, 5), -1, np.int32))
    with pytest.raises(LabelError, match=r"frame 0 of .*ids from -1"):
        dict(read_file(tmp_path / "labels.tif").labels)
    tifffile.imwrite(tmp_path / "labels.tif", np.zeros((6, 4, 5), np.float32))
    with pytest.raises(LabelError, match="channels of float32"):
        read_file(tmp_path / "labels.tif")


def test_a_stack_of_sixteen_bits_is_propagated_through_and_corrected(tmp_path):
    world = small_world(frames=5)
    grey = world.video().mean(axis=-1)
    tifffile.imwrite(tmp_path / "clip.tif", (grey * 16 + 100).astype(np.uint16), imagej=True, metadata={"axes": "TYX"})
    ids = np.zeros((5, 64, 96), np.uint16)
    ids[0] = world.mask(0)
    tifffile.imwrite(tmp_path / "labels.tif", ids)
    words = ["propagate", tmp_path / "clip.tif", tmp_path / "labels.tif", "-o", tmp_path / "out", "--encoder", "rgb"]
    assert main([*map(str, words), "--format", "tiff"]) == 0
    run = Run(tmp_path / "out")
    assert [frame.source for frame in run.frames] == ["annotated"] + ["propagated"] * 4
    written = tifffile.imread(tmp_path / "out" / "exports" / "tiff.tif")
    assert np.array_equal(written, np.stack([run.labels[index].ids for index in range(5)]))
    Masks(world.mask(4)).write(tmp_path / "fix.png")
    assert main(["correct", str(tmp_path / "out"), f"4={tmp_path / 'fix.png'}"]) == 0
