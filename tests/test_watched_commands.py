"""No command opens a socket, but `ui` on this machine alone, and none writes outside of its output and its caches.

All commands run one after the other in one process, in which Python reports every socket and every change of a file
(tests/watched); processes that they start report too.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from clips import small_world, write_clip, write_mask
from served import Served, served
from small_runs import TINY
from timecycle.cli.help import _subcommands, find_command
from timecycle.cli.main import _COMMANDS, _definitions
from timecycle.model.resnet import ResNetConfig, random_resnet
from trees import davis_tree

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open folders are found in /proc")

HERE = Path(__file__).parent
RGB = ("--preset", "fast", "--encoder", "rgb")
NETWORK = ("socket.", "urllib.")  # beginnings of events
# The page has tests of its own; what the others add to `evaluate davis` is how they read their dataset.
NOT_LISTED = {"ui", "evaluate badja", "evaluate jhmdb", "evaluate vip"}
RUN = """
import functools, json, sys, time
import timecycle.cli.evaluate as evaluate
from timecycle.cli.main import main
evaluate.CompositesConfig = functools.partial(evaluate.CompositesConfig, frames=6, side_px=64)  # small ones
failed = []
for words in json.loads(sys.argv[1]):
    sys.audit("timecycle.command", " ".join(words))
    print("seconds of the processor:", round(time.process_time()), *words[:2])
    if code := main(words):
        failed.append((words, code))
sys.exit(f"these failed: {failed}" if failed else 0)
"""
STRAY = """
import os, pathlib, socket, subprocess, sys
if len(sys.argv) == 1:
    sys.exit(subprocess.run([sys.executable, __file__, "child"]).returncode)
pathlib.Path("inputs/stray").mkdir()
folder = os.open("inputs", os.O_RDONLY)
os.rmdir("stray", dir_fd=folder)
socket.create_server(("127.0.0.1", 0)).close()
"""


def commands() -> list[list[str]]:
    """Every command, small: relative paths, read from inputs/ and written to out/."""
    clip, mask, run = "inputs/videos/clip0.mp4", "inputs/first.png", "out/run"
    tiny = ("--set", *TINY, "steps=1", "precision=fp32")
    davis = ("inputs/davis", "--sequences", "clip00", "--preset", "fast")
    box = ("--box", "8,8,48,48", *(() if find_spec("cv2") else ("--box-as-is",)))
    lines = [
        ("propagate", clip, mask, "-o", run, "--preset", "fast"),
        ("propagate", clip, *box, "--matte", "out/matte.mov", "-o", "out/box", *RGB),
        ("check", run),
        ("correct", run, f"3={mask}"),
        ("correct", run, "--undo"),
        ("audit", run),
        ("tune", clip, mask, "--presets", "fast", "--encoders", "rgb", "--frames", "3"),
        ("convert", run, "out/labels.xml"),
        ("frames", clip, "0", "2", "-o", "out/frames"),
        ("flow", f"{clip}@0", f"{clip}@2", "-o", "out/flow", *RGB),
        ("train", "inputs/videos", "-o", "out/trained", "--preset", "small", *tiny),
        ("weights", "list"),
        ("weights", "show", "out/trained/weights.safetensors"),
        ("weights", "verify", "out/trained/weights.safetensors"),
        ("weights", "convert", "inputs/resnet.pth.tar", "-o", "out/converted.safetensors"),
        ("evaluate", "davis", *davis, "--encoder", "rgb", "-o", "out/evaluated"),
        ("evaluate", "davis", *davis, "--encoder", "identity", "-o", "out/control"),
        ("evaluate", "compare", "out/control", "out/evaluated"),
        ("evaluate", "reconstruction", *davis, "--encoder", "rgb", "--gaps", "1", "-o", "out/reconstructed"),
        ("evaluate", "composites", "inputs/videos", "--sequences", "composite-00", "-o", "out/composites", *RGB),
        ("pack", "inputs/videos", "out/pack", "--short-side", "48", "--workers", "2"),
        ("bulk", "inputs/manifest.csv", "-o", "out/bulk", *RGB),
        ("bulk", "inputs/manifest.csv", "-o", "out/chunks", "--chunk", "2", *RGB),
        ("presets",),
        ("doctor",),
        ("benchmark", "--encoder", "rgb", "--only", "match", "--seconds", "0.01"),
        ("demo", "-o", "out/demo", "--encoder", "rgb"),
    ]
    return [list(line) for line in lines]


def names_of(lines: Iterable[Sequence[str]]) -> set[str]:
    """The names of the commands in lines of words, such as `weights list`."""
    return {" ".join(find_command(words, _definitions(words[0])).words) for words in lines}


def all_commands() -> set[str]:
    """The name of every command of the command line."""
    below = {name: _subcommands(_definitions(name)[name]) for name in _COMMANDS}
    return {f"{name} {one}".rstrip() for name, ones in below.items() for one in ones or ("",)}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with inputs, and folders for everything that a user's account has."""
    folder = tmp_path_factory.mktemp("place").resolve()
    (folder / "inputs/videos").mkdir(parents=True)
    for number in range(4):
        write_clip(folder / f"inputs/videos/clip{number}.mp4", small_world(frames=14, height_px=80))
    write_mask(folder / "inputs/first.png", small_world(height_px=80))
    davis_tree(folder / "inputs/davis", clips=1)
    torch.save({"state_dict": random_resnet(ResNetConfig(), seed=5).state_dict()}, folder / "inputs/resnet.pth.tar")
    (folder / "inputs/manifest.csv").write_text(
        "video,labels\nvideos/clip0.mp4,first.png\nvideos/clip1.mp4,first.png\n"
    )
    for name in ("home", "tmp", "cache", "config", "out"):
        (folder / name).mkdir()
    return folder


