"""The Dockerfile: what it copies is there, what it names is tested, and its steps make a working image."""

import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml
from clean_root import Root, StepError, build, context_files, why_not
from dockerfile import Dockerfile, in_context, read_dockerfile
from images import IMAGES, ROOT, command_of, free_port, images_of, parse_timecycle

from made_videos import make_manifest

PATH = ROOT / "Dockerfile"
FILE = read_dockerfile(PATH)


def test_linter_finds_no_fault():
    done = subprocess.run(["hadolint", str(PATH)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_stages_build_on_each_other_and_the_last_one_runs_timecycle_without_rights():
    python, compiled, runtime = FILE.stages.values()
    assert python.base == FILE.arguments["BASE"] == "debian:bookworm-slim"
    assert compiled.base == runtime.base == python.name
    assert [step.words for step in runtime.find("ENTRYPOINT")] == [["timecycle"]]
    assert [step.text for step in runtime.find("USER")] == ["1000"]
    assert not any("g++" in step.text for stage in (python, runtime) for step in stage.steps)


def test_variants_are_build_arguments_with_the_cpu_as_default():
    arguments = [step.text for step in FILE.stages["build"].find("ARG")]
    assert arguments == ["VARIANT=cpu", "TORCH_INDEX="]
    (choice,) = [step.text for step in FILE.stages["build"].find("RUN") if "$VARIANT" in step.text]
    assert all(f"{variant}) index=https://" in choice for variant in IMAGES)


def test_unknown_variant_is_refused():
    (choice,) = [step.text for step in FILE.stages["build"].find("RUN") if "$VARIANT" in step.text]
    done = subprocess.run(
        ["/bin/sh", "-c", choice], env={"VARIANT": "rocm", "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "VARIANT is rocm: use cpu or cuda" in done.stderr


def test_every_copied_file_is_in_the_context():
    for step in FILE.stages["build"].find("COPY"):
        for source in step.words[:-1]:
            assert context_files(ROOT, source), source


def test_context_has_every_tracked_file_of_the_package_and_nothing_compiled():
    tracked = {path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert set(context_files(ROOT, "src")) == {path for path in tracked if path.suffix not in (".so", ".part")}
    ignore = (ROOT / ".dockerignore").read_text()
    assert not any(
        in_context(name, ignore) for name in (".git/config", "tests/conftest.py", "out/run.json", "src/a.so")
    )


def test_examples_name_our_images_and_can_be_parsed():
    text = PATH.read_text()
    assert images_of(text) == images_of((ROOT / "docs" / "scale.md").read_text()) == set(IMAGES.values())
    (line,) = [line for line in text.splitlines() if "docker run" in line]
    parse_timecycle(command_of(f"timecycle {line.partition(IMAGES['cpu'])[2]}"))


@pytest.mark.slow  # installs a Debian system, a compiler, torch, Ray and the package: three minutes of one core
def test_steps_make_a_working_image_in_a_clean_root(tmp_path):
    if why_not():
        pytest.skip(why_not())
    try:
        check_image(build(FILE, context=ROOT, folder=tmp_path, arguments=torch_index()))
    finally:
        shutil.rmtree(tmp_path)  # pytest would keep gigabytes


def check_image(root: Root) -> None:
    """Check the programs, the user and the parts of the root in which the image was made, and run a job in it."""
    entry = FILE.stages["runtime"].find("ENTRYPOINT")[0].words

    doctor = root.run([*entry, "doctor"]).stdout
    assert "compiled kernel (" in doctor
    assert "+cpu\n" in doctor
    assert all(f"ok  {extra}" in doctor for extra in ("hub", "s3:// addresses", "bulk --ray"))
    assert root.run(["id", "-u"]).stdout == "1000\n"
    assert root.run(["sh", "-c", "command -v g++"], check=False).returncode != 0
    # KubeRay may start a login shell, in which the programs must be found too.
    found = root.run(["bash", "-lc", "command -v timecycle ray torchrun"]).stdout.split()
    assert found == [f"/opt/timecycle/bin/{name}" for name in ("timecycle", "ray", "torchrun")]

    run_ray_job(root)


def run_ray_job(root: Root) -> None:
    """Submit the command of the RayJob to a cluster of one node with a token, as KubeRay would."""
    make_manifest(root.path("/data"), 2, frames=3)
    given = yaml.safe_load((ROOT / "deploy" / "kuberay" / "bulk.yaml").read_text())["spec"]["entrypoint"]
    entrypoint = f"{given.replace('s3://bucket/out', '/data/out')} --preset fast --set image_size_px=64 --encoder rgb"
    ports = free_port(), free_port()
    root.variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2}
    start = f"ray start --head --num-cpus=2 --port={ports[0]} --dashboard-port={ports[1]} --disable-usage-stats"
    done = root.run(["bash", "-lc", f"{start} && ray job submit --address http://127.0.0.1:{ports[1]} -- {entrypoint}"])
    assert "2 of 2 videos are done -> /data/out" in done.stdout
    assert {path.name for path in root.path("/data/out/records").iterdir()} == {"v0.json", "v1.json"}
    assert root.path("/data/out/v1/overlay.mp4").is_file()


def torch_index() -> dict[str, str]:
    """The build arguments of the CPU: the default where its index answers, else the index that this pip uses."""
    try:
        with urllib.request.urlopen("https://download.pytorch.org/whl/cpu/torch/", timeout=10):
            return {}
    except OSError:
        return {"TORCH_INDEX": "https://pypi.org/simple"}


def test_unknown_instructions_and_bases_are_errors_not_skipped(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM a AS b\nADD x y\n")
    with pytest.raises(ValueError, match="ADD"):
        read_dockerfile(tmp_path / "Dockerfile")
    (tmp_path / "Dockerfile").write_text("FROM alpine:3 AS b\nRUN true\n")
    file: Dockerfile = read_dockerfile(tmp_path / "Dockerfile")
    with pytest.raises(StepError, match="alpine"):
        build(file, context=Path(tmp_path), folder=tmp_path, arguments={})
