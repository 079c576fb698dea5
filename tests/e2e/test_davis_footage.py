"""Propagation through two real sequences, from a folder of JPEGs and from an mp4 made of them."""

import numpy as np
import pytest

from oracle import iou
from timecycle.cli import main
from timecycle.labels import Masks
from timecycle.video import VideoWriter, open_video


@pytest.mark.data
@pytest.mark.slow  # 280 frames of real footage at 240p
@pytest.mark.parametrize(("name", "min_iou"), [("blackswan", 0.75), ("camel", 0.5)])
def test_jpegs_and_mp4_of_a_sequence_give_similar_masks(data, tmp_path, name, min_iou):
    """`min_iou` is a little below the mean IoU with the ground truth that random weights reach."""
    frames = data / "davis2016" / "JPEGImages" / "480p" / name
    ground_truth = data / "davis2016" / "Annotations" / "480p" / name
    video = open_video(frames)
    with VideoWriter(tmp_path / "video.mp4", video.size, video.time_base) as writer:
        for frame in video:
            writer.write(frame.image, frame.pts)
    ids = {}
    for source in (frames, tmp_path / "video.mp4"):
        out = tmp_path / f"out-{source.name}"
        words = ["propagate", str(source), str(ground_truth / "00000.png"), "-o", str(out), "--preset", "fast"]
        assert main(words) == 0
        assert len(open_video(out / "overlay.mp4")) == len(video)
        ids[source.name] = [Masks.read(out / "labels" / f"{t:05d}.png").ids for t in range(len(video))]
    # Ids are kept: the object of DAVIS-2016 has the id 255.
    assert {int(i) for mask in ids[name] for i in np.unique(mask)} == {0, 255}
    expected = [Masks.read(ground_truth / f"{t:05d}.png").ids > 0 for t in range(len(video))]
    overlap = np.mean([iou(a > 0, b) for a, b in zip(ids[name], expected, strict=True)])
    agreement = np.mean([iou(a > 0, b > 0) for a, b in zip(ids[name], ids["video.mp4"], strict=True)])
    assert overlap > min_iou
    assert agreement > 0.9
