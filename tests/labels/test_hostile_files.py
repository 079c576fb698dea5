"""Damaged, forged and special label files give one clear error, quickly and with little memory."""

import io
import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError, TimecycleError, VideoError
from timecycle.labels import Coordinates, Masks, Texture, read_labels
from timecycle.labels.keypoints import read_keypoints
from timecycle.labels.names import read_names
from timecycle.video import open_video


def write_mask(path: Path, *, height: int = 48, width: int = 64) -> Path:
    ids = np.zeros((height, width), np.uint16)
    ids[10:30, 20:40] = 1
    ids[15:20, 45:60] = 2
    Masks(ids).write(path)
    return path


def test_mask_with_a_flipped_bit_is_refused_or_unchanged(tmp_path: Path) -> None:
    data = write_mask(tmp_path / "a.png").read_bytes()
    whole, path = Masks.read(tmp_path / "a.png").ids, tmp_path / "b.png"
    for position in range(len(data)):
        mutant = bytearray(data)
        mutant[position] ^= 1 << position % 8
        path.write_bytes(mutant)
        try:
            ids = Masks.read(path).ids
        except LabelError:
            continue
        assert np.array_equal(ids, whole), position


def test_error_for_a_damaged_png_frame_names_the_file(tmp_path: Path) -> None:
    for number in range(3):
        Image.fromarray(np.full((16, 16, 3), 80 * number, np.uint8)).save(tmp_path / f"{number}.png")
    data = bytearray((tmp_path / "1.png").read_bytes())
    data[data.index(b"IDAT") + 9] ^= 16
    (tmp_path / "1.png").write_bytes(data)
    with pytest.raises(VideoError, match=r"1\.png is damaged: its chunk at byte \d+ does not match its checksum"):
        list(open_video(tmp_path))


@pytest.mark.parametrize("kind", ["EPS", "GIF", "PPM", "ICNS", "PCX"])
def test_only_supported_formats_are_opened_regardless_of_the_suffix(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mask.png"
    size = (32, 32) if kind == "ICNS" else (16, 16)
    Image.new("RGB", size).save(path, format=kind)
    for read in (Masks.read, Texture.read, open_video):
        with pytest.raises(TimecycleError, match=r"mask\.png cannot be read as an image"):
            read(path)


@pytest.mark.parametrize("name", ["x.mp4", "x.png", "x.csv", "x.npy", "x.json"])
def test_pipes_are_refused_without_blocking(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    readers = {".csv": [read_keypoints], ".npy": [Coordinates.read], ".json": [read_names], ".mp4": [open_video]}
    for read in readers.get(path.suffix, [Masks.read, open_video]):
        with pytest.raises(TimecycleError, match="is not a regular file"):
            read(path)
    if path.suffix in {".csv", ".npy", ".png"}:
        with pytest.raises(LabelError, match="is not a regular file"):
            read_labels([path], size=(48, 64))


def test_empty_video_path_is_refused() -> None:
    with pytest.raises(VideoError, match="no video was named: its path is empty; pass the path"):
        open_video("")


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 5000 + ".png", "7=" + "b" * 5000 + ".csv", "9" * 5000 + "=a.png"])
def test_too_long_paths_are_refused(name: str) -> None:
    with pytest.raises(VideoError):
        open_video(name)
    with pytest.raises(LabelError):
        read_labels([name])


def test_invalid_patterns_are_refused(tmp_path: Path) -> None:
    for pattern in ("**x/*.png", "[", "a\0*.png"):
        with pytest.raises(VideoError):
            open_video(tmp_path / pattern)


def test_counting_the_pages_of_a_tiff_stops_at_100(tmp_path: Path) -> None:
    """The file has forty thousand directories without an image, each pointing to the next."""
    path = tmp_path / "pages.tif"
    entries = ((256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 1))
    body = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    step = len(body) + 4
    directories = (body + struct.pack("<I", 16 + (page + 1) * step) for page in range(40_000))
    path.write_bytes(struct.pack("<2sHI8x", b"II", 42, 16) + b"".join(directories) + body + bytes(4))
    with pytest.raises(TimecycleError, match="holds 100 or more images"):
        Masks.read(path)


