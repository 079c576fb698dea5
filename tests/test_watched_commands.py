"""No command opens a socket, but `ui` on this machine alone, and none writes outside of its output and its caches.

All commands run one after the other in one process, in which Python reports every socket and every change of a file
(tests/watched); processes that they start report too.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clips import small_world, write_clip, write_mask
from small_runs import TINY
from trees import davis_tree

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open folders are found in /proc")

HERE = Path(__file__).parent
RGB = ("--preset", "fast", "--encoder", "rgb")
RUN = """
import json, sys, time
from timecycle.cli.main import main
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
    lines = [
        ("propagate", clip, mask, "-o", run, "--preset", "fast"),
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
        ("evaluate", "davis", "inputs/davis", "--sequences", "clip00", "-o", "out/evaluated", *RGB),
        ("pack", "inputs/videos", "out/pack", "--short-side", "48", "--workers", "2"),
        ("bulk", "inputs/manifest.csv", "-o", "out/bulk", *RGB),
        ("bulk", "inputs/manifest.csv", "-o", "out/chunks", "--chunk", "2", *RGB),
        ("presets",),
        ("doctor",),
        ("benchmark", "--encoder", "rgb", "--only", "match", "--seconds", "0.01"),
        ("demo", "-o", "out/demo", "--encoder", "rgb"),
    ]
    return [list(line) for line in lines]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with inputs, and folders for everything that a user's account has."""
    folder = tmp_path_factory.mktemp("place").resolve()
    (folder / "inputs/videos").mkdir(parents=True)
    for number in range(4):
        write_clip(folder / f"inputs/videos/clip{number}.mp4", small_world(frames=14, height_px=80))
    write_mask(folder / "inputs/first.png", small_world(height_px=80))
    davis_tree(folder / "inputs/davis", clips=1)
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


def test_a_socket_and_a_stray_write_of_a_child_are_seen(place):
    (place / "stray.py").write_text(STRAY)
    subprocess.run([sys.executable, "stray.py"], cwd=place, env=environment(place), check=True)
    events = [(one["event"], one["what"]) for one in seen(place)]
    assert ("os.mkdir", str(place / "inputs/stray")) in events
    assert ("os.rmdir", str(place / "inputs/stray")) in events
    assert ("socket.bind", "('127.0.0.1', 0)") in events


@pytest.mark.slow  # runs twenty commands, of which one trains
def test_commands_open_no_socket_and_write_only_to_their_output_and_caches(place):
    inputs = files(place / "inputs")
    (place / "log.jsonl").unlink(missing_ok=True)
    words = [sys.executable, "-c", RUN, json.dumps(commands())]
    done = subprocess.run(words, cwd=place, env=environment(place), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    # matplotlib keeps a list of the fonts for all programs; docs/privacy.md names every cache.
    caches = (place / "cache/timecycle", place / "cache/matplotlib", place / "config/matplotlib")
    allowed = (place / "out", place / "tmp", *caches, Path(os.devnull))
    command, started, strays = "", set(), []
    for one in seen(place):
        if one["event"] == "timecycle.command":
            command = one["what"]
            started.add(command)
            continue
        is_file = not one["event"].startswith(("socket.", "urllib."))
        if not is_file or not any(Path(one["what"]).is_relative_to(folder) for folder in allowed):
            strays.append((command, one["event"], one["what"]))
    assert started == {" ".join(words) for words in commands()}
    assert strays == []
    # What libraries in C write is seen in the folders: inputs are as they were, and nothing is left elsewhere.
    assert files(place / "inputs") == inputs
    assert [*files(place / "home"), *files(place / "config"), *files(place / "tmp")] == []
    assert {Path(name).parts[0] for name in files(place / "cache")} <= {"timecycle", "matplotlib"}
    assert {path.name for path in place.iterdir()} <= {
        *("inputs", "home", "tmp", "cache", "config", "out", "log.jsonl", "stray.py")
    }


def test_the_page_listens_on_this_machine_alone(place):
    pytest.importorskip("uvicorn")
    (place / "log.jsonl").unlink(missing_ok=True)
    words = [sys.executable, "-m", "timecycle", "ui", "inputs/videos/clip0.mp4", "--no-browser", "-o", "out/ui"]
    with subprocess.Popen(words, cwd=place, env=environment(place), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("open http://127.0.0.1:")
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    events = [one for one in seen(place) if one["event"].startswith(("socket.", "urllib."))]
    assert {one["event"] for one in events} <= {"socket.__new__", "socket.bind", "socket.getaddrinfo"}
    assert [one["what"] for one in events if one["event"] == "socket.getaddrinfo"] == ["127.0.0.1"]
    bound = [one["what"] for one in events if one["event"] == "socket.bind"]
    assert len(bound) == 1, bound
    assert bound[0].startswith("('127.0.0.1', ")
