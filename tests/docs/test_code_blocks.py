"""Every code block of README and docs is run, or at least parsed; the few that are not are listed with the reason."""

import re
import shlex
import shutil
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import timecycle as tc
from clips import small_world, write_clip, write_mask
from made_videos import make_video
from pages import GENERATED, ROOT, Block, blocks, page_names, read_page, without_blocks
from timecycle.cli import main
from timecycle.cli.console import split_mode
from timecycle.cli.help import check_options, find_command
from timecycle.cli.main import _definitions, _parse
from timecycle.config import propagate_config, train_config
from timecycle.data.augment.composites import CompositesConfig
from timecycle.evaluation.protocols.davis import CLIPS
from timecycle.labels import Masks
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.model.resnet import ResNetConfig, random_resnet
from trees import davis_tree

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

# Commands of timecycle that are parsed only; `*` stands for any text.
NOT_RUN_COMMANDS = {
    "ui *": "serves a page until it is stopped; tests/ui/test_server.py",
    "demo": "takes a minute; tests/e2e/test_demo.py",
    "benchmark*": "measures for minutes; tests/test_benchmark_command.py",
    "train *": "trains for minutes or hours; tests/training/test_cli_train.py",
    "pack * s3://*": "needs an object store; tests/scale/test_pack.py",
    "bulk * s3://*": "needs an object store; tests/scale/test_bulk_outputs.py",
    "bulk * -o rayed *": "starts Ray; tests/scale/test_bulk.py",
    "propagate * --device cuda *": "needs a GPU; tests/devices",
    "propagate * --encoder facebook/*": "downloads from the Hub; tests/model/test_hub.py",
    "propagate * --encoder microsoft/*": "downloads from the Hub; tests/model/test_hub.py",
    "evaluate davis davis2016 --encoder vgg16 *": "needs weights that no extra brings; tests/model/test_registry.py",
    "evaluate compare scores/rgb scores/mine": "the same as `evaluate compare out/rgb out/mine` of README.md",
    "propagate * --box 120,80,260,240 *": "the same as the boxes of docs/domains.md, in larger footage",
    "propagate dog.mp4 0=first.png 50=cat.png *": "the same as that of video.mp4 in docs/annotate.md",
    "correct out 43=a.png 60=b.png": "the same as with mask.png and other.png in docs/review.md",
    "evaluate composites videos/ --encoder rgb -o *": "the same as docs/tutorials/evaluate.md does with a preset",
    "evaluate composites videos --encoder run/*": "the same as docs/tutorials/evaluate.md does with `--encoder rgb`",
    "frames mouse.mp4 24 *": "the same as `frames mouse.mp4 $(seq 0 59)` of docs/tutorials/mouse.md",
    "tune dog.mp4 first.png --presets fast crw2020": "the same as docs/review.md does with two encoders",
    "tune dog.mp4 first.png --encoders A B": "A and B stand for the reader's encoders",
    "frames film.mp4 0 900 1800 *": "frames of a long video",
    "propagate film.mp4 0=a.png 900=b.png *": "frames of a long video",
    "correct out 1350=*": "a frame of a long video",
}

# Commands that need another run than the one above them in their block.
BEFORE = {
    "correct out points.csv": "propagate dog.mp4 points.csv -o out --preset fast --no-confidence",
    "propagate dog.mp4 first.png -o out --resume": "propagate dog.mp4 first.png -o out",
    "propagate film.mp4 first.png -o out --resume": "propagate film.mp4 first.png -o out",
}

# Files and formats for which an extra has a package; commands that name them run where it is installed.
PACKAGES = {
    "labels.json": "pycocotools",
    "tracks.json": "pycocotools",
    "--format coco": "pycocotools",
    "cells.tif": "tifffile",
    ".h5": "tables",
}


def commands(block: Block) -> list[str]:
    """The commands of a shell block: without prompts, comments and redirections.

    In a block with prompts, the other lines are what was printed.
    """
    typed = block.text.replace("\\\n", " ").splitlines()
    prompted = [line for line in typed if line.startswith("$ ")]
    found = (re.split(r"(?:^|\s)#\s|\s\d?>", line.removeprefix("$ "))[0].strip() for line in prompted or typed)
    return [command for command in found if command]


def lines() -> list[tuple[str, str]]:
    """The commands of all shell blocks with their pages."""
    return [(block.page, command) for block in SHELL for command in commands(block)]


def _sequence(found: re.Match[str]) -> str:
    """What the shell fills in."""
    return " ".join(map(str, range(int(found[1]), int(found[2]) + 1)))


