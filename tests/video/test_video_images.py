"""Videos from image folders, patterns, single images and arrays."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coded_footage import code_of, coded_image, write_footage
from PIL import Image
from PIL.ExifTags import Base as ExifTag

from timecycle.errors import VideoError
from timecycle.video import Size, open_video
from timecycle.video.images import _missing_frame


def save(folder: Path, names: list[str], *, first: int = 0) -> Path:
    """Write coded images under these names to the folder and return it."""
    folder.mkdir(exist_ok=True)
    for index, name in enumerate(names, start=first):
        Image.fromarray(coded_image(index)).save(folder / name)
    return folder


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "png", "bmp", "tif", "tiff", "webp", "JPG"])
def test_a_folder_is_read_in_natural_order(tmp_path: Path, suffix: str) -> None:
    folder = save(tmp_path / "frames", [f"frame{number}.{suffix}" for number in range(8, 12)])
    (folder / "notes.txt").write_text("not a frame")
    (folder / ".hidden.png").write_text("not a frame either")
    (folder / "inner.png").mkdir()
    video = open_video(folder, fps=12)
    assert [code_of(frame.image) for frame in video] == [0, 1, 2, 3]
    assert [code_of(frame.image) for frame in video.backwards()] == [3, 2, 1, 0]
    assert (video.time_base, list(video.pts), video.size) == (Fraction(1, 12), [0, 1, 2, 3], Size(48, 64))
    assert video[-1].time_seconds == pytest.approx(3 / 12)


def test_a_pattern_may_have_gaps(tmp_path: Path) -> None:
    save(tmp_path, ["1.png", "2.png", "9.png", "10.png", "mask.jpg"])
    video = open_video(str(tmp_path / "*.png"))
    assert [code_of(frame.image) for frame in video] == [0, 1, 2, 3]
    with pytest.raises(VideoError, match=r"no image matches .*x\*\.png; check the pattern, and quote it"):
        open_video(str(tmp_path / "x*.png"))


def test_an_image_is_a_video_of_one_frame(tmp_path: Path) -> None:
    video = open_video(save(tmp_path, ["only.png"]) / "only.png")
    assert len(video) == 1
    assert np.array_equal(video[0].image, coded_image(0))
    assert [frame.index for frame in video.backwards()] == [0]


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["00000.jpg", "00001.jpg", "00003.jpg"], (2, "00002.jpg")),
        (["a1_8.png", "a1_9.png", "a1_11.png", "a1_12.png"], (10, "a1_10.png")),
        (["0.jpg", "5.jpg", "10.jpg", "20.jpg"], (15, "15.jpg")),
        (["0.jpg", "5.jpg", "10.jpg", "15.jpg"], None),
        (["3.jpg", "4.jpg"], None),
        (["7.jpg"], None),
        (["100.jpg", "137.jpg", "191.jpg"], None),
        (["1.jpg", "2.jpg", "90.jpg", "200.jpg", "300.jpg"], None),
        (["left1.jpg", "right3.jpg", "right4.jpg"], None),
        (["1.jpg", "2.jpg", "cover.jpg"], None),
        (["1.jpg", "01.jpg", "4.jpg"], None),
    ],
)
def test_a_gap_in_a_numbered_series_is_found(names: list[str], missing: tuple[int, str] | None) -> None:
    assert _missing_frame(names) == missing


def test_a_missing_frame_is_an_error(tmp_path: Path) -> None:
    folder = save(tmp_path / "frames", ["00002.jpg", "00003.jpg", "00005.jpg"])
    with pytest.raises(VideoError, match=r"frame 4 \(.*00004\.jpg\) is missing; restore it, or pass a pattern"):
        open_video(folder)
    assert len(open_video(str(folder / "*.jpg"))) == 3


def test_frames_and_masks_in_one_folder_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "mixed", ["0.jpg", "0.png", "1.jpg", "1.png"])
    with pytest.raises(VideoError, match=r"holds both 0\.jpg and 0\.png; keep one kind"):
        open_video(folder)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"holds no images .*; pass the folder whose files are the frames"):
        open_video(tmp_path)


def test_images_of_different_size_are_refused_on_opening(tmp_path: Path) -> None:
    folder = save(tmp_path / "frames", ["0.png", "1.png", "2.png"])
    Image.new("RGB", (10, 20)).save(folder / "1.png")
    with pytest.raises(VideoError, match=r"1\.png is 10x20 but 0\.png is 64x48; bring all frames to one size"):
        open_video(folder)


def test_a_truncated_image_is_an_error(tmp_path: Path) -> None:
    folder = save(tmp_path / "frames", ["0.png", "1.png"])
    data = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(data[: len(data) // 2])
    video = open_video(folder)
    with pytest.raises(VideoError, match=r"1\.png is damaged: its chunk at byte \d+ is incomplete; copy it again"):
        list(video)


def test_an_image_that_changed_after_opening_is_an_error(tmp_path: Path) -> None:
    folder = save(tmp_path / "frames", ["0.png", "1.png"])
    video = open_video(folder)
    Image.new("RGB", (10, 20)).save(folder / "1.png")
    with pytest.raises(VideoError, match=r"1\.png is 10x20 but 0\.png is 64x48"):
        list(video)
    (folder / "1.png").unlink()
    with pytest.raises(VideoError, match=r"frames cannot be read: .*; restore the image files"):
        video.fingerprint()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    Image.fromarray(coded_image(5)).convert(mode).save(path)
    video = open_video(path)
    assert video[0].image.shape == (48, 64, 3)
    assert code_of(video[0].image) == 5


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_exif_orientation_is_applied(tmp_path: Path, suffix: str, orientation: int) -> None:
    upright = np.arange(48 * 64, dtype=np.uint32).reshape(48, 64) // 13
    upright = np.repeat(upright.astype(np.uint8)[:, :, None], 3, axis=2)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]
    path = tmp_path / f"image.{suffix}"
    exif = Image.Exif()
    exif[ExifTag.Orientation] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif)
    video = open_video(path)
    assert video.size == Size(48, 64)
    difference = np.abs(video[0].image.astype(int) - upright)
    assert difference.mean() < (8 if suffix == "jpg" else 1e-9)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_deep_grey_is_scaled_once_for_the_whole_video(tmp_path: Path, suffix: str) -> None:
    ramp = np.linspace(100, 4095, 48 * 64).reshape(48, 64).astype(np.uint16)
    for index, image in enumerate((ramp // 2, ramp, ramp // 4)):
        Image.fromarray(image).save(tmp_path / f"{index}.{suffix}")
    half, full, quarter = (frame.image.astype(int) for frame in open_video(tmp_path))
    assert (quarter.min(), full.max()) == (0, 255)
    assert abs(half[-1, -1, 0] - (4095 / 2 - 25) / (4095 - 25) * 255) < 4  # percentiles, not extremes
    assert np.array_equal(open_video(tmp_path)[0].image, half)


def test_a_deep_grey_image_without_contrast_is_black(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 5), 7, np.uint16)).save(tmp_path / "flat.tif")
    Image.fromarray(np.full((4, 5), np.nan, np.float32)).save(tmp_path / "nothing.tif")
    assert (open_video(tmp_path / "flat.tif")[0].image == 0).all()
    assert (open_video(tmp_path / "nothing.tif")[0].image == 0).all()


def test_mixed_bit_depths_are_refused(tmp_path: Path) -> None:
    Image.new("L", (5, 4)).save(tmp_path / "0.png")
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(tmp_path / "1.png")
    with pytest.raises(VideoError, match=r"1\.png is grey with more than 8 bits but 0\.png is not; save all"):
        list(open_video(tmp_path))


def test_a_file_with_several_images_is_refused(tmp_path: Path) -> None:
    pages = [Image.new("L", (5, 4), value) for value in range(3)]
    pages[0].save(tmp_path / "moving.webp", save_all=True, append_images=pages[1:], lossless=True)
    with pytest.raises(VideoError, match=r"moving\.webp holds 3 images, .*; write every image to a file of its own"):
        open_video(tmp_path / "moving.webp")


def test_the_pixel_limit_is_checked_before_decoding(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    path = tmp_path / "large.png"
    Image.new("1", (12_000, 12_000)).save(path)
    with pytest.raises(VideoError, match=r"large\.png has more than 67108864 pixels; shrink .* raise max_pixels"):
        open_video(path)
    assert not recwarn.list


def test_an_image_above_the_limit_of_pillow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(VideoError, match="has more than"):
        open_video(save(tmp_path, ["0.png"]) / "0.png")


def test_the_fingerprint_of_a_folder_depends_on_names_and_bytes(tmp_path: Path) -> None:
    one = save(tmp_path / "one", ["0.png", "1.png"])
    same = save(tmp_path / "same", ["0.png", "1.png"])
    renamed = save(tmp_path / "renamed", ["1.png", "2.png"])
    other = save(tmp_path / "other", ["0.png", "1.png"], first=1)
    prints = [open_video(folder).fingerprint() for folder in (one, same, renamed, other)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_arrays_are_videos() -> None:
    stack = np.stack([coded_image(index) for index in range(5)])
    for video in (open_video(stack), open_video(list(stack)), open_video(stack[..., 0])):
        assert [code_of(frame.image) for frame in video] == [0, 1, 2, 3, 4]
        assert code_of(video[-2].image) == 3
        assert (video.name, video.size, video.time_base) == ("array", Size(48, 64), Fraction(1, 24))
        assert video.fingerprint() == open_video(stack).fingerprint()
    assert open_video(stack[1:]).fingerprint() != open_video(stack).fingerprint()


def test_changing_a_frame_does_not_change_the_callers_array() -> None:
    stack = np.zeros((2, 4, 4, 3), np.uint8)
    open_video(stack)[0].image[:] = 255
    assert not stack.any()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), "frame 0 has the type float32, not uint8; scale the values"),
        (np.zeros((0, 4, 4, 3), np.uint8), "holds no frames; pass at least one"),
        (np.zeros((4, 4), np.uint8), r"frame 0 is an array of shape \(4,\), not an image; pass a video as"),
        (np.zeros((2, 3, 8, 8), np.uint8), r"shape \(3, 8, 8\), not an image"),
        (np.zeros((2, 0, 4, 3), np.uint8), "it has no pixels"),
        (
            [np.zeros((4, 4), np.uint8), np.zeros((4, 5), np.uint8)],
            r"frame 1 has the shape \(4, 5\) but frame 0",
        ),
    ],
)
def test_invalid_arrays_are_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(VideoError, match=message):
        open_video(array)


def test_television_rates_are_exact() -> None:
    stack = np.zeros((2, 4, 4), np.uint8)
    assert open_video(stack, fps=24000 / 1001).time_base == Fraction(1001, 24000)
    assert open_video(stack, fps=0.5).time_base == 2


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf"), 1e-9])
def test_an_invalid_frame_rate_is_refused(fps: float) -> None:
    with pytest.raises(VideoError, match="fps"):
        open_video(np.zeros((2, 4, 4), np.uint8), fps=fps)


def test_a_frame_rate_is_refused_for_a_file_with_times(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "timed.mp4", count=2)
    with pytest.raises(VideoError, match=r"fps=30 was given for .*timed\.mp4, which has its own times; leave"):
        open_video(path, fps=30)
