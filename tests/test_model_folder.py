"""The folder for the Hugging Face Hub: what it holds is read by the Hub's own library and by ours."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
import torch

import model_folder
import release_check
from timecycle.model.hub import from_pretrained
from timecycle.model.weights import bundled_weights, load_weights, read_card

(NAME, WEIGHTS), *_ = bundled_weights().items()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "model"
    model_folder.write_folder(WEIGHTS, folder, hub="people/encoder")
    return folder


def test_folder_holds_the_same_weights(folder):
    ours, theirs = load_weights(WEIGHTS).state_dict(), from_pretrained(folder).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_folder_passes_the_release_checklist(folder):
    assert list(release_check.check_model(folder)) == []


def test_front_matter_is_read_by_the_library_of_the_hub(folder):
    hub = pytest.importorskip("huggingface_hub")
    matter = hub.ModelCard.load(folder / "README.md").data
    assert matter.license in WEIGHTS.with_suffix(".json").read_text().lower()
    assert matter.library_name == "timecycle"
    assert "video" in matter.tags


def test_card_says_how_to_use_it_and_has_no_link_into_a_missing_tree(folder):
    readme = (folder / "README.md").read_text()
    assert f"# {NAME}\n" in readme
    assert "--encoder people/encoder" in readme
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_card_of_free_weights_names_the_owners_of_their_footage(tmp_path):
    model_folder.write_folder(bundled_weights()["timecycle-v2"], tmp_path / "model")
    readme = (tmp_path / "model" / "README.md").read_text()
    assert 'license: "apache-2.0"' in readme
    assert "BridgeData V2, Walke et al. 2023 (RAIL Berkeley), CC BY 4.0" in readme
    assert "Pictures in docs/images" not in readme


def test_weights_without_a_card_are_refused(tmp_path):
    shutil.copy(WEIGHTS, tmp_path / "mine.safetensors")
    with pytest.raises(ValueError, match=r"has no card; put mine\.json beside it"):
        model_folder.write_folder(tmp_path / "mine.safetensors", tmp_path / "model")


def test_licence_that_the_hub_does_not_know_is_refused():
    card = dataclasses.replace(read_card(WEIGHTS), licence="not stated")
    with pytest.raises(ValueError, match="'not stated', which the Hub does not know; begin it with one of apache"):
        model_folder.model_card(NAME, card, hub="")
