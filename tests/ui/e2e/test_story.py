"""The whole job in a real browser: annotate, propagate, review, correct, undo, export; beside the command line."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from driven import Driven
from served import served, wait_for


def command(*words: object, cwd: Path) -> None:
    subprocess.run([sys.executable, "-m", "timecycle", *map(str, words), "--quiet"], check=True, cwd=cwd)


def labels(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "labels").iterdir())}


class Scaled:
    """Positions on the swan, for the real clip and for a smaller one in its place."""

    def __init__(self, page: Driven) -> None:
        size = page.value("timecycle.project().video")
        self.x, self.y = size["width_px"] / 854, size["height_px"] / 480
        self.area = self.x * self.y

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        return x * self.x, y * self.y


def annotate(page: Driven, at: Scaled) -> None:
    """A mask with the assisted tool, a stroke inside and one outside, and the brush; and a name."""
    page.shot("01_start")
    page.drag_and_save(at(150, 60), at(530, 400))
    assert page.mask_sizes()["1"] > 1000 * at.area
    page.shot("02_box")
    page.drag_and_save(at(440, 150), at(470, 280))
    page.drag_and_save(at(220, 180), at(400, 240), key="Shift")
    page.shot("03_strokes")
    page.press("b")
    before = page.mask_sizes()["1"]
    page.drag_and_save(at(240, 300), at(400, 320))
    assert page.mask_sizes()["1"] >= before
    page.name_object(1, "swan")
    page.shot("04_named")


def propagate(page: Driven, at: Scaled) -> None:
    """Propagate, and look at a frame as soon as it is there."""
    page.page.select_option("#choose-preset", "fast")
    page.primary("Propagate")
    page.until("timecycle.store.run.frames > 3", seconds=60)
    page.shot("05_propagating")
    page.job_done("propagate")
    page.go_to(30)
    assert page.mask_sizes()["1"] > 500 * at.area
    page.shot("06_frame_30")


def correct(page: Driven, at: Scaled) -> tuple[int, dict[str, int], dict[str, int]]:
    """Open the frame that is suggested and correct it; returns the frame, and its pixels before and after."""
    page.primary()
    page.until("timecycle.store.index !== 30")
    suggested = page.value("timecycle.store.index")
    assert suggested in page.value("timecycle.store.run.queue.map((one) => one.index)")
    page.shows(suggested)
    propagated = page.mask_sizes()
    page.shot("07_suggested")
    page.press("e")
    page.drag_and_save(at(200, 330), at(420, 330))
    page.press("b")
    page.drag_and_save(at(470, 120), at(480, 250))
    page.shot("08_corrected")
    drawn = page.mask_sizes()
    page.primary("Apply 1 corrected frame")
    page.job_done("correct")
    page.shows(suggested)
    assert page.mask_sizes() == drawn != propagated
    return suggested, propagated, drawn


def toggle(page: Driven, propagated: dict[str, int], drawn: dict[str, int]) -> None:
    """Look at the frame before and after the correction."""
    page.shot("09_after")
    page.press("x")
    page.until("timecycle.store.before")
    page.until("document.getElementById('badge').textContent.includes('before')")
    wait_for(lambda: page.mask_sizes() == propagated)  # until the labels of before are loaded
    page.shot("10_before")
    page.press("x")
    page.until("!timecycle.store.before")
    wait_for(lambda: page.mask_sizes() == drawn)


@pytest.mark.slow  # two propagations of a real clip, and a correction of each
def test_whole_job_gives_the_bytes_of_the_command_line(browser, swan, tmp_path):
    out, cli = tmp_path / "out", tmp_path / "cli"
    with served(swan, "-o", out, cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        at = Scaled(page)
        annotate(page, at)
        propagate(page, at)
        propagated = labels(out)
        # The command line, with what the page has written, gives the same bytes.
        command("propagate", swan, tmp_path / "out_annotations" / "masks", "-o", cli, "--preset", "fast", cwd=tmp_path)
        assert labels(cli) == propagated

        index, before, drawn = correct(page, at)
        corrected = labels(out)
        assert corrected != propagated
        mask = tmp_path / "out_annotations" / "edits" / page.value(f"timecycle.project().frames[{index}].mask")
        command("correct", cli, f"{index}={mask}", cwd=tmp_path)
        assert labels(cli) == corrected
        toggle(page, before, drawn)

        page.button("Undo the correction")
        page.job_done("undo")
        assert labels(out) == propagated
        page.shows(index)
        assert page.mask_sizes() == before
        page.button("4 Export")
        page.shot("11_export")
        with zipfile.ZipFile(page.export("png", tmp_path)) as file:
            masks = {name: file.read(name) for name in file.namelist() if name.endswith(".png")}
        assert masks == propagated
        assert page.export("overlay", tmp_path).read_bytes() == (out / "overlay.mp4").read_bytes()
        page.shot("12_exported")
        assert page.errors() == []


@pytest.mark.slow  # a propagation of a real clip, and a correction
def test_keypoints_with_a_skeleton(browser, swan, tmp_path):
    with served(swan, "-o", tmp_path / "out", cwd=tmp_path) as server:
        page = Driven(browser, server).opened()
        at = Scaled(page)
        page.button("Keypoints")
        page.until("timecycle.project().kind === 'keypoints'")
        page.name_object(1, "beak")
        page.button("Add point")
        page.until("timecycle.project().objects.length === 2")
        page.name_object(2, "tail")
        page.button("Choose beak")
        page.click_at(at(465, 120))
        page.until("timecycle.project().frames[0]?.points?.beak && !timecycle.busy()")
        page.click_at(at(190, 270))  # the next point was chosen by itself
        page.until("timecycle.project().frames[0]?.points?.tail && !timecycle.busy()")
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
        x, y, _ = points["beak"]
        page.drag_and_save((x, y), (x + 25, y))
        page.primary("Apply 1 corrected frame")
        page.job_done("correct")
        assert set(page.value("timecycle.project().frames[30].points")) == {"beak"}
        page.button("4 Export")
        page.shot("22_export_points")
        assert page.export("csv", tmp_path).read_bytes() == (tmp_path / "out" / "keypoints.csv").read_bytes()
        assert page.errors() == []