def forged_png(height: int, width: int) -> bytes:
    """Return a black grey PNG, as small as deflate makes it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    press = zlib.compressobj(9)
    rows = b"".join(press.compress(bytes(width + 1)) for _ in range(height)) + press.flush()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("frame", "problem"),
    [((64, 96), "are 8190x8190 but the frame is 96x64"), ((64, 64), r"is 8190x8190, far larger than the frame")],
)
def test_size_of_a_mask_is_checked_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: tuple[int, int], problem: str
) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(forged_png(8190, 8190))
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    with pytest.raises(LabelError, match=problem):
        read_labels([path], size=frame)


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, xy=np.zeros((4, 4, 2), np.float32))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"PK\x03\x04 no archive",
        npz(),
        npz()[:-30],
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000, 2), }"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(64)),
        npy("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(64)),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(64)),
        npy("{'descr': '<U4', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(128)),
        npy("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(64)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, 2), }", struct.pack("<2d", 1e300, 0)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 2, 2), }", bytes(64)),
        npy("(" * 3000),
        npy("\0"),
    ],
)
def test_invalid_npy_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.npy"
    path.write_bytes(content)
    with pytest.raises(LabelError, match=r"cannot read .*c\.npy as coordinates"):
        Coordinates.read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"frame,name,x,y\n" + b"1" * 5000 + b",nose,1,2\n",
        b"frame,name,x,y\n0,nose,\xff\xfe,2\n",
        b"frame,name,x,y\n0,nose,1" + b"e" * 200_000 + b",2\n",
        b"frame,name,x,y\n\0\0\0",
    ],
)
def test_unreadable_csv_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    with pytest.raises(LabelError, match=r"p\.csv"):
        read_keypoints(path)


def test_points_with_huge_coordinates_are_hidden(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"frame,name,x,y\n0,nose,{'9' * 5000},2\n0,tail,1e300,1\n0,ear,3,4\n")
    assert read_keypoints(path)[0].visible.tolist() == [False, False, True]


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"1": ' * 50_000,
        b'{"1": "\xff"}',
        b'{"' + b"1" * 5000 + b'": "dog"}',
        b'{"1": ' + b"1" * 5000 + b"}",
        b'{"1": "' + b"d" * 5000 + b'"}',
        b'{"1": "\\ud800"}',
    ],
)
def test_invalid_names_are_refused_with_a_short_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "names.json"
    path.write_bytes(content)
    with pytest.raises(LabelError) as caught:
        read_names(path)
    assert len(str(caught.value)) < 700


KINDS = {"mask.png": "masks", "many.png": "masks", "deep.png": "parts", "rgba.png": "texture", "m.bmp": "masks"}
KINDS |= {"m.tif": "masks", "c.npy": "coordinates", "pts.csv": "keypoints"}


@pytest.mark.parametrize("name", KINDS)
def test_mutated_label_files_give_labels_or_a_label_error(data: Path, tmp_path: Path, name: str) -> None:
    content, path = (data / "damaged" / "intact" / name).read_bytes(), tmp_path / name
    chance = random.Random(name)
    for _ in range(100):
        mutant = bytearray(content)
        for _ in range(chance.choice([1, 3, 10])):
            position = chance.randrange(min(len(content), chance.choice([64, 1024, len(content)])))
            mutant[position] = chance.choice(
                [0, 255, mutant[position] ^ 1 << chance.randrange(8), chance.randrange(256)]
            )
        path.write_bytes(mutant[: chance.choice([len(mutant), len(mutant), chance.randrange(len(mutant))])])
        try:
            read_labels([path], kind=KINDS[name], size=(64, 96))
        except LabelError:
            continue
