"""Nothing is lost: reload, pause and resume, a killed server, two tabs; and several objects, names and keys."""

import json
import signal
import zipfile
from pathlib import Path

import pytest

from clips import small_world, write_clip
from driven import Driven
from served import Served, children, is_alive, served, wait_for

FRAMES = 60


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    world = small_world(frames=FRAMES, height_px=240, width_px=320)  # large enough to be interrupted
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", world)


def paint(page: Driven, at: tuple[float, float] = (160, 120)) -> None:
    """Paint a blob with the brush."""
    page.press("b")
    page.drag_and_save(at, (at[0] + 40, at[1]))


def start(page: Driven) -> None:
    page.page.select_option("#choose-preset", "fast")
    page.primary("Propagate")


def labels(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "labels").iterdir())}


@pytest.fixture(scope="module")
def uninterrupted(browser, clip, tmp_path_factory) -> dict[str, bytes]:
    """The labels of a run that nothing interrupts; two objects on the way."""
    folder = tmp_path_factory.mktemp("whole")
    with served(clip, "-o", folder / "out", cwd=folder) as server:
        page = Driven(browser, server).opened()
        paint(page)
        start(page)
        page.job_done("propagate")
        return labels(folder / "out")


def test_pause_reload_and_resume_give_the_same_bytes(browser, clip, tmp_path, uninterrupted):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        paint(page)
        start(page)
        page.until("timecycle.store.run.frames > 2", seconds=60)
        page.button("Pause")
        page.until("timecycle.store.server.job.status === 'interrupted'")
        done = page.value("timecycle.store.run.frames")
        assert 2 < done < FRAMES
        page.shot("30_paused")
        # Another frame is annotated while the run waits, and the page is loaded again.
        page.go_to(FRAMES - 5)
        paint(page, (60, 60))
        page.page.reload()
        page.opened()
        page.until(f"timecycle.store.index === {FRAMES - 5}")
        page.until("timecycle.store.run.status === 'running'")
        page.primary("Resume")
        page.job_done("propagate")
        assert labels(tmp_path / "out") == uninterrupted
        assert page.value("timecycle.project().pending") == [FRAMES - 5]
        page.primary("Apply 1 corrected frame")
        page.job_done("correct")
        assert labels(tmp_path / "out") != uninterrupted
        assert page.errors() == []


def test_cancelled_run_is_forgotten_and_starts_over(browser, clip, tmp_path, uninterrupted):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        paint(page)
        start(page)
        page.until("timecycle.store.run.frames > 2", seconds=60)
        page.button("Cancel")
        page.until("timecycle.store.run.status === 'none'")
        assert page.value("Object.keys(timecycle.project().frames)") == ["0"]
        start(page)
        page.until("timecycle.store.run.frames > 0", seconds=60)
        first = {name: content for name, content in labels(tmp_path / "out").items() if name == "00000.png"}
        assert first.items() <= uninterrupted.items()


def test_killed_server_loses_nothing_and_leaves_nothing_running(browser, clip, tmp_path, uninterrupted):
    server = Served(clip, "-o", tmp_path / "out", cwd=tmp_path)
    page = Driven(browser, server).opened()
    paint(page)
    start(page)
    page.until("timecycle.store.run.frames > 2", seconds=60)
    processes = children(server.process.pid)
    assert set(processes) >= {"frames", "labels", "job"}
    server.stop(signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, processes.values())))
    page.until("!timecycle.store.connected")
    page.shot("31_server_gone")
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as again:
        page = Driven(browser, again).opened()
        assert page.mask_sizes()["1"] > 0
        page.until("timecycle.store.run.status === 'running'")
        page.primary("Resume")
        page.job_done("propagate")
        assert labels(tmp_path / "out") == uninterrupted
        assert page.errors() == []


