"""A shortage of the machine stops the work with one line, and no video is blamed for it."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import av.error
import numpy as np
import pytest
from PIL import Image

from timecycle.bulk.manifest import Item
from timecycle.bulk.one import Stopped, Work, label_one
from timecycle.cli import main
from timecycle.data.pack import PackConfig
from timecycle.data.transcode import ClipForm
from timecycle.errors import OutputError, ShortageError, VideoError
from timecycle.propagation.settings import PropagateConfig
from timecycle.shortages import check_verdict, shortage

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits, and what is used, are told by Linux")
SMALL = PackConfig(form=ClipForm(short_side_px=48))
MB = 1 << 20


def wrapped(error: BaseException) -> VideoError:
    """As the readers of videos wrap what they meet."""
    try:
        try:
            raise error
        except BaseException as cause:
            raise VideoError("x.mp4 cannot be decoded", remedy="copy it again") from cause
    except VideoError as wrap:
        return wrap


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "memory is short while x; use fewer workers"),
        (OSError(errno.ENOMEM, "x"), "memory is short"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "memory is short"),
        (OSError(errno.EMFILE, "x"), r"too many files are open while x; raise the limit \(ulimit -n\)"),
        (OSError(errno.ENFILE, "x"), "too many files are open"),
        (av.error.OSError(errno.EMFILE, "x"), "too many files are open"),
        (BlockingIOError(errno.EAGAIN, "x"), "no more threads or processes"),
        (RuntimeError("can't start new thread"), "no more threads or processes"),
        (OSError(errno.ENOSPC, "x"), "the disk is full while x; make room"),
        (OSError(errno.EDQUOT, "x"), "the disk quota is used up"),
        (OSError(errno.EFBIG, "x"), "a file may not grow that large"),
    ],
)
def test_a_shortage_is_found_behind_whatever_wraps_it(error, said):
    for found in (error, wrapped(error), wrapped(wrapped(error))):
        with pytest.raises(ShortageError, match=said):
            check_verdict(found, "while x")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "x"),
        ValueError("x"),
        # A damaged header that asks for more than anyone has, and a demuxer that wants more of the file.
        av.error.MemoryError(errno.ENOMEM, "x"),
        av.error.BlockingIOError(errno.EAGAIN, "x"),
    ],
)
def test_what_a_video_is_to_blame_for_is_no_shortage(error):
    assert shortage(wrapped(error), "while x") is None
    check_verdict(wrapped(error), "while x")


@linux
@pytest.mark.slow  # a process that imports everything, and then runs short of it seven times
def test_no_video_is_blamed_for_a_shortage():
    """In a process of its own: what others have left free in this one, or keep running, would be room too."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    cases = Path(__file__).with_name("shortage_cases.py")
    done = subprocess.run([*words, str(cases)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "7 passed" in done.stdout


def item(videos: Path, name: str) -> Item:
    return Item(name, str(videos / f"{name}.mp4"), (str(videos / "none.png"),))


def test_bulk_stops_at_an_output_that_cannot_be_written(videos, tmp_path):
    (tmp_path / "file").write_text("")
    work = Work(place=str(tmp_path / "file"), encoder="rgb", config=PropagateConfig(), trust=None)
    outcome = label_one(item(videos, "0"), work)
    assert isinstance(outcome, Stopped)
    assert isinstance(outcome.error, OutputError)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 kB, and how to make it larger."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only an administrator may mount a small disk")
    yield place, lambda: subprocess.run(["mount", "-o", "remount,size=50m", str(place)], check=True)
    subprocess.run(["umount", str(place)], check=True)


@linux
def test_bulk_on_a_full_disk_stops_and_goes_on_when_there_is_room(videos, tmp_path, small_disk, capsys):
    disk, enlarge = small_disk
    mask = np.zeros((720, 1280), np.uint8)
    mask[200:400, 300:600] = 1
    Image.fromarray(mask).save(tmp_path / "m.png")
    rows = "".join(f"{videos / str(number)}.mp4,m.png\n" for number in range(2))
    (tmp_path / "m.csv").write_text("video,labels\n" + rows)
    words = ["bulk", str(tmp_path / "m.csv"), "-o", str(disk), "--preset", "fast", "--encoder", "rgb"]
    words += ["--set", "image_size_px=64"]
    assert main(words) == 2
    assert "error: the disk is full while " in capsys.readouterr().err
    assert not list(disk.glob("dead/*"))
    enlarge()
    assert main(words) == 0
    assert "2 of 2 videos are done" in capsys.readouterr().out


def test_most_videos_of_a_pack_unreadable_is_an_alarm(videos, tmp_path, capsys):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(videos / "0.mp4", mixed)
    for name in "abc":
        (mixed / f"{name}.mp4").write_bytes(b"no video")
    words = ["pack", str(mixed), str(tmp_path / "pack"), "--workers", "0"]
    assert main(words) == 1
    assert "alarm: 75% of the videos cannot be read, more than 50%: sources.jsonl says why" in capsys.readouterr().err
