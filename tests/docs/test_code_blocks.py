"""Every code block of README and docs is run, or at least parsed; the few that are not are listed with the reason."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

import timecycle as tc
from clips import small_world, write_clip, write_mask
from pages import GENERATED, ROOT, Block, blocks, page_names, read_page, without_blocks
from timecycle.cli import main
from timecycle.cli.console import split_mode
from timecycle.cli.help import check_options, find_command
from timecycle.cli.main import _definitions, _parse
from timecycle.config import propagate_config, train_config
from timecycle.model.resnet import ResNetConfig, random_resnet

BLOCKS = [block for page in page_names() if page not in GENERATED for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language in ("", "sh")]

# Blocks that show something else than code to run have a language: ```text, ```json and so on.
SHOWN_ONLY = {"text", "json", "diff", "bibtex"}

# Python blocks that are not run here, by page and first line.
NOT_RUN = {
    ("docs/scale.md", "import ray"): "starts Ray; tests/scale/test_label_batch.py runs `label_batch` in Ray Data",
    ("docs/sam2_session.md", "predictor = build_sam2_video_predictor(model_cfg, checkpoint)"): (
        "its box belongs to the reader's footage; tests/integrations/test_sam2_session.py makes these calls"
    ),
    (
        "docs/tutorials/evaluate.md",
        "import torch",
    ): "evaluates three sequences of DAVIS; docs/python.md runs such an encoder",
    ("docs/tutorials/train.md", "import pandas as pd"): "reads the journal of the training run above it",
}
RUN_ELSEWHERE = {"docs/python.md": "tests/test_python_face.py"}  # in order, with datasets and training

# Programs of others, which are not called here.
OTHERS = {
    "cvat-cli": "talks to a server; tests/integrations/test_cvat_function.py has a small one",
    ".ci/newest": "installs the newest versions of all packages",
    "docker": "tests/deploy/test_dockerfile.py runs the steps of the Dockerfile",
    "export": "sets a variable of the shell",
    "napari": "opens a window; tests/integrations runs the plugin in napari",
}

# Commands that take a second or so on a small clip are run, the others are parsed only.
RUN = (
    *("audit dog.mp4", "check", "convert out matte.mov", "flow", "weights show", "weights verify"),
    *("propagate dog.mp4 first.png", "propagate dog.mp4 --coordinates"),
)


def lines() -> list[tuple[str, str]]:
    """The commands of all shell blocks with their pages: without prompts, comments and redirections.

    In a block with prompts, the other lines are what was printed.
    """
    commands = []
    for block in SHELL:
        typed = block.text.replace("\\\n", " ").splitlines()
        prompted = [line for line in typed if line.startswith("$ ")]
        for line in prompted or typed:
            command = re.split(r"(?:^|\s)#\s|\s\d?>", line.removeprefix("$ "))[0].strip()
            if command:
                commands.append((block.page, command))
    return commands


def timecycle_words(command: str) -> list[str] | None:
    """The words after `timecycle`, however it is started; None for another program."""
    words = shlex.split(re.sub(r"\$\(seq (\d+) (\d+)\)", r"\1 \2", command))  # the shell fills in what is between
    if words[0] == "timecycle":
        return words[1:]
    return words[words.index("-m") + 2 :] if words[0] == "torchrun" and "timecycle" in words else None


OURS = list(dict.fromkeys((page, command) for page, command in lines() if timecycle_words(command) is not None))
CHEAP = [
    command
    for command in dict.fromkeys(command for _, command in OURS)
    if command.startswith(tuple(f"timecycle {one}" for one in RUN)) and "--encoder" not in command
]


def test_languages_are_known_and_lists_have_no_old_entries():
    assert {block.language for block in BLOCKS} <= {"", "sh", "python", *SHOWN_ONLY}
    assert set(NOT_RUN) <= {block.key for block in PYTHON}
    used = {shlex.split(command)[0] for _, command in lines()}
    assert set(OTHERS) <= used
    assert all(f"timecycle {one}" in " ".join(CHEAP) for one in RUN)
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "command"), OURS)
def test_command_can_be_parsed_and_its_settings_exist(page, command):
    words, _ = split_mode(timecycle_words(command))
    typed = find_command(words, _definitions(words[0]))
    check_options(typed, words)
    parsed = _parse(typed, words)
    parsed = next((one for one in vars(parsed).values() if hasattr(one, "preset")), parsed)  # evaluate BENCHMARK
    if getattr(parsed, "preset", None):
        (train_config if words[0] == "train" else propagate_config)(parsed.preset, getattr(parsed, "set", ()) or ())


@pytest.mark.parametrize("page", [page for page in page_names() if page not in (*GENERATED, "CHANGELOG.md")])
def test_commands_and_options_within_sentences_exist(page):
    for command in re.findall(r"`(timecycle [a-z][^`]*)`", without_blocks(read_page(page))):
        words, _ = split_mode(shlex.split(command)[1:])
        typed = find_command(words, _definitions(words[0]))
        if len(words) > len(typed.words):
            check_options(typed, words)


@pytest.mark.parametrize(("page", "command"), [one for one in dict.fromkeys(lines()) if one not in OURS])
def test_command_of_another_program_names_what_exists(page, command):
    program, *words = shlex.split(command)
    files = [word for word in words if re.match(r"(benchmarks|deploy|docs|examples)/", word)]
    if program == "pip":
        extras = re.findall(r"(?:timecycle|\.)\[([\w,]+)\]", command)
        known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        assert extras or words == ["install", "."]
        assert all(name in known for names in extras for name in names.split(","))
    elif program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    elif command == "python mine.py":  # the Python block above it
        assert page == "docs/tutorials/evaluate.md"
    elif program in ("python", "sbatch", "kubectl"):
        assert files, f"{page}: no file of the repository in {command!r}"
        assert all((ROOT / file).is_file() for file in files)
    else:
        assert program in OTHERS, f"{page}: {command!r} is neither parsed nor listed here as another program's"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the examples name: a video, masks, a finished run, a saved encoder, a list of videos."""
    folder = tmp_path_factory.mktemp("files")
    world = small_world(frames=12)
    clip = write_clip(folder / "dog.mp4", world)
    write_mask(folder / "first.png", world)
    (folder / "masks").mkdir()
    for t in range(12):
        write_mask(folder / "masks" / f"{t:05d}.png", world, t)
    tc.propagate_to_folder(clip, {0: folder / "first.png"}, folder / "out")
    tc.save_pretrained(random_resnet(ResNetConfig(), seed=0), folder / "folder")
    (folder / "videos.csv").write_text("video,labels\ndog.mp4,first.png\n", encoding="utf-8")
    return folder


@pytest.fixture
def here(files, tmp_path, monkeypatch):
    """A copy of these files, as the current folder."""
    copied = shutil.copytree(files, tmp_path / "here")
    monkeypatch.chdir(copied)
    return copied


@pytest.mark.parametrize("command", CHEAP)
def test_command_runs(command, here):
    if command.startswith("timecycle propagate") and "--resume" not in command:
        shutil.rmtree("out")  # the run that the other commands read
    assert main([*timecycle_words(command), "-q"]) == 0


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON} - set(RUN_ELSEWHERE)))
def test_python_of_a_page_runs(page, here):
    """The blocks of a page are one program, from top to bottom."""
    names: dict[str, object] = {}
    for block in PYTHON:
        if block.page == page and block.key not in NOT_RUN:
            exec(compile(block.text, f"{page}: {block.key[1]}", "exec"), names)


def test_block_without_its_reason_is_noticed():
    """The checks above see a block that nobody knows."""
    unknown = Block("docs/new.md", "", "rm -rf everything\n")
    with pytest.raises(AssertionError, match="neither parsed nor listed"):
        test_command_of_another_program_names_what_exists(unknown.page, unknown.text.strip())