def timecycle_words(command: str) -> list[str] | None:
    """The words after `timecycle`, however it is started; None for another program."""
    words = shlex.split(re.sub(r"\$\(seq (\d+) (\d+)\)", _sequence, command))
    if words[0] == "timecycle":
        return words[1:]
    return words[words.index("-m") + 2 :] if words[0] == "torchrun" and "timecycle" in words else None


OURS = list(dict.fromkeys((page, command) for page, command in lines() if timecycle_words(command) is not None))


def not_run(command: str) -> str | None:
    """The entry of NOT_RUN_COMMANDS for the words of a command."""
    return next((entry for entry in NOT_RUN_COMMANDS if fnmatchcase(command, entry)), None)


def commands_to_run(block: Block) -> list[str]:
    """The commands of a block that are run, without `timecycle`, from top to bottom."""
    ours = [" ".join(words) for command in commands(block) if (words := timecycle_words(command)) is not None]
    return [command for command in ours if not not_run(command)]


def last_frame(commands: list[str]) -> int:
    """The highest frame number that commands name: of `FRAME=FILE`, and after the video of `frames`."""
    named = [re.findall(r"(?:^| )(\d+)=" if command[:6] != "frames" else r" (\d+)\b", command) for command in commands]
    return max((int(number) for numbers in named for number in numbers), default=0)


def blocks_to_run() -> list[Block]:
    """The blocks with commands that no block before them has."""
    found: list[Block] = []
    known: set[str] = set()
    for block in SHELL:
        if not known.issuperset(commands_to_run(block)):
            found.append(block)
            known.update(commands_to_run(block))
    return found


RUN = blocks_to_run()


def test_languages_are_known_and_lists_have_no_old_entries():
    assert {block.language for block in BLOCKS} <= {"", "sh", "python", *SHOWN_ONLY}
    assert set(NOT_RUN) <= {block.key for block in PYTHON}
    used = {shlex.split(command)[0] for _, command in lines()}
    assert set(OTHERS) <= used
    ours = [" ".join(timecycle_words(command)) for _, command in OURS]
    assert {not_run(command) for command in ours} - {None} == set(NOT_RUN_COMMANDS)
    for reason in NOT_RUN_COMMANDS.values():
        assert all((ROOT / path).exists() for path in re.findall(r"(?:tests|docs)/[\w/.]*\w", reason)), reason
    assert set(BEFORE) <= set(ours)
    assert all(any(name in command for command in ours) for name in PACKAGES)
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
    elif program in ("python", "sbatch", "kubectl", "torchrun"):
        assert files, f"{page}: no file of the repository in {command!r}"
        assert all((ROOT / file).is_file() for file in files)
    else:
        assert program in OTHERS, f"{page}: {command!r} is neither parsed nor listed here as another program's"


SHORT, LONG = 8, 61  # frames; a page may correct frame 43, and copy frames 0 to 59
VIDEOS = ("video.mp4", "clip.mp4", "film.mp4", "mouse.mp4", "my_video.mp4", "data/videos/clip.mp4")
MASKS = ("painted.png", "mask.png", "other.png")
ENCODERS = ("run/weights.safetensors", "resnet50.safetensors")


@pytest.fixture(scope="module")
def common(tmp_path_factory):
    """The files that the examples name which are the same whatever the length of the video is."""
    folder = tmp_path_factory.mktemp("common")
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    encoder = random_resnet(ResNetConfig(), seed=0)
    tc.save_pretrained(encoder, folder / "folder")
    torch.save({"state_dict": encoder.state_dict()}, folder / "checkpoint_14.pth.tar")
    for file in (Path(tc.__file__).parent / "weights").glob(f"{DEFAULT_ENCODER}-*"):  # the weights and their card
        for name in ENCODERS:
            copy_to(file, (folder / name).with_suffix(file.suffix))
    for number in range(4):
        make_video(folder / "videos" / f"{number}.mp4", number, frames=SHORT)
    for name in ("embryo.mp4", "flies.mp4"):  # as large as the boxes of docs/domains.md need
        write_clip(folder / name, small_world(frames=3, height_px=192, width_px=256))
    davis_tree(folder / "DAVIS", frames=3, clips=CLIPS["2016"])
    listing = folder / "DAVIS" / "ImageSets" / "480p" / "val.txt"
    for number, name in enumerate(("blackswan", "cows", "goat")):
        listing.write_text(listing.read_text().replace(f"clip{number:02d}", name))
        for part in ("JPEGImages", "Annotations"):
            (folder / "DAVIS" / part / "480p" / f"clip{number:02d}").rename(folder / "DAVIS" / part / "480p" / name)
    shutil.copytree(folder / "DAVIS" / "Annotations" / "480p", folder / "results")
    return folder


def copy_to(file: Path, copied: Path) -> None:
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copied)


