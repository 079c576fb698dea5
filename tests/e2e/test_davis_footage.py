"""Two real sequences from start to end, from the folder of JPEGs and from an mp4 made of it."""

import numpy as np
import pytest

from oracle import iou
from timecycle.cli import main
from timecycle.labels import Masks
from timecycle.video import VideoWriter, open_video


@pytest.mark.data
@pytest.mark.slow  # 280 frames of real footage at 240p
@pytest.mark.parametrize(("name", "least"), [("blackswan", 0.75), ("camel", 0.5)])
def test_a_sequence_from_jpegs_and_from_a_film_of_them(data, tmp_path, name, least):
    """`least` is the mean overlap with the true masks, a little below what random weights reach."""
    frames = data / "davis2016" / "JPEGImages" / "480p" / name
    truth = data / "davis2016" / "Annotations" / "480p" / name
    video = open_video(frames)
    with VideoWriter(tmp_path / "film.mp4", video.size, video.time_base) as film:
        for frame in video:
            film.write(frame.image, frame.pts)
    found = {}
    for source in (frames, tmp_path / "film.mp4"):
        out = tmp_path / f"out-{source.name}"
        words = ["propagate", str(source), str(truth / "00000.png"), "-o", str(out), "--preset", "fast"]
        assert main(words) == 0
        assert len(open_video(out / "overlay.mp4")) == len(video)
        found[source.name] = [Masks.read(out / "labels" / f"{t:05d}.png").ids for t in range(len(video))]
    # Ids come back as they were given: DAVIS-2016 draws its object with 255.
    assert {int(i) for ids in found[name] for i in np.unique(ids)} == {0, 255}
    true = [Masks.read(truth / f"{t:05d}.png").ids > 0 for t in range(len(video))]
    overlap = np.mean([iou(ids > 0, mask) for ids, mask in zip(found[name], true, strict=True)])
    agreement = np.mean([iou(a > 0, b > 0) for a, b in zip(found[name], found["film.mp4"], strict=True)])
    assert overlap > least
    assert agreement > 0.9
