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


@pytest.mark.parametrize(
    ("platform", "machine", "builds"),
    [
        ("linux", "x86_64", ["cp311-manylinux_x86_64"]),
        ("linux", "aarch64", ["cp311-manylinux_aarch64"]),
        ("macos", "arm64", ["cp311-macosx_arm64"]),
        ("windows", "AMD64", []),
    ],
)
def test_one_wheel_is_built_for_each_platform_with_a_kernel(platform, machine, builds):
    pytest.importorskip("cibuildwheel")
    words = ["-m", "cibuildwheel", "--platform", platform, "--archs", machine, "--print-build-identifiers", str(ROOT)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == builds


def test_wheels_are_built_with_the_pinned_cibuildwheel():
    (pin,) = re.findall(r"^cibuildwheel==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"pip install {pin}\n" in (ROOT / ".github/workflows/wheels.yml").read_text()


def test_reports_and_pull_requests_ask_for_the_doctor():
    for name in ("ISSUE_TEMPLATE/bug.yml", "ISSUE_TEMPLATE/idea.yml", "pull_request_template.md"):
        assert "timecycle doctor" in (ROOT / ".github" / name).read_text()
    body = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())["body"]
    assert [field["id"] for field in body if field.get("validations", {}).get("required")] == ["what", "doctor"]


def test_zizmor_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    command = str(zizmor) if zizmor.exists() else shutil.which("zizmor")
    if command is None:
        pytest.skip("zizmor is not installed (extra dev)")
    done = subprocess.run([command, "--offline", "--quiet", str(ROOT / ".github")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
