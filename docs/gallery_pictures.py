"""Make the pictures of docs/gallery.md: python docs/gallery_pictures.py DATA [NAME ...] (or set TIMECYCLE_DATA).

Annotates the first frame of short clips with boxes, propagates with the preset `fast`, and puts four frames side by
side with the confidence of the frame. Needs OpenCV (the extra `assist`), which finds the object in a box. Credits and
licences of the clips: docs/gallery.md.
"""

import os
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import timecycle as tc
from timecycle.labels.box import masks_of_boxes, object_in_box
from timecycle.render import Captioned, contact_sheet

IMAGES = Path(__file__).parent / "images"
FPS = 12  # of all these clips
Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels of the first frame


@dataclass(frozen=True)
class Case:
    """A clip of DATA/open_video, the boxes around its objects, and the frames that are shown."""

    video: str
    boxes: tuple[Box, ...] = ()
    shown: tuple[int, ...] = (0, 12, 24, 40)
    polygon: tuple[tuple[int, int], ...] = ()  # instead of boxes: corners of the object, where GrabCut misses it
    ids: tuple[int, ...] = (1, 2)  # of the objects: other colours, where those of the first ids are the objects' own


DOG = (
    *((150, 134), (157, 128), (175, 128), (200, 129), (220, 132), (231, 140), (233, 149), (228, 158), (226, 176)),
    *((217, 182), (212, 179), (220, 174), (210, 155), (191, 155), (187, 164), (184, 179), (178, 178), (181, 160)),
    *((172, 150), (160, 140), (157, 148), (150, 148)),
)

CASES = {
    "elf": Case("mdn_cc0/pt_apis_client_side_storage_indexeddb_video_store_videos_elf.mp4", ((118, 30, 214, 214),)),
    "pig": Case("mdn_cc0/pt_apis_client_side_storage_indexeddb_video_store_videos_pig.mp4", ((158, 48, 192, 98),)),
    "rabbit": Case("mdn_cc0/apis_client_side_storage_indexeddb_video_store_videos_rabbit.mp4", ((146, 78, 222, 190),)),
    "cup": Case("opencv/doc_js_tutorials_js_assets_cup.mp4", ((148, 56, 210, 196),)),
    "box": Case("opencv/cpp_tutorial_code_calib3d_real_time_pose_estimation_Data_box_p0.mp4", ((142, 8, 292, 122),)),
    "coffee": Case("sam2_demo/demo_data_gallery_04_coffee_p0.mp4", ((142, 96, 262, 218), (262, 132, 330, 210))),
    "robot": Case("barkour/docs_images_capabilities_actuated_head_pickup.mp4", ((50, 88, 326, 232),), (0, 8, 16, 24)),
    "ladybird": Case("microsoft_samples/SharedContent_media_Samples_ladybug_p0.mp4", ((162, 76, 232, 134),)),
    "dog": Case("sam2_demo/demo_data_gallery_01_dog_p0.mp4", polygon=DOG),
    "cups": Case(
        "sam2_demo/demo_data_gallery_02_cups_p0.mp4",
        ((180, 96, 252, 186), (270, 94, 340, 186)),
        (0, 24, 32, 48),
        ids=(2, 4),
    ),
    "ball": Case("sam2_demo/demo_data_gallery_05_default_juggle_p0.mp4", ((200, 86, 234, 126),)),
    "mushroom": Case("bridgedata_v2/videos_2x_mushroom_lcbc_fail.mp4", ((36, 80, 72, 124),)),
}


def main() -> None:
    data = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["TIMECYCLE_DATA"])
    for name in sys.argv[2:] or CASES:
        sheet: np.ndarray = contact_sheet(_shots(CASES[name], data / "open_video"), columns=4, width_px=216)
        Image.fromarray(sheet).save(IMAGES / f"gallery_{name}.jpg", quality=80, optimize=True)


def _shots(case: Case, data: Path) -> list[Captioned]:
    """Propagate through the clip up to the last frame shown, and draw the labels of those that are shown."""
    with tc.open_video(data / case.video) as video:
        images = [frame.image for frame in islice(video, case.shown[-1] + 1)]
    shots = []
    for frame in tc.propagate(tc.open_video(np.stack(images), fps=FPS), {0: _masks(images[0], case)}, config="fast"):
        if frame.index in case.shown:
            confidence = frame.confidence if frame.index > 0 else None
            caption = "annotated" if confidence is None else f"confidence {confidence.value:.2f}"
            shots.append(Captioned(frame.labels.overlay(images[frame.index]), f"frame {frame.index}, {caption}"))
    return shots


def _masks(image: np.ndarray, case: Case) -> tc.Masks:
    """Return the masks of the first frame."""
    if case.polygon:
        height, width, _ = image.shape
        drawn = Image.new("L", (width, height))
        ImageDraw.Draw(drawn).polygon(case.polygon, fill=1)
        return tc.Masks.of(np.array(drawn))
    found = masks_of_boxes([object_in_box(image, box) for box in case.boxes])
    return tc.Masks.of(np.array((0, *case.ids))[found.ids])


if __name__ == "__main__":
    main()