def test_two_tabs_agree_and_the_slower_one_is_told(browser, clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        one = Driven(browser, server).opened()
        other = Driven(browser, server, context=one.context).opened()
        paint(one)
        other.until("timecycle.project().frames[0]")
        wait_for(lambda: other.mask_sizes() == one.mask_sizes())
        # The other tab draws on what it has not heard of: as if the event were late.
        paint(one, (60, 60))
        other.value("(timecycle.project().revision = 0, null)")
        other.press("b")
        other.drag((200, 200), (220, 200))
        other.page.wait_for_selector(".toast.problem:has-text('another tab')")
        other.shot("32_two_tabs")
        other.until("!timecycle.busy()")
        other.until("timecycle.project().revision > 0")
        wait_for(lambda: other.mask_sizes() == one.mask_sizes())
        # And continues from there.
        paint(other, (200, 60))
        one.until(f"timecycle.project().revision === {other.value('timecycle.project().revision')}")
        wait_for(lambda: one.mask_sizes() == other.mask_sizes())  # the other tab is in the background, and slower


def test_undo_and_redo_of_everything_survive_a_reload(browser, clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        paint(page)
        first = page.mask_sizes()
        paint(page, (60, 60))
        page.name_object(1, "disc")
        page.page.reload()
        page.opened()
        page.page.locator("#canvas").focus()
        page.press("Control+z")
        page.until("timecycle.project().objects[0].name === ''")
        page.press("Control+z")
        page.until("!timecycle.busy()")
        page.shows(0)
        assert page.mask_sizes() == first
        page.press("Control+Shift+z")
        page.press("Control+Shift+z")
        page.until("timecycle.project().objects[0].name === 'disc' && !timecycle.busy()")
        assert page.mask_sizes() != first
        assert page.errors() == []


def test_a_point_that_is_named_after_it_was_placed_stays_on_its_frame(browser, clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        page.button("Keypoints")
        page.until("timecycle.project().kind === 'keypoints'")
        page.button("Add point")
        page.until("timecycle.project().objects.length === 2")
        page.button("Choose point 1")
        page.click_at((100, 80))
        page.until("timecycle.project().frames[0]?.points?.['point 1'] && !timecycle.busy()")
        # It is on a frame, so it cannot be removed from the list.
        assert page.page.locator("[data-name=remove-1]").count() == 0
        assert page.page.locator("[data-name=remove-2]").count() == 1
        page.name_object(1, "beak")
        assert page.value("Object.keys(timecycle.project().frames[0].points)") == ["beak"]
        # A name that is refused is not left in the list.
        page.page.fill("#name-2", "beak")
        page.press("Enter")
        page.page.wait_for_selector(".toast.problem:has-text('beak')")
        page.until("document.getElementById('name-2').value === ''")


def test_an_annotation_is_removed_from_its_frame_and_undo_brings_it_back(browser, clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        remove = page.page.get_by_role("button", name="Remove annotation")
        assert not remove.is_visible()
        paint(page)
        drawn = page.mask_sizes()
        page.shot("36_annotated")
        remove.click()
        page.until("!timecycle.project().frames[0] && !timecycle.busy()")
        page.until("document.getElementById('badge').textContent.includes('no labels')")
        assert page.mask_sizes() == {}
        assert not remove.is_visible()
        page.press("Control+z")
        page.until("timecycle.project().frames[0] && !timecycle.busy()")
        wait_for(lambda: page.mask_sizes() == drawn)  # until the mask is loaded
        assert remove.is_visible()
        assert page.errors() == []


def test_two_objects_with_every_tool_and_a_script_for_a_name(browser, clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        paint(page)
        script = "<img src=x onerror=alert(1)>"
        page.name_object(1, script)
        page.button("Add object")
        page.until("timecycle.project().objects.length === 2 && timecycle.store.objectId === 2")
        page.name_object(2, "square")
        page.page.locator("#canvas").focus()
        page.press("p")
        for corner in ((20, 20), (80, 20), (80, 80), (20, 80)):
            page.click_at(corner)
        page.press("Enter")
        page.until("!timecycle.busy()")
        square = page.mask_sizes()["2"]
        assert 3500 < square < 3800
        page.press("e")
        page.drag_and_save((50, 50), (52, 50))
        assert page.mask_sizes()["2"] < square
        page.press("f")
        page.click_at((51, 50))
        page.until("!timecycle.busy()")
        assert page.mask_sizes()["2"] == square
        page.press("1")
        page.press("Delete")
        page.until("!timecycle.busy()")
        assert set(page.mask_sizes()) == {"2"}
        page.press("Control+z")
        page.until("!timecycle.busy()")
        page.shows(0)
        assert set(page.mask_sizes()) == {"1", "2"}
        start(page)
        page.job_done("propagate")
        page.shot("33_two_objects")
        assert set(page.value("timecycle.store.run.objects")) == {"1", "2"}
        assert json.loads((tmp_path / "out" / "run.json").read_text())["names"] == {"1": script, "2": "square"}
        page.button("4 Export")
        with zipfile.ZipFile(page.export("png", tmp_path)) as archive:
            assert sum(name.endswith(".png") for name in archive.namelist()) == FRAMES
        # The page has shown the name everywhere by now, and none of it ran.
        assert page.page.locator("img[src='x']").count() == 0
        assert page.errors() == []


def test_keys_and_the_timeline_move_through_the_video(browser, clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        page.page.locator("#canvas").focus()
        for keys, index in (
            ("ArrowRight", 1),
            ("Shift+ArrowRight", 11),
            ("ArrowLeft", 10),
            ("End", FRAMES - 1),
            ("Home", 0),
        ):
            page.press(keys)
            page.shows(index)
        page.press("l")
        page.until("timecycle.store.index > 5")
        page.press("k")
        page.until("timecycle.store.playing === 0")
        box = page.page.locator("#rows-canvas").bounding_box()
        page.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + 5)
        page.shows(FRAMES // 2)
        page.press("?")
        page.page.wait_for_selector("dialog[open]")
        page.shot("34_shortcuts")
        page.press("Escape")
        page.page.mouse.move(*page.at((160, 120)))
        page.page.mouse.wheel(0, -400)
        page.page.wait_for_timeout(50)
        page.shot("35_zoomed")
        page.press("0")
        assert page.errors() == []
