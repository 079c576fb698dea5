"""Every format gives back what it can hold, of short and long videos, and docs/formats.md says what that is."""

import subprocess
import sys

import pytest

from format_table import PAGE, missing_extra, replaced, round_trip, same_masks, same_points
from label_samples import SAMPLES
from timecycle.errors import LabelError
from timecycle.formats.registry import FORMATS, NATIVE, recognise, write_file
from timecycle.formats.video_labels import VideoFacts

PAIRS = [
    pytest.param(one, kind, id=f"{name}-{kind}")
    for name, one in FORMATS.items()
    for kind in one.kinds
    if one.read and one.write and kind in SAMPLES
]


@pytest.fixture(autouse=True)
def _extra(request):
    one = request.node.callspec.params.get("one") if hasattr(request.node, "callspec") else None
    if one is not None and missing_extra(one):
        pytest.skip(f"{missing_extra(one)} is not installed")


@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_labels_come_back(one, kind, tmp_path):
    before = SAMPLES[kind]()
    after = round_trip(before, one, tmp_path)
    assert after.kind is before.kind
    if kind == "masks":
        assert same_masks(before, after) == "exact"
    else:
        assert same_points(before, after).startswith(("exact", "within 0.00"))


@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_a_video_of_one_frame_comes_back(one, kind, tmp_path):
    before = SAMPLES[kind](1)
    after = round_trip(before, one, tmp_path)
    assert list(after.labels) == [0]


@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_labels_of_some_frames_fit_their_video(one, kind, tmp_path):
    before = SAMPLES[kind](20, labelled=5)
    after = round_trip(before, one, tmp_path)
    after.on_video(before.video)


@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_a_written_file_is_recognised(one, kind, tmp_path):
    path = tmp_path / f"labels{one.suffixes[0] if one.suffixes else ''}"
    write_file(SAMPLES[kind](), path, name=one.name)
    assert recognise(path) is one


@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_frame_numbers_of_image_files_come_back(one, kind, tmp_path):
    """Images numbered 100, 102, ...: files name frames by number, labels are by index."""
    numbers = range(100, 114, 2)
    before = SAMPLES[kind]()
    video = VideoFacts(name="frames", frames=7, size=before.video.size, fps=24, fps_is_assumed=True, numbers=numbers)
    numbered = before.on_video(VideoFacts(name="frames", frames=7, size=before.video.size, numbers=numbers))
    path = tmp_path / f"labels{one.suffixes[0] if one.suffixes else ''}"
    write_file(numbered, path, name=one.name)
    after = one.read(path, video)
    assert set(after.labels) <= set(range(7))
    assert 0 in after.labels
    assert 6 in after.labels


@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_another_size_or_number_of_frames_is_refused_with_the_numbers(one, kind, tmp_path):
    after = round_trip(SAMPLES[kind](), one, tmp_path)
    if after.video.frames is not None:
        with pytest.raises(LabelError, match="7 frames but other has 9"):
            after.on_video(VideoFacts(name="other", frames=9))
    with pytest.raises(LabelError, match=r"frame 6 but other has frames 0 to 3|7 frames but other has 4"):
        after.on_video(VideoFacts(name="other", frames=4))
    if after.video.size is not None:
        with pytest.raises(LabelError, match="64x48 but other has 128x96"):
            after.on_video(VideoFacts(name="other", size=(96, 128)))
    if after.video.fps is not None:
        with pytest.raises(LabelError, match=r"29\.97 frames per second but other has 25"):
            after.on_video(VideoFacts(name="other", fps=25.0))


_LONG = """
import sys
from pathlib import Path
from format_table import round_trip
from label_samples import SAMPLES
from timecycle.formats.registry import FORMATS

def peak_kb():  # of this program alone: getrusage begins with the peak of the process that started it
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))

one, kind, folder = FORMATS[sys.argv[1]], sys.argv[2], Path(sys.argv[3])
(folder / "short").mkdir()
round_trip(SAMPLES[kind](300), one, folder / "short")  # imports what the format needs, and fills what has a fixed size
before_kb = peak_kb()
after = round_trip(SAMPLES[kind](3_000), one, folder)
assert len(after.labels) >= 2_700, len(after.labels)
for index, read in after.labels.items():
    assert index % 300 != 1 or not read.is_empty(), index
grown_kb = (peak_kb() - before_kb) / 2_700
print(f"{grown_kb:.1f} kB for each frame")
assert grown_kb < 40, grown_kb
"""


@pytest.mark.slow  # thousands of frames are written and read, each format in a process whose memory is measured
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize(("one", "kind"), PAIRS)
def test_ten_times_the_frames_come_back_in_little_more_memory(one, kind, tmp_path):
    """At most 400 MB for ten thousand frames."""
    words = [sys.executable, "-c", _LONG, one.name, kind, str(tmp_path)]
    folders = list(filter(None, sys.path))
    environment = {"PYTHONPATH": ":".join(folders), "OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    print(one.name, kind, done.stdout)  # noqa: T201
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_table_of_the_docs_is_what_the_formats_do():
    missing = [missing_extra(one) for one in FORMATS.values() if missing_extra(one)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page) == page, "run tests/shared/format_table.py"


def test_native_formats_exist():
    assert set(NATIVE) <= set(FORMATS)