def environment(place: Path) -> dict[str, str]:
    paths = [HERE / "watched", Path(__import__("timecycle").__file__).parents[1]]
    # torch's compiler writes the folder of its cache into the environment of a process that has imported it.
    inherited = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    return inherited | {
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "XDG_CONFIG_HOME": str(place / "config"),
        "WATCHED_LOG": str(place / "log.jsonl"),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def seen(place: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of every file, by its path."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def is_stray(event: dict[str, str], place: Path) -> bool:
    """Whether an event is of the network, or changes a file outside of the output and the caches."""
    # matplotlib keeps a list of the fonts for all programs; docs/privacy.md names every cache.
    caches = (place / "cache/timecycle", place / "cache/matplotlib", place / "config/matplotlib")
    allowed = (place / "out", place / "tmp", *caches, Path(os.devnull))
    is_allowed = any(Path(event["what"]).is_relative_to(folder) for folder in allowed)
    return event["event"].startswith(NETWORK) or not is_allowed


def check_folders(place: Path, inputs: dict[str, tuple[int, int]]) -> None:
    """What libraries in C write is seen in the folders: inputs are as they were, and nothing is left elsewhere."""
    assert files(place / "inputs") == inputs
    assert [*files(place / "home"), *files(place / "config"), *files(place / "tmp")] == []
    assert {Path(name).parts[0] for name in files(place / "cache")} <= {"timecycle", "matplotlib"}
    assert {path.name for path in place.iterdir()} <= {
        *("inputs", "home", "tmp", "cache", "config", "out", "log.jsonl", "stray.py")
    }


def test_every_command_is_watched():
    assert names_of(commands()) | NOT_LISTED == all_commands()
    assert names_of(commands()) & NOT_LISTED == set()


def test_a_socket_and_a_stray_write_of_a_child_are_seen(place):
    (place / "stray.py").write_text(STRAY)
    subprocess.run([sys.executable, "stray.py"], cwd=place, env=environment(place), check=True)
    events = [(one["event"], one["what"]) for one in seen(place)]
    assert ("os.mkdir", str(place / "inputs/stray")) in events
    assert ("os.rmdir", str(place / "inputs/stray")) in events
    assert ("socket.bind", "('127.0.0.1', 0)") in events


@pytest.mark.slow  # runs every command, of which one trains
def test_commands_open_no_socket_and_write_only_to_their_output_and_caches(place):
    inputs = files(place / "inputs")
    (place / "log.jsonl").unlink(missing_ok=True)
    words = [sys.executable, "-c", RUN, json.dumps(commands())]
    done = subprocess.run(words, cwd=place, env=environment(place), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    started, strays = [], []
    for one in seen(place):
        if one["event"] == "timecycle.command":
            started.append(one["what"].split())
        elif is_stray(one, place):
            strays.append((started[-1:], one["event"], one["what"]))
    assert names_of(started) | NOT_LISTED == all_commands()
    assert strays == []
    check_folders(place, inputs)


def check_sockets(events: list[dict[str, str]]) -> None:
    """The server binds one address, of this machine, and nothing else is opened."""
    sockets = [one for one in events if one["event"].startswith(NETWORK)]
    assert {one["event"] for one in sockets} <= {"socket.__new__", "socket.bind", "socket.getaddrinfo"}
    assert [one["what"] for one in sockets if one["event"] == "socket.getaddrinfo"] == ["127.0.0.1"]
    bound = [one["what"] for one in sockets if one["event"] == "socket.bind"]
    assert len(bound) == 1, bound
    assert bound[0].startswith("('127.0.0.1', ")


@pytest.fixture
def page(place, monkeypatch) -> Iterator[Served]:
    """A watched server of the page."""
    for module in ("starlette", "uvicorn"):
        pytest.importorskip(module)
    (place / "log.jsonl").unlink(missing_ok=True)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    for name, value in environment(place).items():
        monkeypatch.setenv(name, value)
    with served("inputs/videos/clip0.mp4", "-o", "out/ui", cwd=place) as server:
        yield server


def test_the_page_listens_on_this_machine_alone(page, place):
    assert page.stop() == 0
    check_sockets(seen(place))


@pytest.mark.slow  # the server, its workers and two jobs are processes that load torch
def test_the_page_writes_only_to_its_output_and_caches(page, place):
    inputs = files(place / "inputs")
    mask = (place / "inputs/first.png").read_bytes()
    assert page.edit("PUT", "/api/masks/0?objects=1", mask).status == 200
    assert page.job("propagate", preset="fast")["status"] == "done"
    job = page.job("export", format="cvat")
    assert job["status"] == "done", job
    assert page.ask("GET", f"/api/exports/{job['result']['file']}").status == 200
    assert page.stop() == 0
    events = seen(place)
    check_sockets(events)
    changes = [one for one in events if not one["event"].startswith(NETWORK)]
    assert [one for one in changes if is_stray(one, place)] == []
    for file in (place / "out/ui/run.json", place / "out/ui_annotations/exports" / job["result"]["file"]):
        jobs = {one["pid"] for one in changes if Path(one["what"]) == file}
        assert jobs, f"nobody was seen to write {file}"
        assert page.process.pid not in jobs
    check_folders(place, inputs)
