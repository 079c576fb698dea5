"""The page is usable by keyboard and screen reader: axe-core finds no violation in any of its states, light or dark."""

from pathlib import Path

import pytest

from clips import small_world, write_clip
from driven import Driven
from served import served

axe = pytest.importorskip("axe_playwright_python.sync_playwright")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    write_clip(folder / "clip.mp4", small_world(frames=12, height_px=120, width_px=160))
    return folder


def check(page: Driven, state: str) -> None:
    results = axe.Axe().run(page.page)
    assert results.violations_count == 0, f"{state}: {results.generate_report()}"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_violation(browser, folder, tmp_path, dark):
    scheme = "dark" if dark else "light"
    with served(folder, cwd=tmp_path) as server:
        page = Driven(browser, server, dark=dark)
        page.page.wait_for_selector("text=clip.mp4")
        check(page, "choosing a video")
        page.shot(f"40_choose_{scheme}")
        page.page.get_by_role("button", name="clip.mp4").click()
        page.opened()
        page.page.keyboard.press("?")
        page.page.wait_for_selector("dialog[open]")
        check(page, "shortcuts")
        page.press("Escape")
        check(page, "nothing annotated")
        page.press("b")
        page.drag_and_save((60, 60), (90, 60))
        check(page, "annotated")
        if not dark:  # the states of a run once
            page.page.select_option("#choose-preset", "fast")
            page.primary("Propagate")
            page.job_done("propagate")
            page.until("timecycle.store.step === 'review'")
            page.page.wait_for_selector("#section h3")
            check(page, "review")
            page.button("4 Export")
            page.page.wait_for_selector("[data-name='export-png']")
            check(page, "export")
        page.shot(f"41_{scheme}")


def test_everything_can_be_reached_by_keyboard(browser, folder, tmp_path):
    with served(folder, cwd=tmp_path) as server:
        page = Driven(browser, server)
        page.page.wait_for_selector("text=clip.mp4")
        page.page.get_by_role("button", name="clip.mp4").focus()
        page.press("Enter")
        page.opened()
        reached = set()
        for _ in range(60):
            page.page.keyboard.press("Tab")
            reached.add(page.value("document.activeElement?.dataset?.name || document.activeElement?.id"))
        assert {
            "assist",
            "brush",
            "canvas",
            "opacity",
            "name-1",
            "add",
            "play",
            "frame-number",
            "rows",
            "help",
        } <= reached
        page.page.locator("#rows").focus()
        page.press("ArrowRight")
        page.shows(1)
        assert page.page.locator("#rows").get_attribute("aria-valuenow") == "1"
        assert "frame 1 of 12" in page.page.locator("#rows").get_attribute("aria-valuetext")
