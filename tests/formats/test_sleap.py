"""SLEAP files that sleap-io writes are read, and it reads ours."""

import numpy as np
import pytest

from label_samples import SIZE, keypoints, mask, masks, points
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, write_file

sleap_io = pytest.importorskip("sleap_io")


@pytest.fixture
def project(tmp_path):
    """Two flies with tracks on frames 3 and 8; one is predicted and corrected by hand on frame 8."""
    skeleton = sleap_io.Skeleton(["head", "thorax"])
    video = sleap_io.Video(filename="flies.mp4", backend_metadata={"shape": (10, 40, 50, 1)}, open_backend=False)
    one, two = sleap_io.Track("fly 1"), sleap_io.Track("fly 2")

    def predicted(xy, track):
        return sleap_io.PredictedInstance.from_numpy(
            np.array(xy, float), skeleton=skeleton, point_scores=np.array([0.5, 0.75]), score=0.6, track=track
        )

    hand = sleap_io.Instance.from_numpy(np.array([(7.0, 8.0), (np.nan, np.nan)]), skeleton=skeleton, track=one)
    frames = [
        sleap_io.LabeledFrame(video, 3, [predicted([(1, 2), (3, 4)], one), predicted([(5, 6), (7, 8)], two)]),
        sleap_io.LabeledFrame(video, 8, [predicted([(9, 9), (9, 9)], one), hand]),
    ]
    sleap_io.save_slp(sleap_io.Labels(frames), str(tmp_path / "flies.slp"), verbose=False)
    return tmp_path / "flies.slp"


def test_tracks_of_sleap_are_individuals_and_hands_win_over_predictions(project):
    labels = read_file(project)
    assert (labels.video.frames, labels.video.size) == (10, (40, 50))
    assert list(labels.labels) == [3, 8]
    assert labels.labels[3].names == ("fly 1/head", "fly 1/thorax", "fly 2/head", "fly 2/thorax")
    assert labels.labels[3].xy.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert labels.labels[3].confidence.tolist() == [0.5, 0.75, 0.5, 0.75]
    assert labels.labels[8].xy[0].tolist() == [7, 8]
    assert labels.labels[8].visible.tolist() == [True, False]


def test_sleap_io_reads_the_same_points_and_scores(tmp_path):
    write_file(keypoints(), tmp_path / "labels.slp")
    theirs = sleap_io.load_slp(str(tmp_path / "labels.slp"), open_videos=False)
    assert theirs.skeleton.node_names == ["nez", "хвост", "left ear"]
    assert list(theirs.videos[0].shape) == [7, *SIZE, 3]
    for frame in theirs:
        drawn = points(frame.frame_idx)
        (instance,) = frame.instances
        count = len(drawn.names)
        assert np.array_equal(np.asarray(instance.points["xy"])[:count], drawn.xy, equal_nan=True)
        assert np.allclose(np.asarray(instance.points["score"])[:count], drawn.confidence)


def test_sleap_io_reads_the_same_masks_tracks_and_scores(tmp_path):
    write_file(masks(), tmp_path / "labels.slp")
    theirs = sleap_io.load_slp(str(tmp_path / "labels.slp"), open_videos=False)
    assert {track.name for track in theirs.tracks} == set(masks().names.values())
    for frame in theirs:
        ids = mask(frame.frame_idx).ids
        assert {one.name for one in frame.masks} == {str(i) for i in np.unique(ids) if i}
        for one in frame.masks:
            assert np.array_equal(one.data, ids == int(one.name))
            if frame.frame_idx > 0:
                assert one.score == pytest.approx(masks().known[frame.frame_idx][one.name].confidence)


@pytest.mark.parametrize("length", [0, 100, 3000])
def test_damaged_files_are_refused(project, length):
    project.write_bytes(project.read_bytes()[:length])
    with pytest.raises(LabelError, match=r"flies\.slp"):
        read_file(project)
