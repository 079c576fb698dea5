"""The folder for the Hugging Face Hub: what it holds is read by the Hub's own library and by ours."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import model_folder
import release_check
from timecycle.model.hub import from_pretrained
from timecycle.model.weights import bundled_weights, load_weights, read_card
from timecycle.version import __version__

ROOT = Path(__file__).parents[1]
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
    assert matter.metrics == ["j&f", "pck@0.2"]
    first = matter.eval_results[0]
    report = json.loads((ROOT / "benchmarks/results/davis2016_480p_default_timecycle_v2.json").read_text())
    assert (first.dataset_name, first.metric_name) == ("DAVIS-2016 val", "J&F, default, 480p")
    assert first.metric_value == round(100 * report["scores"]["JF"], 1)


def test_results_of_other_weights_are_refused():
    card = dataclasses.replace(read_card(WEIGHTS), sha256="0" * 64)
    with pytest.raises(ValueError, match="measured with other weights"):
        model_folder.measured(NAME, card)


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


PAGE = """# timecycle-v2

The default.

## How good it is

![worst](images/worst.png)

Better than [random](results.md#masks).

### Limits

Smoke.

## timecycle-v1

Other footage. Less free than [the default](#how-good-it-is).

### Limits

[Arms](https://host.example/arms).

## Terms

Or [`timecycle-v1`](#timecycle-v1).
"""


def test_card_of_an_encoder_holds_its_own_part_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(model_folder, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "model.md").write_text(PAGE)
    (tmp_path / "pyproject.toml").write_text('[project]\nurls = { Repository = "https://host.example/a" }\n')
    docs = f"https://host.example/a/blob/v{__version__}/docs"
    assert (
        model_folder.page_about("timecycle-v2")
        == f"""
## How good it is

Better than [random]({docs}/results.md#masks).

### Limits

Smoke.

## Terms

Or [`timecycle-v1`]({docs}/model.md#timecycle-v1).
"""
    )
    assert (
        model_folder.page_about("timecycle-v1")
        == f"""
Other footage. Less free than [the default]({docs}/model.md#how-good-it-is).

### Limits

[Arms](https://host.example/arms).
"""
    )
    assert model_folder.page_about("mine") == ""


def test_page_has_a_part_about_every_bundled_encoder():
    parts = {name: model_folder.page_about(name) for name in bundled_weights()}
    assert all(parts.values())
    assert not any(f"\n## {name}\n" in part for name in parts for part in parts.values())


@pytest.mark.slow  # runs a process of torch for each encoder
def test_release_workflow_makes_a_folder_of_every_bundled_encoder(tmp_path):
    yaml, bash = pytest.importorskip("yaml"), shutil.which("bash")
    if bash is None:
        pytest.skip("the steps of the workflow need bash")
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    lines = [step.get("run", "") for step in workflow["jobs"]["checklist"]["steps"]]
    (making,) = (line for line in lines if "model_folder.py" in line)
    (checking,) = (line for line in lines if "release_check.py" in line)
    assert " --model model/* " in checking
    for name in (".ci", "docs", "pyproject.toml", "src", "THIRD_PARTY_NOTICES"):
        (tmp_path / name).symlink_to(ROOT / name)
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [bash, "-e", "-c", making], cwd=tmp_path, env={**os.environ, "PATH": search}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "model").iterdir())
    assert [folder.name for folder in folders] == sorted(bundled_weights())
    assert list(release_check.check_models(ROOT, folders)) == []
    for folder in folders:
        ours, theirs = load_weights(bundled_weights()[folder.name]).state_dict(), from_pretrained(folder).state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_weights_without_a_card_are_refused(tmp_path):
    shutil.copy(WEIGHTS, tmp_path / "mine.safetensors")
    with pytest.raises(ValueError, match=r"has no card; put mine\.json beside it"):
        model_folder.write_folder(tmp_path / "mine.safetensors", tmp_path / "model")


def test_licence_that_the_hub_does_not_know_is_refused():
    card = dataclasses.replace(read_card(WEIGHTS), licence="not stated")
    with pytest.raises(ValueError, match="'not stated', which the Hub does not know; begin it with one of apache"):
        model_folder.model_card(NAME, card, hub="")
