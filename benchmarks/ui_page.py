"""Measure the page in a real browser: how soon a frame is shown, what a stroke costs, whether memory stays flat.

    python benchmarks/ui_page.py --work DIR

The long video is generated: ten minutes of 1080p with a keyframe every 250 frames, the hardest case for random access.
A scrub is measured from the wish for a frame to its picture on the canvas, beside the bare decode of the same frame by
the same reader in this process, in turn. What is measured is kept in DIR/parts.json: run the command
again after an interruption. Results: ui_page.json.
"""

import argparse
import json
import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
from playwright.sync_api import Page, sync_playwright

from record import write_record
from served import Served
from timecycle import open_video

FPS, GOP = 24, 250
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")

# Shows a frame, and resolves with the milliseconds until it is on the canvas.
_SCRUB = """async (index) => {
  const { goTo } = await import("/static/player.js");
  const canvas = document.getElementById("canvas");
  const began = performance.now();
  goTo(index);
  while (canvas.dataset.shown !== String(index)) await new Promise((next) => setTimeout(next, 2));
  return performance.now() - began;
}"""

# Draws a stroke in small steps; returns the milliseconds of the page's work for each: paint the mask, draw the frame.
_STROKE = """async () => {
  const { draw } = await import("/static/view.js");
  const canvas = document.getElementById("canvas");
  const box = canvas.getBoundingClientRect();
  const took = [];
  const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, {
    clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true, button: 0 }));
  canvas.setPointerCapture = () => {};
  send("pointerdown", 200, 150);
  for (let i = 0; i < 200; i++) {
    const began = performance.now();
    send("pointermove", 200 + i, 150 + 40 * Math.sin(i / 20));
    draw();
    took.push(performance.now() - began);
    await new Promise(requestAnimationFrame);
  }
  send("pointerup", 400, 150);
  return took;
}"""


