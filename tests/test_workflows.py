"""The workflows of .github: pinned, with the least permissions, and in step with pyproject.toml."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read(workflow: Path) -> dict:
    return yaml.safe_load(workflow.read_text())


def test_every_workflow_is_read():
    assert [path.stem for path in WORKFLOWS] == ["checks", "docs", "release", "smoke", "wheels"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version(workflow):
    for line in re.findall(r"uses: (.+)", workflow.read_text()):
        if not line.startswith("./"):  # a workflow of our own
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version_everywhere():
    pins = set(re.findall(r"uses: ([\w.-]+/[\w.-]+)@(\S+)", "".join(path.read_text() for path in WORKFLOWS)))
    assert len(pins) == len({name for name, _ in pins})


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_permissions_are_given_to_jobs_alone_and_runs_of_one_branch_do_not_overlap(workflow):
    content = read(workflow)
    assert content["permissions"] == {}
    assert content["concurrency"]["group"]
    for name, job in content["jobs"].items():
        assert "permissions" in job, name
        assert "uses" in job or job["timeout-minutes"], name


def test_only_publishing_jobs_can_write():
    writing = {
        (path.stem, name): sorted(key for key, value in job["permissions"].items() if value == "write")
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
    }
    assert {job: rights for job, rights in writing.items() if rights} == {
        ("docs", "publish"): ["id-token", "pages"],
        ("release", "publish"): ["id-token"],
    }


def test_quick_tests_run_on_every_python_that_the_package_names():
    tested = read(ROOT / ".github/workflows/checks.yml")["jobs"]["quick"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert tested == named
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"


def test_files_that_workflows_run_exist():
    for path in WORKFLOWS:
        for file in re.findall(r"\.ci/[\w.]+", path.read_text()):
            assert (ROOT / file).is_file(), f"{path.name}: {file}"


def test_zizmor_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    command = str(zizmor) if zizmor.exists() else shutil.which("zizmor")
    if command is None:
        pytest.skip("zizmor is not installed (extra dev)")
    done = subprocess.run([command, "--offline", "--quiet", str(ROOT / ".github")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
