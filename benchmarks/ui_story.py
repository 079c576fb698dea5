"""Make the animation of the page: annotate, propagate, check the suggested frame, correct it, export.

    PYTHONPATH=src:benchmarks:tests/shared python benchmarks/ui_story.py DATA --work DIR

Drives the real page in a headless Chromium, on a hand-held shot of a toy (MDN contributors, CC0). Every picture is also
written to DIR/pictures as PNG. Result: docs/images/ui_story.webp.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

from driven import Driven, Position
from served import served
from timecycle.render import font

CLIP = Path("open_video/mdn_cc0/pis_client_side_storage_indexeddb_video_store_videos_monster.mp4")
TARGET = Path(__file__).parents[1] / "docs" / "images" / "ui_story.webp"
_WIDTH_PX, _CAPTION_PX, _QUALITY = 900, 46, 75
_MAX_BYTES = 1_500_000
# The rim of the base that is missing on the frame which the page proposes to check.
_RIM = {
    61: ((149, 142), (152, 156), (161, 166), (176, 172), (190, 171), (198, 164), (200, 152)),
}
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
# A dark bar below the page, so that nobody takes the caption for a part of it.
_PAPER, _INK = (20, 24, 30), (255, 255, 255)
_POINTER = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))


class Story:
    """The pictures of the animation, each shown for some milliseconds, with a caption and the pointer of the mouse."""

    def __init__(self, page: Driven, folder: Path) -> None:
        self.page, self._folder = page, folder
        self._pointer: Position | None = None
        self.pictures: list[tuple[Image.Image, int]] = []

    def show(self, caption: str, milliseconds: int) -> None:
        """Take a picture of the page as it is."""
        path = self._folder / f"{len(self.pictures):02d}.png"
        self.page.page.screenshot(path=path)
        with Image.open(path) as shot:
            picture = self._composed(shot.convert("RGB"), caption)
        picture.save(path)
        self.pictures.append((picture, milliseconds))

    def _composed(self, shot: Image.Image, caption: str) -> Image.Image:
        scale = _WIDTH_PX / shot.width
        small = shot.resize((_WIDTH_PX, round(shot.height * scale)), Image.Resampling.LANCZOS)
        picture = Image.new("RGB", (_WIDTH_PX, small.height + _CAPTION_PX), _PAPER)
        picture.paste(small)
        pen = ImageDraw.Draw(picture)
        if self._pointer is not None:
            x, y = (scale * value for value in self._pointer)
            pen.polygon([(x + dx, y + dy) for dx, dy in _POINTER], fill="white", outline="black")
        middle = _WIDTH_PX / 2, small.height + _CAPTION_PX / 2
        pen.text(middle, caption, font=font(21), fill=_INK, anchor="mm")
        return picture

    def drag(self, caption: str, *positions: Position, key: str | None = None) -> None:
        """Draw with the mouse, in view; ends when the server has it."""
        mouse, keyboard = self.page.page.mouse, self.page.page.keyboard
        if key:
            keyboard.down(key)
        self._pointer = self.page.at(positions[0])
        mouse.move(*self._pointer)
        mouse.down()
        for position in positions[1:]:
            self._pointer = self.page.at(position)
            mouse.move(*self._pointer, steps=6)
            self.show(caption, 260)
        mouse.up()
        if key:
            keyboard.up(key)
        self.page.saved()

    def point_at(self, selector: str) -> None:
        """Move the pointer to an element."""
        box = self.page.page.locator(selector).first.bounding_box()
        self._pointer = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.page.mouse.move(*self._pointer)

    def hide_pointer(self) -> None:
        self._pointer = None

    def write(self, target: Path) -> None:
        images, durations = [one for one, _ in self.pictures], [one for _, one in self.pictures]
        options: dict[str, Any] = {"quality": _QUALITY, "method": 6, "minimize_size": True, "loop": 0}
        images[0].save(target, save_all=True, append_images=images[1:], duration=durations, **options)


def annotate(story: Story) -> None:
    story.show("timecycle ui toy.mp4", 1800)
    box = "1 Annotate: drag a box around the object"
    story.drag(box, (124, 2), (180, 90), (230, 180), (262, 237))
    story.show("The assisted tool finds its outline", 1800)
    story.drag("Something is missing? Stroke over it", (140, 204), (185, 214), (245, 206))
    story.show("Something is missing? Stroke over it", 1500)
    story.page.name_object(1, "toy")
    story.point_at("#name-1")
    story.show("Give it a name", 1300)


def propagate(story: Story) -> None:
    page = story.page
    page.page.select_option("#choose-preset", "fast")
    story.point_at("#next button.primary")
    story.show("2 Propagate: one click", 1200)
    page.primary("Propagate")
    story.hide_pointer()
    for frames in (10, 34, 60):
        page.until(f"timecycle.store.run.frames >= {frames}", seconds=300)
        page.go_to(frames - 2)
        story.show("Labels are shown as they are computed", 700)
    page.job_done("propagate", seconds=600)
    for index in (0, 18, 36, 54, 70, 87):
        page.go_to(index)
        story.show("The label follows the toy, but loses the rim of its base", 480)
    story.show("The label follows the toy, but loses the rim of its base", 1200)


def review(story: Story) -> None:
    page = story.page
    story.point_at("#next button.primary")
    story.show("3 Review: the frame worth checking, and why", 1900)
    page.primary()
    index = page.value("timecycle.store.run.queue[0].index")
    page.shows(index)
    if index not in _RIM:
        raise SystemExit(f"frame {index} is suggested: look at it, and add what is missing on it to _RIM")
    story.show("3 Review: the frame worth checking, and why", 1600)
    correct(story, index)
    story.point_at("#next button.primary")
    story.show("Apply: the frames around it are computed again", 1500)
    page.primary("Apply")
    page.job_done("correct", seconds=600)
    page.until("timecycle.store.run.corrections > 0")
    page.shows(index)
    story.hide_pointer()
    for _ in range(2):
        page.press("x")
        page.until("timecycle.store.before")
        page.shows(index)
        story.show("Before the correction", 900)
        page.press("x")
        page.until("!timecycle.store.before")
        page.shows(index)
        story.show("After the correction", 900)
    for other in (36, 46, 74, 87):
        page.go_to(other)
        story.show("The correction spreads to the frames around it", 500)


def correct(story: Story, index: int) -> None:
    caption = "Wrong? Correct it with the same tools"
    story.page.press("b")
    story.drag(caption, *_RIM[index])
    story.show(caption, 1200)


def export(story: Story) -> None:
    page = story.page
    page.press("a")
    page.button("4 Export")
    page.page.locator("#panel").evaluate("(panel) => panel.scrollTo(0, 0)")
    page.page.wait_for_selector("[data-name='export-measurements']")
    story.show("4 Export: measurements, the overlay video ...", 1800)
    page.page.locator("[data-name='export-coco']").scroll_into_view_if_needed()
    page.page.locator("#panel").evaluate("(panel) => panel.scrollBy(0, 260)")
    story.show("... and the labels for CVAT, COCO, YOLO, ImageJ, editing programs", 2800)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    work: Path = arguments.work
    shutil.rmtree(work, ignore_errors=True)
    (pictures := work / "pictures").mkdir(parents=True)
    video = Path(shutil.copy(arguments.data / CLIP, work / "toy.mp4"))
    with served(video, cwd=work) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(_SWITCHES))
        story = Story(Driven(browser, server).opened(), pictures)
        for part in (annotate, propagate, review, export):
            part(story)
        browser.close()
    story.write(TARGET)
    size = TARGET.stat().st_size
    print(f"{TARGET}: {len(story.pictures)} pictures, {size / 1e6:.2f} MB")
    if size > _MAX_BYTES:
        raise SystemExit(f"over {_MAX_BYTES / 1e6} MB: lower the quality or show fewer pictures")


if __name__ == "__main__":
    main()
