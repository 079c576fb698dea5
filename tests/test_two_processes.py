"""Commands refuse an output folder that another process is using; conversions into one folder leave a whole export.

Two `bulk` processes with one output folder share the work instead: tests/scale/test_bulk.py.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from clips import small_world, write_clip, write_mask
from folders import contents
from served import served
from timecycle.cli.main import main

HOLD = "import sys; from pathlib import Path; from timecycle.files import lock\n" + (
    "with lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)
SERVE = """
import json, sys
from timecycle.cli.main import main
for line in sys.stdin:
    main(json.loads(line))
"""
FAST = ("--preset", "fast", "--encoder", "rgb")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    world = small_world(frames=6)
    (folder / "videos").mkdir()
    write_clip(folder / "videos/clip.mp4", world)
    write_mask(folder / "first.png", world)
    return folder


def words_of(command: str, inputs: Path, out: Path) -> list[str]:
    clip, mask = inputs / "videos/clip.mp4", inputs / "first.png"
    words = {
        "propagate": ("propagate", clip, mask, "-o", out, *FAST, "--overwrite"),
        "resume": ("propagate", clip, mask, "-o", out, *FAST, "--resume"),
        "correct": ("correct", out, f"3={mask}"),
        "undo": ("correct", out, "--undo"),
        "check": ("check", out),
        "train": ("train", inputs / "videos", "-o", out),
        "pack": ("pack", inputs / "videos", inputs / "pack", "--work", out),
    }
    return [str(word) for word in words[command]]


@pytest.mark.parametrize("command", ["propagate", "resume", "correct", "undo", "check", "train", "pack"])
def test_a_folder_in_use_is_refused_and_left_unchanged(inputs, tmp_path, capsys, command):
    out = tmp_path / "out"
    if command not in ("train", "pack"):
        assert main(words_of("propagate", inputs, out)) == 0
    if command == "undo":
        assert main(words_of("correct", inputs, out)) == 0
    out.mkdir(exist_ok=True)
    before = contents(out)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        capsys.readouterr()
        code = main(words_of(command, inputs, out))
        error = capsys.readouterr().err
        holder.communicate()
    assert (code, contents(out)) == (2, before)
    assert "is in use by another run" in error
    if command != "train":  # which would run for minutes
        assert main(words_of(command, inputs, out)) in (0, 1)  # after the other process has ended


Pair = tuple["subprocess.Popen[str]", "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two processes that run one command after the other, so that only the first ones wait for imports."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-c", SERVE], **pipes) as one,
        subprocess.Popen([sys.executable, "-c", SERVE], **pipes) as other,
    ):
        yield one, other
        for process in (one, other):
            process.communicate()


def run_at_once(pair: Pair, *commands: tuple[str | Path, ...]) -> list[dict]:
    """Run a command in each process at the same time; returns what --json prints."""
    lines = [json.dumps([*map(str, words), "--json", "--quiet"]) for words in commands]
    for process, line in zip(pair, lines, strict=True):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in pair]


@pytest.fixture(scope="module")
def exported(inputs, pair, tmp_path_factory) -> tuple[Path, Path]:
    """A run, and a folder with its export, which is the same from both processes."""
    top = tmp_path_factory.mktemp("exported")
    assert main(words_of("propagate", inputs, top / "run")) == 0
    one, other = top / "one" / "labels", top / "other" / "labels"
    done = run_at_once(pair, ("convert", top / "run", one), ("convert", top / "run", other))
    assert [result["exit_code"] for result in done] == [0, 0]
    assert contents(one) == contents(other) != {}
    return top / "run", one


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)], ids=["new folder", "overwrite"])
def test_two_conversions_into_one_folder_leave_one_whole_export(pair, exported, tmp_path, overwrite):
    run, export = exported
    for attempt in range(5):
        target = tmp_path / str(attempt) / "labels"
        if overwrite:
            shutil.copytree(export, target)
            (target / "99999.png").write_text("of an older export")
        words = ("convert", run, target, *overwrite)
        results = run_at_once(pair, words, words)
        refused = [result["error"] for result in results if "error" in result]
        assert len(refused) < 2, refused
        assert all(error["exit_code"] == 2 and "labels" in error["message"] for error in refused), refused
        assert contents(target) == contents(export)
        assert [path.name for path in target.parent.iterdir()] == ["labels"]  # no temporary folder is left


def test_the_second_page_on_one_video_and_output_refuses_and_changes_nothing(inputs, tmp_path):
    for module in ("starlette", "uvicorn"):
        pytest.importorskip(module)
    mask = (inputs / "first.png").read_bytes()
    words = (inputs / "videos/clip.mp4", "-o", tmp_path / "out")
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        servers = list(pool.map(stack.enter_context, [served(*words, cwd=tmp_path) for _ in range(2)]))
        opened = {server.project() is not None: server for server in servers}
        assert opened.keys() == {True, False}, "one of the two opens the video"
        problem = opened[False].state()["problem"]
        assert "out_annotations is in use by another run" in problem["problem"]
        assert "choose another output folder with -o" in problem["remedy"]
        assert opened[False].ask("GET", "/").status == 200
        assert opened[True].edit("PUT", "/api/masks/0?objects=1", mask).status == 200
        answer = opened[False].ask("PUT", "/api/masks/1?objects=1", mask, headers={"x-revision": "0"})
        assert (answer.status, answer.problem) == (400, "no video is open")
        assert list(opened[True].project()["frames"]) == ["0"]
