"""A real S3 server on loopback, and videos to pack."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bulk_runs import SETTINGS, contents
from made_videos import make_manifest, make_video, write_video
from s3_server import S3Server
from timecycle.cli import main
from timecycle.store import ObjectStore, open_store


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    before = dict(os.environ)
    os.environ.update(server.environment)
    server.start()
    yield server
    server.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty bucket."""
    name = f"b{abs(hash(tmp_path)):x}"
    (server.root / name).mkdir()
    server.notice()
    store = open_store(f"s3://{name}/corpus")
    assert isinstance(store, ObjectStore)
    yield store
    shutil.rmtree(server.root / name)


@pytest.fixture(scope="session")
def short_videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty short videos."""
    folder = tmp_path_factory.mktemp("short_videos")
    for number in range(20):
        make_video(folder / f"video{number:02d}.mp4", number)
    return folder


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos that need more memory than a process has free without asking the system."""
    folder = tmp_path_factory.mktemp("videos")
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 255, (90, 200, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    for number in range(3):
        images = [texture[:, 8 * t + 40 * number :][:, :1280] for t in range(8)]
        write_video(folder / f"{number}.mp4", images)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Ten videos with a mask each, two of them corrupt, and a manifest."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = make_manifest(folder, 10, frames=8)
    for number in (3, 7):
        (folder / f"v{number}.mp4").write_bytes(b"no video at all")
    (folder / "good.csv").write_text("\n".join(line for line in lines if line[:2] not in ("v3", "v7")) + "\n")
    return folder


@pytest.fixture(scope="session")
def expected(corpus, tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """What `timecycle propagate` writes."""
    folder = tmp_path_factory.mktemp("expected")
    written = {}
    for number in (0, 5):
        words = [corpus / f"v{number}.mp4", corpus / f"m{number}.png", "-o", folder / str(number)]
        assert main(["propagate", *map(str, words), *SETTINGS]) == 0
        written[f"v{number}"] = contents(folder / str(number))
    return written
