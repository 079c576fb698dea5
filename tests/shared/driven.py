"""The page in a browser, worked as a person does: with the mouse, the keyboard and what is written on buttons."""

import os
from pathlib import Path
from typing import Any

from served import Served

Position = tuple[float, float]  # in pixels of the video


class Driven:
    """A tab with the page."""

    def __init__(self, browser: Any, server: Served, *, context: Any = None, dark: bool = False) -> None:
        self.context = context or browser.new_context(
            viewport={"width": 1280, "height": 720}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.messages: list[str] = []
        self.clicks = 0  # presses of the mouse and of keys
        self._last_job = 0  # the number of the job before the one that was started last
        self.page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        self.page.on("dialog", self._on_dialog)
        self.page.goto(server.url)

    def _on_dialog(self, dialog: Any) -> None:
        self.messages.append(f"dialog: {dialog.message}")
        dialog.accept()

    def opened(self) -> "Driven":
        """Wait for the first frame."""
        self.until("window.timecycle?.project()")
        drawn = "document.getElementById('canvas').dataset"
        # Compared in the page: where it left off is restored in between.
        self.until(f"[{drawn}.shown, {drawn}.labels].every((one) => one === String(timecycle.store.index))")
        return self

    def until(self, condition: str, *, seconds: float = 30) -> None:
        """Wait until a condition of the page holds."""
        self.page.wait_for_function(f"() => {condition}", timeout=1000 * seconds)

    def value(self, expression: str) -> Any:
        return self.page.evaluate(f"() => {expression}")

    def shows(self, index: int) -> None:
        """Wait until a frame and its labels are drawn."""
        self.page.wait_for_selector(f'#canvas[data-shown="{index}"][data-labels="{index}"]')

    def saved(self) -> None:
        self.until("!timecycle.busy()")

    # Drawing

    def at(self, position: Position) -> Position:
        """The place on the screen of a pixel of the video, while the whole frame is shown."""
        box = self.page.locator("#canvas").bounding_box()
        size = self.value("timecycle.project().video")
        scale = min(box["width"] / size["width_px"], box["height"] / size["height_px"]) * 0.98
        left = box["x"] + (box["width"] - size["width_px"] * scale) / 2
        top = box["y"] + (box["height"] - size["height_px"] * scale) / 2
        return left + (position[0] + 0.5) * scale, top + (position[1] + 0.5) * scale

    def drag(self, *positions: Position, key: str | None = None) -> None:
        """Press the button at the first position and release it at the last."""
        self.clicks += 1
        if key:
            self.page.keyboard.down(key)
        self.page.mouse.move(*self.at(positions[0]))
        self.page.mouse.down()
        for position in positions[1:]:
            self.page.mouse.move(*self.at(position), steps=8)
        self.page.mouse.up()
        if key:
            self.page.keyboard.up(key)

    def drag_and_save(self, *positions: Position, key: str | None = None) -> None:
        """Draw, and wait until the server has it."""
        self.drag(*positions, key=key)
        self.saved()

    def click_at(self, position: Position) -> None:
        self.clicks += 1
        self.page.mouse.click(*self.at(position))

    # Buttons and keys

    def press(self, keys: str) -> None:
        self.clicks += 1
        self.page.keyboard.press(keys)

    def button(self, name: str) -> None:
        self.clicks += 1
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def primary(self, text: str | None = None) -> None:
        """Do what the page proposes."""
        self.clicks += 1
        self._last_job = self.value("timecycle.store.server.job.number")
        button = self.page.locator("#next button.primary")
        if text is not None:
            button = button.filter(has_text=text)
        button.click()

    def name_object(self, number: int, name: str) -> None:
        self.clicks += 1
        self.page.fill(f"#name-{number}", name)
        self.press("Enter")
        self.until(f"timecycle.project().objects.some((one) => one.name === {name!r})")

    def go_to(self, index: int) -> None:
        self.clicks += 1
        self.page.fill("#frame-number", str(index))
        self.press("Enter")
        self.shows(index)
        self.page.locator("#canvas").focus()

    def job_done(self, verb: str, *, seconds: float = 180) -> None:
        job = "timecycle.store.server.job"
        ended = f'!["running", "stopping"].includes({job}.status)'
        self.until(f'{job}.number > {self._last_job} && {job}.verb === "{verb}" && {ended}', seconds=seconds)
        assert self.value(f"{job}.status") == "done", self.value(job)
        # The news that a job has ended comes before what it has made, which is drawn a moment later.
        self.until("timecycle.settled() && timecycle.store.run.status === 'finished'")
        self.page.evaluate("() => new Promise(requestAnimationFrame)")

    def export(self, name: str, folder: Path) -> Path:
        """Export in a format; returns the file that the browser saved."""
        with self.page.expect_download() as download:
            self.clicks += 1
            self.page.locator(f'[data-name="export-{name}"]').click()
        path: Path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    # What is seen

    def mask_sizes(self) -> dict[str, int]:
        """The number of pixels of each object on the frame that is shown, counted from what the page holds."""
        sizes: dict[str, int] = self.page.evaluate(
            """async () => {
                const { currentMask } = await import("/static/editor.js");
                const sizes = {};
                for (const id of currentMask()?.ids ?? []) if (id) sizes[id] = (sizes[id] ?? 0) + 1;
                return sizes;
            }"""
        )
        return sizes

    def shot(self, name: str) -> None:
        """Keep a picture of the page where TIMECYCLE_SHOTS names a folder."""
        folder = os.environ.get("TIMECYCLE_SHOTS")
        if folder:
            self.page.screenshot(path=f"{folder}/{name}.png")

    def errors(self) -> list[str]:
        """What went wrong in the page: messages of the browser, and problems that the page shows."""
        shown = self.page.locator(".toast.problem").all_inner_texts()
        return [*(one for one in self.messages if one.startswith(("error", "warning", "dialog"))), *shown]
