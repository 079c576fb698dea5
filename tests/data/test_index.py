"""The index describes every video exactly, does not stop at a bad file, and probes no video twice."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from training_footage import HEIGHT, WIDTH, world, write_images

from made_videos import make_video, write_video
from timecycle.data.corpus import index as indexing
from timecycle.data.corpus.index import Index, make_index, read_index
from timecycle.data.corpus.probe import Box, grey, image_box, probe_video
from timecycle.data.corpus.split import split
from timecycle.errors import VideoError


def padded(images, *, top=0, bottom=0, left=0, right=0, black=0):
    widths = ((top, bottom), (left, right), (0, 0))
    return [np.pad(image, widths, constant_values=black) for image in images]


def probed_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the videos that are probed from now on."""
    names: list[str] = []
    monkeypatch.setattr(indexing, "probe_video", lambda path: (names.append(path.name), probe_video(path))[1])
    return names


def test_entry_has_length_frame_rate_and_size_of_its_video(videos: Path, index: Index):
    assert [entry.path for entry in index.entries] == sorted(path.name for path in videos.iterdir())
    for entry in index.entries:
        assert (entry.frames, entry.fps, entry.width_px, entry.height_px) == (16, 12, WIDTH, HEIGHT)
        assert not entry.has_bars
        assert not entry.is_static


def test_folder_of_images_is_a_video(tmp_path: Path):
    write_images(tmp_path / "sub" / "frames", world(frames=5).frames())
    (entry,) = make_index(tmp_path, tmp_path / "index.jsonl").entries
    assert (entry.path, entry.frames, entry.fps) == ("sub/frames", 5, 24)


def test_text_hidden_files_and_thumbnails_are_ignored(tmp_path: Path):
    write_video(tmp_path / "a.mp4", world(frames=4).frames())
    (tmp_path / "notes.txt").write_text("no video")
    (tmp_path / ".hidden.mp4").write_text("no video")
    write_images(tmp_path / "thumbs", [world(frames=1).frame(0)])
    for name in ("1.png", "2.png"):
        (tmp_path / name).write_bytes(b"")
    index = make_index(tmp_path, tmp_path / "index.jsonl")
    assert [entry.path for entry in index.entries] == ["a.mp4"]
    assert index.bad == ()


def test_file_names_of_any_bytes_survive_the_index(tmp_path: Path):
    folder, names = tmp_path / "videos", ["über.mp4", "new\u2028line.mp4", "a:b 'c'.mp4", os.fsdecode(b"\xff.mp4")]
    for name in names:
        write_video(folder / "plain.mp4", world(frames=2).frames()).rename(folder / name)
    index = make_index(folder, tmp_path / "index.jsonl", max_bad=1)
    assert read_index(tmp_path / "index.jsonl") == index
    assert sorted(item.path for item in (*index.entries, *index.bad)) == sorted(names)
    assert sum(len(part.entries) for part in split(index, 0.5)) == len(index.entries) >= 3


@pytest.mark.parametrize("bars", [{}, {"top": 8, "bottom": 12}, {"left": 16, "right": 10}, {"top": 6}, {"left": 7}])
@pytest.mark.parametrize("black", [0, 16])
def test_black_bars_are_found_exactly_in_images(bars: dict[str, int], black: int):
    greys = [grey(image) for image in padded(world(frames=3).frames(), **bars, black=black)]
    left, top = bars.get("left", 0), bars.get("top", 0)
    assert image_box(greys) == Box(left, top, left + WIDTH, top + HEIGHT)


def test_black_bars_are_found_exactly_in_a_video_file(tmp_path: Path):
    images = padded(world(frames=6).frames(), top=16, bottom=16, left=16, right=32)
    found = probe_video(write_video(tmp_path / "a.mp4", images))
    assert found.box == Box(16, 16, 16 + WIDTH, 16 + HEIGHT)


def test_fade_from_black_and_dark_scene_have_no_bars():
    bright = grey(world().frame(0))
    assert image_box([np.zeros_like(bright), bright]) == Box(0, 0, WIDTH, HEIGHT)
    night = np.full_like(bright, 3)
    night[20:30, 40:60] = 200
    assert image_box([night]) == Box(0, 0, WIDTH, HEIGHT)


def test_motion_separates_static_from_moving_videos(tmp_path: Path):
    static = probe_video(make_video(tmp_path / "static.mp4", 0, static=True))
    moving = probe_video(make_video(tmp_path / "moving.mp4", 0))
    assert static.motion < indexing.STATIC_BELOW < 1 < moving.motion


@pytest.fixture
def troubled(tmp_path: Path) -> Path:
    """Five good videos and five bad ones."""
    folder = tmp_path / "videos"
    for number in range(5):
        write_video(folder / f"good{number}.mp4", world(number, frames=4).frames())
    whole = (folder / "good0.mp4").read_bytes()
    (folder / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "text.avi").write_text("no video at all")
    write_video(folder / "single.mp4", [world().frame(0)])
    write_video(folder / "tiny.mp4", [np.zeros((8, 8, 3), np.uint8)] * 3)
    return folder


