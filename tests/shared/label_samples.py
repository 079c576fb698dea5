"""Labels that are hard to hold: holes, empty frames, late objects, ids above 255, names beyond ASCII."""

from fractions import Fraction

import numpy as np

from timecycle.formats.video_labels import Known, LazyLabels, VideoFacts, VideoLabels
from timecycle.labels import Keypoints, Masks

SIZE = (48, 64)
FPS = float(Fraction(30000, 1001))
NAMES = {"1": "Müllers Zelle №1", "300": "мышь"}


def mask(index: int, size: tuple[int, int] = SIZE) -> Masks:
    """Object 1 with a hole, in two parts; object 300 from frame 2 on, one pixel wide at places; frame 3 is empty."""
    ids = np.zeros(size, np.uint16)
    if index % 10 == 3:
        return Masks(ids)
    left = 4 + index % 20
    ids[8:30, left : left + 18] = 1
    ids[14:20, left + 5 : left + 9] = 0
    ids[40:44, 2:7] = 1
    if index >= 2:
        ids[10:40, 50:56] = 300
        ids[24, 50:63] = 300
        ids[0, 0] = 300
    return Masks(ids, sixteen_bit=True)


def masks(frames: int = 7, *, labelled: int | None = None) -> VideoLabels:
    """A video of masks with names, confidence and states; `labelled`: only so many of its first frames have labels."""

    def known(index: int) -> dict[str, Known]:
        there = [str(i) for i in np.unique(mask(index).ids) if i]
        state = "occluded" if index == 4 else "visible"
        return {name: Known(round(1 - 0.03 * (index % 30), 4), state, annotated=index == 0) for name in there}

    indices = range(frames if labelled is None else labelled)
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(list(indices), mask),
        video=VideoFacts(name="clip.mp4", frames=frames, size=SIZE, fps=FPS),
        names=NAMES,
        known={index: known(index) for index in indices},
    )


def points(index: int) -> Keypoints:
    """Three points: one is hidden with a position on frame 2, one without on frame 4, one appears on frame 1."""
    names = ("nez", "хвост", "left ear")[: 2 if index == 0 else 3]
    xy = np.array([(10.25 + index % 40, 20.5), (3.125, 40 - index % 30), (55.5, 7)], np.float32)[: len(names)]
    visible = np.array([index % 10 != 2, index % 10 != 4, True])[: len(names)]
    xy[1] = np.nan if index % 10 == 4 else xy[1]
    confidence = np.array([0.5, 0.25, 0.875], np.float32)[: len(names)]
    return Keypoints(names, xy, visible, confidence)


def keypoints(frames: int = 7, *, labelled: int | None = None) -> VideoLabels:
    """A video of keypoints with confidence."""
    indices = range(frames if labelled is None else labelled)
    facts = VideoFacts(name="clip.mp4", frames=frames, size=SIZE, fps=FPS)
    return VideoLabels(kind=Keypoints, labels=LazyLabels(list(indices), points), video=facts)


SAMPLES = {"masks": masks, "keypoints": keypoints}
