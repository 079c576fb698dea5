"""Feature maps kept on disk: each frame is encoded once, and nothing depends on whether its features were kept."""

import collections

import pytest
import torch

from oracle import OracleEncoder
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.grid import grid_over
from timecycle.labels import Masks
from timecycle.model.encoder import FeatureMap
from timecycle.propagation import spool
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.spool import FeatureSpool
from timecycle.propagation.video import propagate
from timecycle.propagation.workfolder import WorkFolder
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

FRAMES = 14
CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


class Counting(OracleEncoder):
    """Counts how often each image is encoded."""

    def __init__(self, world):
        super().__init__(world, stride_px=8)
        self.counts = collections.Counter()

    def encode(self, image):
        self.counts[image.tobytes()] += 1
        return super().encode(image)


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(height_px=48, width_px=64, frames=FRAMES, objects=2))


def feature_map(seed: int, dtype: torch.dtype = torch.float32) -> FeatureMap:
    cells = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return FeatureMap(cells, grid_over(32, 48, cells=(4, 6), stride_px=8, first_px=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_spooled_features_are_bit_identical(tmp_path, dtype):
    spooled = FeatureSpool(tmp_path / "features")
    kept = {index: feature_map(index, dtype) for index in (3, 70000)}
    kept[3].cells[0, 0, 0] = -0.0
    for index, features in kept.items():
        spooled.write(index, features)
    for index, features in kept.items():
        read = spooled.read(index)
        assert read.grid == features.grid
        assert read.cells.dtype == dtype
        assert torch.equal(read.cells.view(torch.uint8), features.cells.view(torch.uint8))
    assert spooled.read(4) is None


def test_a_spool_stays_within_its_limit(tmp_path):
    size = 4 * 6 * 8 * 4
    spooled = FeatureSpool(tmp_path / "features", room_bytes=2 * size + size // 2)
    for index in range(5):
        spooled.write(index, feature_map(index))
    assert sum(path.stat().st_size for path in (tmp_path / "features").iterdir()) == 2 * size
    assert [spooled.read(index) is not None for index in range(5)] == [True, True, False, False, False]


def test_a_full_disk_costs_only_time(tmp_path, monkeypatch):
    spooled = FeatureSpool(tmp_path / "features")
    monkeypatch.setattr(FeatureSpool, "_file", lambda self, index: tmp_path / "missing" / str(index))
    spooled.write(0, feature_map(0))
    assert spooled.read(0) is None
    assert spooled.room_bytes == 0


def test_files_of_another_process_are_not_read(tmp_path):
    FeatureSpool(tmp_path / "features").write(0, feature_map(0))
    assert FeatureSpool(tmp_path / "features").read(0) is None
    assert not list((tmp_path / "features").iterdir())


@pytest.mark.parametrize("annotated", [(0,), (0, 6, 13), (3, 9), (13,)])
@pytest.mark.parametrize("direction", ["both", "forward"])
def test_every_frame_is_encoded_once(world, annotated, direction):
    encoder = Counting(world)
    labels = {index: Masks(world.mask(index)) for index in annotated}
    config = PropagateConfig(window_px=32, anchor_window_px=32, direction=direction)
    video = open_video(world.video())
    assert len(list(propagate(video, labels, encoder=encoder, config=config, confidence=ConfidenceConfig()))) == FRAMES
    assert set(encoder.counts.values()) == {1}


@pytest.mark.parametrize("frames_kept", [0, 3])
def test_labels_and_confidence_do_not_depend_on_the_spool(world, tmp_path, monkeypatch, frames_kept):
    labels = {index: Masks(world.mask(index)) for index in (2, 8, 13)}

    def run():
        encoder, video = OracleEncoder(world, stride_px=8), open_video(world.video())
        work = WorkFolder(tmp_path / "work")
        for frame in propagate(video, labels, encoder=encoder, config=CONFIG, confidence=ConfidenceConfig(), work=work):
            yield frame.labels.ids.tobytes(), frame.confidence.cells.numpy().tobytes(), frame.confidence.value

    whole = list(run())
    for file in (tmp_path / "work").glob("*.snapshot"):
        file.unlink()
    monkeypatch.setattr(spool, "_MAX_BYTES", frames_kept * 6 * 8 * 64 * 4)
    assert list(run()) == whole
    assert len(list((tmp_path / "work" / "features").iterdir())) == frames_kept
