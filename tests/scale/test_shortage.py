"""A shortage of the machine stops the run with a one-line error and is never recorded as a fault of a video."""

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
from timecycle.bulk.worker import BulkJob, Stopped, process_video
from timecycle.cli import main
from timecycle.errors import OutputError, ShortageError, VideoError
from timecycle.propagation.settings import PropagateConfig
from timecycle.shortages import find_shortage, raise_if_shortage

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits and memory use are read from Linux")


def wrapped(error: BaseException) -> VideoError:
    """Wrap an error as the video readers do."""
    try:
        try:
            raise error
        except BaseException as cause:
            raise VideoError("x.mp4 cannot be decoded", remedy="copy it again") from cause
    except VideoError as wrap:
        return wrap


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "memory is short while x; use fewer workers"),
        (OSError(errno.ENOMEM, "x"), "memory is short"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "memory is short"),
        (OSError(errno.EMFILE, "x"), r"too many files are open while x; raise the limit \(ulimit -n\)"),
        (OSError(errno.ENFILE, "x"), "too many files are open"),
        (av.error.OSError(errno.EMFILE, "x"), "too many files are open"),
        (BlockingIOError(errno.EAGAIN, "x"), "no more threads or processes"),
        (RuntimeError("can't start new thread"), "no more threads or processes"),
        (OSError(errno.ENOSPC, "x"), "the disk is full while x; free some space"),
        (OSError(errno.EDQUOT, "x"), "the disk quota is used up"),
        (OSError(errno.EFBIG, "x"), "a file exceeds the size limit"),
    ],
)
def test_a_shortage_is_found_behind_errors_that_wrap_it(error, message):
    for raised in (error, wrapped(error), wrapped(wrapped(error))):
        with pytest.raises(ShortageError, match=message):
            raise_if_shortage(raised, "while x")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "x"),
        ValueError("x"),
        # A damaged header that asks for too much memory, and a demuxer that needs more of the file.
        av.error.MemoryError(errno.ENOMEM, "x"),
        av.error.BlockingIOError(errno.EAGAIN, "x"),
    ],
)
def test_a_fault_of_a_video_is_no_shortage(error):
    assert find_shortage(wrapped(error), "while x") is None
    raise_if_shortage(wrapped(error), "while x")


@linux
@pytest.mark.slow  # a process that imports everything, and then seven cases
def test_shortages_are_not_recorded_as_faults_of_videos():
    """Run in a fresh process: memory and threads that other tests left would raise the limits."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    cases = Path(__file__).with_name("shortage_cases.py")
    done = subprocess.run([*words, str(cases)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "7 passed" in done.stdout


def item(videos: Path, name: str) -> Item:
    return Item(name, str(videos / f"{name}.mp4"), (str(videos / "none.png"),))


def test_bulk_stops_if_the_output_cannot_be_written(videos, tmp_path):
    (tmp_path / "file").write_text("")
    work = BulkJob(output=str(tmp_path / "file"), encoder="rgb", config=PropagateConfig(), confidence=None)
    outcome = process_video(item(videos, "0"), work)
    assert isinstance(outcome, Stopped)
    assert isinstance(outcome.error, OutputError)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 kB, and a function that enlarges it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk, lambda: subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
    subprocess.run(["umount", str(disk)], check=True)


@linux
def test_bulk_stops_on_a_full_disk_and_resumes_when_space_is_free(videos, tmp_path, small_disk, capsys):
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


def test_an_alarm_is_raised_if_most_videos_of_a_pack_are_unreadable(videos, tmp_path, capsys):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(videos / "0.mp4", mixed)
    for name in "abc":
        (mixed / f"{name}.mp4").write_bytes(b"no video")
    words = ["pack", str(mixed), str(tmp_path / "pack"), "--workers", "0"]
    assert main(words) == 1
    assert "alarm: 75% of the videos cannot be read, more than 50%: sources.jsonl says why" in capsys.readouterr().err