def test_bad_files_are_listed_with_the_reason(troubled: Path, tmp_path: Path):
    index = make_index(troubled, tmp_path / "index.jsonl")
    assert [entry.path for entry in index.entries] == [f"good{number}.mp4" for number in range(5)]
    problems = {bad.path: bad.problem for bad in index.bad}
    assert list(problems) == ["cut.mp4", "empty.mp4", "single.mp4", "text.avi", "tiny.mp4"]
    for name, reason in {"cut": "cut short", "empty": "0 bytes", "single": "single frame", "tiny": "only 8x8"}.items():
        assert reason in problems[f"{name}.mp4"]
    assert read_index(tmp_path / "index.jsonl") == index


def test_too_many_bad_files_are_refused_after_listing_them(troubled: Path, tmp_path: Path):
    path = tmp_path / "index.jsonl"
    with pytest.raises(VideoError, match=r"5 of the 10 videos .* for example cut\.mp4: .*; check that the folder"):
        make_index(troubled, path, max_bad=0.4)
    assert len(read_index(path).bad) == 5


def test_only_new_and_changed_videos_are_probed(troubled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "index.jsonl"
    make_index(troubled, path)
    names = probed_names(monkeypatch)
    before = path.read_bytes()
    make_index(troubled, path)
    assert names == []
    assert path.read_bytes() == before
    write_video(troubled / "empty.mp4", world(frames=5).frames())
    write_video(troubled / "new.mp4", world(frames=3).frames())
    (troubled / "good3.mp4").unlink()
    index = make_index(troubled, path)
    assert names == ["empty.mp4", "new.mp4"]
    assert "good3.mp4" not in {entry.path for entry in index.entries}


def interrupt_at_once(path: Path) -> None:
    raise KeyboardInterrupt


def test_interrupted_indexing_is_resumed(troubled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(done: int, total: int) -> None:
        assert total == 10
        if done == 3:
            raise KeyboardInterrupt

    path = tmp_path / "index.jsonl"
    with pytest.raises(KeyboardInterrupt):
        make_index(troubled, path, progress=interrupt)
    assert not path.exists()
    with (tmp_path / "index.jsonl.part").open("a") as journal:
        journal.write('{"path": "torn')
    with monkeypatch.context() as patched:
        patched.setattr("timecycle.data.corpus.index.probe_video", interrupt_at_once)
        with pytest.raises(KeyboardInterrupt):
            make_index(troubled, path)
    names = probed_names(monkeypatch)
    index = make_index(troubled, path)
    assert len(names) == 7
    assert sorted(item.name for item in tmp_path.iterdir()) == ["index.jsonl", "videos"]
    assert index == make_index(troubled, tmp_path / "afresh.jsonl")


def test_several_processes_give_the_same_index(
    videos: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("timecycle.data.corpus.index._VIDEOS_PER_PROCESS", 1)
    progress: list[tuple[int, int]] = []
    path = tmp_path / "index.jsonl"
    assert make_index(videos, path, workers=1, progress=lambda *done: progress.append(done)) == index
    assert progress == [(number, 5) for number in range(1, 6)]


def test_empty_folder_and_missing_or_other_index_are_refused(tmp_path: Path):
    with pytest.raises(VideoError, match=r"holds no videos; give a folder with files \(\.264"):
        make_index(tmp_path, tmp_path / "index.jsonl")
    with pytest.raises(VideoError, match=r"there is no index .*none\.jsonl; make it"):
        read_index(tmp_path / "none.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(VideoError, match=r"other\.jsonl line 1 is not a line of an index.*; delete the file"):
        read_index(other)
    with pytest.raises(VideoError, match=r"there is no folder or video .*nowhere; check the name"):
        make_index(tmp_path / "nowhere", tmp_path / "index.jsonl")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width_px", []),
        ("frames", "many"),
        ("fps", float("nan")),
        ("path", None),
        ("box", {"left": "a"}),
        ("motion", {}),
    ],
)
def test_index_with_values_of_the_wrong_type_is_refused(videos: Path, index: Index, tmp_path: Path, name, value):
    path = tmp_path / "index.jsonl"
    indexing.write_index(path, index)
    first, second, *rest = path.read_text().splitlines()
    fields = json.loads(second)
    fields[name] = fields[name] | value if name == "box" else value
    path.write_text("\n".join([first, json.dumps(fields), *rest]))
    with pytest.raises(VideoError, match=r"line 2 is not a line of an index"):
        read_index(path)


def test_single_file_is_indexed_like_a_folder_that_holds_it(videos: Path, index: Index, tmp_path: Path):
    first = index.entries[0]
    assert make_index(videos / first.path, tmp_path / "index.jsonl").entries == (first,)
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    with pytest.raises(VideoError, match=r"torn\.mp4.*; give another video, or a folder"):
        make_index(tmp_path / "torn.mp4", tmp_path / "torn.jsonl")


@pytest.mark.data
def test_real_footage_decodes_and_moves(data: Path, tmp_path: Path):
    source = data / "raw_video"
    if not source.is_dir():
        pytest.skip("the folder of real footage has no raw_video/")
    names = ["ucf101/v_ApplyEyeMakeup_g02_c01.mp4", "ucf101/v_Archery_g09_c02.mp4", "davis2017_train/bear.mp4"]
    for name in names:
        link = tmp_path / "videos" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source / name)
    bear, barred, static = make_index(tmp_path / "videos", tmp_path / "index.jsonl").entries
    assert not bear.has_bars
    assert not bear.is_static
    assert barred.has_bars
    assert barred.box.top > 4
    assert static.is_static
