"""The whole job in a real browser: annotate, propagate, review, correct, undo, export; beside the command line."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from driven import Driven
from served import served


def command(*words: object, cwd: Path) -> None:
    subprocess.run([sys.executable, "-m", "timecycle", *map(str, words), "--quiet"], check=True, cwd=cwd)


def labels(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "labels").iterdir())}


@pytest.mark.slow  # two propagations of a real clip, and a correction of each
def test_whole_job_gives_the_bytes_of_the_command_line(browser, swan, tmp_path):
    with served(swan, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        size = page.value("timecycle.project().video")
        x, y = size["width_px"] / 854, size["height_px"] / 480
        page.shot("01_start")

        # A mask with the assisted tool, a stroke inside and one outside, and the brush.
        page.drag_and_save((150 * x, 60 * y), (530 * x, 400 * y))
        assert page.mask_sizes()["1"] > 1000 * x * y
        page.shot("02_box")
        page.drag_and_save((440 * x, 150 * y), (470 * x, 280 * y))
        page.drag_and_save((220 * x, 180 * y), (400 * x, 240 * y), key="Shift")
        page.shot("03_strokes")
        page.press("b")
        before = page.mask_sizes()["1"]
        page.drag_and_save((240 * x, 300 * y), (400 * x, 320 * y))
        assert page.mask_sizes()["1"] >= before
        page.name_object(1, "swan")
        page.shot("04_named")

        # Propagate, and look at a frame as soon as it is there.
        page.page.select_option("#choose-preset", "fast")
        page.primary("Propagate")
        page.until("timecycle.store.run.frames > 3")
        page.shot("05_propagating")
        page.job_done("propagate")
        page.go_to(30)
        assert page.mask_sizes()["1"] > 500 * x * y
        page.shot("06_frame_30")
        out = tmp_path / "out"
        propagated = labels(out)

        # The command line, with what the page has written, gives the same bytes.
        masks = tmp_path / "out_annotations" / "masks"
        command("propagate", swan, masks, "-o", tmp_path / "cli", "--preset", "fast", cwd=tmp_path)
        assert labels(tmp_path / "cli") == propagated

        # The frame that is suggested, corrected.
        page.primary()
        page.until("timecycle.store.index !== 30")
        suggested = page.value("timecycle.store.index")
        assert suggested in page.value("timecycle.store.run.queue.map((one) => one.index)")
        page.shows(suggested)
        page.shot("07_suggested")
        page.press("e")
        page.drag_and_save((200 * x, 330 * y), (420 * x, 330 * y))
        page.press("b")
        page.drag_and_save((470 * x, 120 * y), (480 * x, 250 * y))
        page.shot("08_corrected")
        corrected = page.mask_sizes()
        page.primary("Apply 1 corrected frame")
        page.job_done("correct")
        page.shows(suggested)
        assert page.mask_sizes() == corrected
        after = labels(out)
        assert after != propagated
        edited = next(iter((tmp_path / "out_annotations" / "edits").glob("*.png")))
        assert edited.is_file()
        drawn = page.value(f"timecycle.project().frames[{suggested}].mask")
        command("correct", tmp_path / "cli", f"{suggested}={edited.with_name(drawn)}", cwd=tmp_path)
        assert labels(tmp_path / "cli") == after

        # Before and after the correction.
        page.shot("09_after")
        page.press("x")
        page.until("timecycle.store.before")
        page.shows(suggested)
        page.until("document.getElementById('badge').textContent.includes('before')")
        assert page.mask_sizes() != corrected
        page.shot("10_before")
        page.press("x")

        # Undo brings the bytes back; the masks that are exported are those of the folder.
        page.button("Undo the correction")
        page.job_done("undo")
        assert labels(out) == propagated
        page.button("4 Export")
        page.shot("11_export")
        archive = page.export("labels", tmp_path)
        with zipfile.ZipFile(archive) as file:
            assert {name: file.read(name) for name in file.namelist()} == propagated
        overlay = page.export("overlay", tmp_path)
        assert overlay.read_bytes() == (out / "overlay.mp4").read_bytes()
        page.shot("12_exported")
        assert page.errors() == []


@pytest.mark.slow  # a propagation
def test_keypoints_with_a_skeleton(browser, swan, tmp_path):
    with served(swan, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        size = page.value("timecycle.project().video")
        x, y = size["width_px"] / 854, size["height_px"] / 480
        page.button("Keypoints")
        page.until("timecycle.project().kind === 'keypoints'")
        page.name_object(1, "beak")
        page.button("Add point")
        page.until("timecycle.project().objects.length === 2")
        page.name_object(2, "tail")
        page.button("Choose beak")
        page.click_at((465 * x, 120 * y))
        page.until("timecycle.project().frames[0]?.points?.beak && timecycle.store.saving === 0")
        page.click_at((190 * x, 270 * y))  # the next point was chosen by itself
        page.until("timecycle.project().frames[0]?.points?.tail && timecycle.store.saving === 0")
        page.page.get_by_text("Skeleton").click()
        page.button("Connect or cut")
        page.until("timecycle.project().skeleton.length === 1")
        page.shot("20_points")
        page.page.select_option("#choose-preset", "fast")
        page.primary("Propagate")
        page.job_done("propagate")
        page.go_to(30)
        page.shot("21_points_30")
        points = page.page.evaluate("async () => (await import('/static/labels.js')).shownLabels(30).points")
        assert set(points) == {"beak", "tail"}
        # A point that is moved is a correction of that point alone.
        page.page.locator("#canvas").focus()
        page.drag_and_save((points["beak"][0], points["beak"][1]), (points["beak"][0] + 25, points["beak"][1]))
        page.primary("Apply 1 corrected frame")
        page.job_done("correct")
        moved = page.value("timecycle.project().frames[30].points")
        assert set(moved) == {"beak"}
        page.button("4 Export")
        table = page.export("points", tmp_path)
        assert table.read_bytes() == (tmp_path / "out" / "keypoints.csv").read_bytes()
        assert page.errors() == []