def write_files(folder: Path, frames: int) -> None:
    """Write the files that the examples name: a video under several names, labels for it, a finished run."""
    world = small_world(frames=frames)
    clip = write_clip(folder / "dog.mp4", world)
    write_mask(folder / "first.png", world)
    for name in VIDEOS:
        copy_to(clip, folder / name)
    for name in MASKS:
        copy_to(folder / "first.png", folder / name)
    for name, number in {"dog.png": 1, "cat.png": 2}.items():
        Masks(np.where(world.mask(0) == number, world.mask(0), 0).astype(np.uint16)).write(folder / name)
    for t, image in enumerate(world.frames()):
        for name in (f"frames/{t}.jpg", f"clip/{t:05d}.png", f"shot_{t:04d}.jpg"):
            (folder / name).parent.mkdir(exist_ok=True)
            Image.fromarray(image).save(folder / name)
    (folder / "masks").mkdir()
    for t in range(frames):
        write_mask(folder / "masks" / f"{t:05d}.png", world, t)
    for name, times in {"points.csv": [0], "data/points/clip.csv": [0], "keypoints.csv": range(frames)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        rows = [
            f"{t},{point},{x},{y},1\n"
            for t in times
            for point, (x, y) in zip(("nose", "tail", "wheel"), world.keypoints(t).xy, strict=False)
        ]
        (folder / name).write_text("frame,name,x,y,visible\n" + "".join(rows), encoding="utf-8")
    (folder / "videos.csv").write_text("video,labels\ndog.mp4,first.png\nmouse.mp4,points.csv\n", encoding="utf-8")
    convert(folder, "masks", "annotations.xml", "cvat")
    convert(folder, "points.csv", "labeled-data/mouse/CollectedData_me.csv", "deeplabcut")
    convert(folder, "keypoints.csv", "mouseDLC_resnet50.csv", "deeplabcut")
    if find_spec("pycocotools"):
        convert(folder, "masks", "labels.json", "coco")
        convert(folder, "masks", "tracks.json", "coco")
    if find_spec("tifffile"):
        import tifffile

        tifffile.imwrite(folder / "cells.tif", world.video(), photometric="rgb")
    tc.propagate_to_folder(clip, {0: folder / "first.png"}, folder / "out")


def convert(folder: Path, source: str, written: str, name: str) -> None:
    (folder / written).parent.mkdir(parents=True, exist_ok=True)
    words = ["convert", str(folder / source), str(folder / written), "--to", name, "--video", str(folder / "mouse.mp4")]
    assert main([*words, "-q"]) == 0


@pytest.fixture(scope="module")
def files(common, tmp_path_factory):
    """The files that the examples name, with a video of so many frames."""

    @cache
    def made(frames: int) -> Path:
        folder = tmp_path_factory.mktemp("files")
        write_files(folder, frames)
        shutil.copytree(common, folder, symlinks=True, dirs_exist_ok=True)
        return folder

    return made


@pytest.fixture
def here(request, files, tmp_path, monkeypatch):
    """A copy of these files, as the current folder; composites as small as their videos."""
    copied = shutil.copytree(files(getattr(request, "param", SHORT)), tmp_path / "here", symlinks=True)
    monkeypatch.chdir(copied)
    small = CompositesConfig(frames=6, side_px=64)
    monkeypatch.setattr("timecycle.cli.evaluate.CompositesConfig", lambda seed: small)
    return copied


def make_way(words: list[str]) -> None:
    """Remove what a command would not overwrite: the next line of a page often has the same output."""
    if words[0] in ("propagate", "convert", "frames") and "--resume" not in words:
        written = words[words.index("-o") + 1] if "-o" in words else words[2]
        shutil.rmtree(written) if Path(written).is_dir() else Path(written).unlink(missing_ok=True)


def edit_reviewed(words: list[str]) -> None:
    """Write the files that `check` makes and a reader edits, whichever frames it has put into the queue here."""
    for word in words:
        if re.fullmatch(r"\d+=out/review/\d+\.png", word):
            copy_to(Path("mask.png"), Path(word.partition("=")[2]))


@pytest.mark.parametrize(
    ("block", "here"),
    [
        pytest.param(block, SHORT if last_frame(commands_to_run(block)) < SHORT else LONG, id=" ".join(block.key))
        for block in RUN
    ],
    indirect=["here"],
)
@pytest.mark.usefixtures("here")
def test_commands_of_a_block_run(block):
    """From top to bottom, as a reader types them; what needs a package that is not installed is left out."""
    for command in commands_to_run(block):
        if any(name in command and not find_spec(package) for name, package in PACKAGES.items()):
            continue
        for line in (BEFORE.get(command), command):
            if line:
                words = shlex.split(line)
                make_way(words)
                edit_reviewed(words)
                assert main([*words, "-q"]) == 0, line


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
