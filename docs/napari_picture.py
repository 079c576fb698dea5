"""Make the picture of docs/napari.md: xvfb-run -s "-screen 0 1600x1000x24" python docs/napari_picture.py

Opens a clip of MDN (CC0) in napari, marks the flower on its first frame by its colour, presses the buttons of the
widget, and saves the window. Needs TIMECYCLE_DATA, napari with a Qt binding, OpenGL in software (Mesa), and
QT_QPA_PLATFORM=xcb.
"""

import os
import tempfile
import time
from pathlib import Path

import napari
import numpy as np
from PIL import Image

CLIP = "open_video/mdn_cc0/live_examples_media_cc0_videos_flower.mp4"
SHOWN = 34  # the frame on the picture
SIZE_PX = (1280, 800)


def main() -> None:
    os.environ["NAPARI_CONFIG"] = ""
    clip = Path(os.environ["TIMECYCLE_DATA"]) / CLIP
    with tempfile.TemporaryDirectory() as folder:
        viewer = napari.Viewer(show=True)
        viewer.window._qt_window.resize(*SIZE_PX)
        (image,) = viewer.open(clip, plugin="timecycle")
        image.name = "flower"
        _, widget = viewer.window.add_plugin_dock_widget("timecycle", "Propagate")
        viewer.layers.selection.active = image
        viewer._new_labels()
        masks = viewer.layers[-1]
        masks.name = "masks"
        masks.data[0] = _petals(np.asarray(image.data[0]))
        folder_line = str(Path(folder) / "flower_timecycle")
        widget.folder_line.setText(folder_line)
        widget.propagate()
        _wait(lambda: widget._worker is None)
        viewer.dims.set_current_step(0, SHOWN)
        widget.message.setText(widget.message.text().replace(folder_line, "flower_timecycle"))
        widget.folder_line.setText("flower_timecycle")
        _wait(lambda: False, seconds=2)  # let the canvas be drawn
        shot = Image.fromarray(viewer.screenshot(canvas_only=False, flash=False)).convert("RGB")
        shot.save(Path(__file__).parent / "images" / "napari.jpg", quality=85, optimize=True)
        viewer.close()


def _petals(image: np.ndarray) -> np.ndarray:
    """Return 3, whose colour stands out, where the first frame shows the petals: the red pixels in the middle."""
    red, green, blue = (image[..., channel].astype(int) for channel in range(3))
    rows, columns = np.indices(red.shape)
    middle = (abs(columns - 205) < 50) & (abs(rows - 120) < 50)
    return (middle & (red > 150) & (red - np.maximum(green, blue) > 50)).astype(int) * 3


def _wait(condition: object, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # type: ignore[operator]
        napari.qt.get_qapp().processEvents()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
