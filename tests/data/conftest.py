"""A folder of moving synthetic videos and its index, shared by tests that only read them."""

from pathlib import Path

import pytest
from training_footage import moving_folder

from timecycle.data.corpus.index import Index, make_index


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return moving_folder(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="session")
def index(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return make_index(videos, tmp_path_factory.mktemp("index") / "index.jsonl")