def make_video(path: Path, *, seconds: int, width: int, height: int, gop: int) -> Path:
    """Write a pan over a large noisy picture: every frame differs, and none is cheap to decode."""
    blocks = np.random.default_rng(0).integers(0, 256, (height // 8 + 40, width // 8 + 80, 3), np.uint8)
    picture = np.kron(blocks, np.ones((8, 8, 1), np.uint8))
    options: dict[str, object] = {
        "preset": "ultrafast",
        "g": str(gop),
        "keyint_min": str(gop),
        "sc_threshold": "0",
        "crf": "30",
    }
    unfinished = path.with_name(f"unfinished_{path.name}")
    with av.open(str(unfinished), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.options = width, height, "yuv420p", options
        for index in range(FPS * seconds):
            x, y = int(300 + 280 * np.sin(index / 90)), int(150 + 140 * np.cos(index / 70))
            image = np.ascontiguousarray(picture[y : y + height, x : x + width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return unfinished.rename(path)


def open_page(driver: Any, server: Served) -> Page:
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(_SWITCHES))
    page: Page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.set_default_timeout(120_000)
    page.goto(server.url)
    page.wait_for_selector("#canvas[data-shown='0']")
    return page


def measure_start(driver: Any, path: Path, work: Path) -> tuple[Served, Page, dict[str, float]]:
    """Start the server and the page; returns the seconds to the first frame and to the first stroke that is saved."""
    began = time.monotonic()
    server = Served(path, "-o", work / "out", cwd=work)
    page = open_page(driver, server)
    frame_seconds = time.monotonic() - began
    page.keyboard.press("b")
    page.mouse.move(500, 300)
    page.mouse.down()
    page.mouse.move(520, 300, steps=3)
    page.mouse.up()
    drawn_seconds = time.monotonic() - began
    page.wait_for_function("() => timecycle.project().frames[0] && !timecycle.busy()")
    measured = {
        "to_first_frame_seconds": frame_seconds,
        "to_first_stroke_seconds": drawn_seconds,
        "to_first_stroke_saved_seconds": time.monotonic() - began,
    }
    return server, page, {name: round(value, 3) for name, value in measured.items()}


def measure_scrubs(page: Page, path: Path, *, count: int) -> dict[str, Any]:
    """Scrub to random frames, and decode the same frames here."""
    rows = []
    with open_video(path) as video:
        _ = video[0]  # counts the frames, as opening the page has done
        for index in random.Random(0).sample(range(len(video)), count):
            began = time.monotonic()
            _ = video[index]
            bare_seconds = time.monotonic() - began
            rows.append(
                {"frame": index, "bare_seconds": bare_seconds, "page_seconds": page.evaluate(_SCRUB, index) / 1000}
            )
    bare, shown = (statistics.median(row[name] for row in rows) for name in ("bare_seconds", "page_seconds"))
    return {
        "frames": count,
        "bare_median_seconds": round(bare, 3),
        "page_median_seconds": round(shown, 3),
        "limit_seconds": round(1.5 * bare + 0.2, 3),
        "worst_page_seconds": round(max(row["page_seconds"] for row in rows), 3),
    }


def measure_stroke(page: Page) -> dict[str, float]:
    """Draw a stroke; a display has a new picture every 16.7 ms."""
    took = sorted(page.evaluate(_STROKE))
    page.wait_for_function("() => !timecycle.busy()")
    return {
        "median_milliseconds": round(statistics.median(took), 2),
        "p95_milliseconds": round(took[int(0.95 * len(took))], 2),
    }


def measure_memory(page: Page, server: Served, *, scrubs: int, deadline: float) -> list[dict[str, Any]]:
    """Scrub to random frames again and again; returns the memory of every process, in MB, on the way.

    Memory belongs to one server, so this part is not resumed: past the deadline it ends with what it has.
    """
    frames = page.evaluate("() => timecycle.project().video.frames")
    chance, rows = random.Random(1), []
    for done in range(1, scrubs + 1):
        page.evaluate(_SCRUB, chance.randrange(frames))
        is_late = time.monotonic() > deadline
        if done in (scrubs // 10, scrubs // 4, scrubs // 2, 3 * scrubs // 4, scrubs) or is_late:
            page.evaluate("() => globalThis.gc?.()")
            heap = page.evaluate("() => performance.memory.usedJSHeapSize")
            rows.append({"scrubs": done, "page_heap_mb": heap >> 20, **_memory_mb(server.process.pid)})
            print(json.dumps(rows[-1]), flush=True)
        if is_late:
            break
    return rows


def _memory_mb(pid: int) -> dict[str, int]:
    """The resident memory of the server and of the processes it has started."""
    used = {"server_mb": _resident_mb(pid)}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        used[f"{words[-2]}_mb"] = _resident_mb(int(child))
    return used


def _resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) >> 10


def measure_objects(page: Page, *, count: int) -> dict[str, Any]:
    """Give a mask many objects, and draw on: a grid of blobs."""
    page.evaluate(
        """async (count) => {
          const { saveSetting, beginEdit, commitEdit } = await import("/static/editor.js");
          const { drawLine } = await import("/static/masks.js");
          const objects = Array.from({ length: count }, (_, i) => ({ id: i + 1, name: "" }));
          await saveSetting("objects", objects);
          const mask = beginEdit();
          const columns = 10, [w, h] = [mask.width / columns, mask.height / Math.ceil(count / columns)];
          for (const { id } of objects) {
            const at = { x: (((id - 1) % columns) + 0.5) * w, y: (Math.floor((id - 1) / columns) + 0.5) * h };
            drawLine(mask, at, at, Math.min(w, h) / 3, id);
          }
          commitEdit(...objects.map((one) => one.id));
        }""",
        count,
    )
    page.wait_for_function(f"() => !timecycle.busy() && timecycle.project().objects.length === {count}")
    began = time.monotonic()
    page.evaluate("async () => { const view = await import('/static/view.js'); view.repaint(); view.draw(); }")
    return {"objects": count, "repaint_seconds": round(time.monotonic() - began, 3), "stroke": measure_stroke(page)}


class Parts:
    """What has been measured so far, kept in a file."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path, self._settings = path, settings
        kept = json.loads(path.read_text()) if path.is_file() else {}
        self.measured: dict[str, Any] = kept["measured"] if kept.get("settings") == settings else {}

    def keep(self, **parts: Any) -> None:
        self.measured |= parts
        self._path.write_text(json.dumps({"settings": self._settings, "measured": self.measured}, indent=2))
        print(json.dumps(parts, indent=2), flush=True)


def measure_long(driver: Any, long: Path, work: Path, parts: Parts) -> None:
    """Measure the start, scrubs and strokes with the long video."""
    for out in work.glob("out*"):
        shutil.rmtree(out)
    server, page, start = measure_start(driver, long, work)
    try:
        parts.keep(
            start=start,
            scrub=measure_scrubs(page, long, count=50),
            stroke=measure_stroke(page),
            many_objects=measure_objects(page, count=50),
        )
    finally:
        page.close()
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--scrubs", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=240, help="end the part about memory after so long")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    long, short = work / "long.mp4", work / "short.mp4"
    if not long.is_file():
        make_video(long, seconds=arguments.seconds, width=1920, height=1080, gop=GOP)
    if not short.is_file():
        make_video(short, seconds=60, width=640, height=360, gop=12)
    settings = {
        "long": f"{arguments.seconds} s of 1920x1080, {FPS} fps, a keyframe every {GOP} frames",
        "scrubs": arguments.scrubs,
    }
    parts = Parts(work / "parts.json", settings)
    with sync_playwright() as driver:
        if "many_objects" not in parts.measured:
            measure_long(driver, long, work, parts)
        if "memory" not in parts.measured:
            server = Served(short, "-o", work / "out_short", cwd=work)
            try:
                page, deadline = open_page(driver, server), began + 60 * arguments.minutes
                parts.keep(memory=measure_memory(page, server, scrubs=arguments.scrubs, deadline=deadline))
            finally:
                server.stop()
    write_record("ui_page", settings=settings, measured=parts.measured, seconds=time.monotonic() - began)


if __name__ == "__main__":
    main()
