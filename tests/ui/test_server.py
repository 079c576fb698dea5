"""The server of the page, by HTTP: edits, jobs, runs that were started elsewhere, exports, and its end."""

import asyncio
import io
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import timecycle as tc
from clips import small_world, write_mask
from served import Served, png, served, wait_for
from timecycle.errors import OutputError
from timecycle.labels import Masks
from timecycle.ui.annotations import Annotations
from timecycle.ui.events import Events
from timecycle.ui.jobs import Job, Jobs

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

WORLD = small_world(frames=10)
HEIGHT, WIDTH = WORLD.config.height_px, WORLD.config.width_px


@pytest.fixture(scope="module")
def run(clip, tmp_path_factory) -> Path:
    """A run of the command line's verb, with names."""
    folder = tmp_path_factory.mktemp("run")
    first = write_mask(folder / "first.png", WORLD)
    names = {1: "disc", 2: "box"}
    return tc.propagate_to_folder(clip, first, folder / "out", encoder="rgb", config="fast", names=names).folder


@pytest.fixture(scope="module")
def run_of_points(clip, tmp_path_factory) -> Path:
    """A run of two points; the first has the name that the page gives to one without a name."""
    points = tc.Keypoints(("point 1", "tail"), np.array([[20, 20], [60, 40]], np.float32), np.ones(2, bool))
    folder = tmp_path_factory.mktemp("points") / "out"
    return tc.propagate_to_folder(clip, {0: points}, folder, encoder="rgb", config="fast").folder


@pytest.fixture(scope="module")
def of_points(run_of_points) -> Served:
    """A server of a finished run of points, with a list of points that nobody has named."""
    annotations = Annotations(run_of_points.with_name("out_annotations"))
    for key, value in {"kind": "keypoints", "objects": [{"id": 1, "name": ""}, {"id": 2, "name": ""}]}.items():
        annotations.edit(key, value, revision=annotations.revision)
    with served(run_of_points, cwd=run_of_points.parent) as server:
        server.project()
        yield server


@pytest.fixture(scope="module")
def server(clip, tmp_path_factory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    with served(clip, "-o", folder / "out", cwd=folder) as server:
        server.project()
        yield server


@pytest.fixture(scope="module")
def of_run(run) -> Served:
    """A server of the finished run."""
    with served(run, cwd=run.parent) as server:
        server.project()
        yield server


def blob(identity: int = 1) -> np.ndarray:
    ids = np.zeros((HEIGHT, WIDTH), np.uint16)
    ids[10:30, 20:50] = identity
    return ids


@pytest.mark.parametrize("identity", [1, 255, 256, 65535])
def test_ids_come_back_exactly(server, identity):
    answer = server.edit("PUT", f"/api/masks/2?objects={identity}", png(blob(identity)))
    assert answer.status == 200
    back = server.ask("GET", "/api/masks/2").body
    (path := Path(server.project()["folder"]).with_name("back.png")).write_bytes(back)
    assert np.array_equal(Masks.read(path).ids, blob(identity))
    assert server.project()["frames"]["2"]["pixels"] == {str(identity): 600}


def test_an_edit_of_an_older_revision_is_refused_and_changes_nothing(server):
    assert server.edit("PUT", "/api/masks/3?objects=1", png(blob())).status == 200
    before = server.project()
    headers = {"x-revision": str(before["revision"] - 1)}
    answer = server.ask("PUT", "/api/masks/4?objects=1", png(blob()), headers=headers)
    assert answer.status == 409
    assert "another tab" in answer.problem
    assert server.project() == before


def test_frames_are_those_of_the_exact_reader(server, clip):
    from PIL import Image

    key = server.project()["key"]
    with tc.open_video(clip) as video:
        for index in (7, 0, 9, 3):
            picture = Image.open(io.BytesIO(server.ask("GET", f"/api/frames/{key}/{index}").body))
            difference = np.abs(np.asarray(picture, np.int16) - video[index].image).mean()
            others = [np.abs(np.asarray(picture, np.int16) - video[other].image).mean() for other in (1, 5)]
            assert difference < 4 < min(others) or difference < min(others)


def test_assisted_tool_finds_the_object_in_a_box_and_obeys_strokes(server):
    ids = WORLD.mask(0)
    rows, columns = (np.flatnonzero((ids == 2).any(axis=axis)) for axis in (1, 0))
    box = [int(columns[0]) - 2, int(rows[0]) - 2, int(columns[-1]) + 2, int(rows[-1]) + 2]
    hints = {"box": box, "inside": [], "outside": []}

    def mask(hints: object) -> np.ndarray:
        answer = server.ask("POST", "/api/assist/0", hints)
        assert answer.status == 200
        x0, y0, x1, y1 = map(int, answer.headers["x-region"].split(","))
        (path := Path(server.project()["folder"]).with_name("mask.png")).write_bytes(answer.body)
        whole = np.zeros(ids.shape, bool)
        whole[y0:y1, x0:x1] = Masks.read(path).ids > 0
        return whole

    first = mask(hints)
    overlap = (first & (ids == 2)).sum() / (first | (ids == 2)).sum()
    assert overlap > 0.6
    assert np.array_equal(first, mask(hints))  # the same every time
    middle = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]
    outside = mask({**hints, "outside": [{"points": [middle], "width_px": 5}]})
    assert not outside[int(middle[1]), int(middle[0])]


def test_a_run_of_the_command_line_opens_with_its_objects_and_names(of_run):
    assert of_run.project()["objects"][:2] == [{"id": 1, "name": "disc"}, {"id": 2, "name": "box"}]
    state = of_run.ask("GET", "/api/run").json
    assert (state["status"], state["frames"], len(state["source"])) == ("finished", 10, 10)
    assert set(state["objects"]) >= {"1", "2"}


def test_points_without_a_name_are_known_in_a_run_by_the_names_that_the_page_shows(of_points):
    objects = [{"id": 1, "name": ""}, {"id": 2, "name": ""}, {"id": 3, "name": "tail"}]
    assert of_points.project()["objects"] == objects
    objects.append({"id": 4, "name": ""})  # ids are different, so the list can be edited
    assert of_points.edit("PUT", "/api/settings/objects", {"value": objects}).status == 200


def test_a_renamed_point_keeps_its_places_but_a_point_of_the_run_keeps_its_name(of_points):
    objects = of_points.project()["objects"]
    placed = {"point 2": [5.0, 6.0, True], "tail": [60.0, 40.0, True]}
    assert of_points.edit("PUT", "/api/points/4", {"points": placed}).status == 200
    named = [one | {"name": "ear"} if one["id"] == 2 else one for one in objects]
    assert of_points.edit("PUT", "/api/settings/objects", {"value": named}).status == 200
    assert of_points.project()["frames"]["4"]["points"] == {"ear": [5.0, 6.0, True], "tail": [60.0, 40.0, True]}
    for number, name in ((1, "nose"), (3, "end")):
        others = [one | {"name": name} if one["id"] == number else one for one in named]
        answer = of_points.edit("PUT", "/api/settings/objects", {"value": others})
        assert answer.status == 400
        assert "the run knows the point" in answer.problem
    twice = [one | {"name": "tail"} if one["id"] == 2 else one for one in named]
    assert "called 'tail'" in of_points.edit("PUT", "/api/settings/objects", {"value": twice}).problem
    assert of_points.project()["objects"] == named


def test_labels_are_the_bytes_of_the_run(of_run, run):
    for index in (0, 9):
        assert of_run.ask("GET", f"/api/labels/{index}").body == (run / "labels" / f"{index:05d}.png").read_bytes()


def test_a_correction_concerns_the_objects_that_were_edited_and_can_be_undone(of_run, run):
    before = {path.name: path.read_bytes() for path in (run / "labels").iterdir()}
    ids = Masks.read(run / "labels" / "00005.png").ids.copy()
    ids[ids == 1] = 0
    ids[5:20, 60:80] = 1
    assert of_run.edit("PUT", "/api/masks/5?objects=1", png(ids)).status == 200
    assert of_run.project()["pending"] == [5]
    job = of_run.job("correct")
    assert job["status"] == "done", job
    record = json.loads((run / "run.json").read_text())
    assert record["labels"]["objects_by_frame"]["5"] == ["1"]
    assert of_run.project()["pending"] == []
    # Before the correction, as it was kept.
    assert of_run.ask("GET", "/api/labels/5?before=1").body == before["00005.png"]
    assert of_run.job("undo")["status"] == "done"
    assert {path.name: path.read_bytes() for path in (run / "labels").iterdir()} == before
    assert of_run.project()["frames"] == {}


def test_an_edit_made_while_corrections_are_applied_stays_pending(of_run, run):
    ids = Masks.read(run / "labels" / "00005.png").ids.copy()
    ids[5:20, 60:80] = 1
    assert of_run.edit("PUT", "/api/masks/5?objects=1", png(ids)).status == 200
    assert of_run.ask("POST", "/api/jobs/correct", {}).status == 200
    ids[30:40, 10:20] = 1
    assert of_run.edit("PUT", "/api/masks/5?objects=1", png(ids)).status == 200
    assert of_run.state()["job"]["status"] == "running"
    wait_for(lambda: of_run.state()["job"]["status"] == "done")
    assert of_run.project()["pending"] == [5]
    assert of_run.job("correct")["status"] == "done"
    assert of_run.project()["pending"] == []
    assert of_run.job("undo")["status"] == "done"
    assert of_run.job("undo")["status"] == "done"


def test_an_object_that_is_erased_is_absent(of_run, run):
    ids = Masks.read(run / "labels" / "00006.png").ids.copy()
    ids[ids == 1] = 0
    assert of_run.edit("PUT", "/api/masks/6?objects=1", png(ids)).status == 200
    assert of_run.job("correct")["status"] == "done"
    assert not (Masks.read(run / "labels" / "00006.png").ids == 1).any()
    assert json.loads((run / "run.json").read_text())["labels"]["objects_by_frame"]["6"] is None
    assert of_run.job("undo")["status"] == "done"


def test_an_audit_is_kept_until_the_labels_change(of_run):
    assert of_run.ask("GET", "/api/run").json["audit"] is None
    assert of_run.job("audit")["status"] == "done"
    assert of_run.ask("GET", "/api/run").json["audit"] is not None


def test_parts_are_propagated_with_their_ids(clip, tmp_path):
    with served(clip, "-o", tmp_path / "out", cwd=tmp_path) as server:
        assert server.edit("PUT", "/api/settings/kind", {"value": "parts"}).status == 200
        assert server.project()["objects"] == [{"id": 1001, "name": ""}]
        assert server.edit("PUT", "/api/masks/0?objects=1001", png(blob(1001))).status == 200
        job = server.job("propagate", preset="fast")
        assert job["status"] == "done", job
        assert server.ask("GET", "/api/run").json["kind"] == "parts"
        assert set(np.unique(Masks.read(tmp_path / "out" / "labels" / "00009.png").ids)) <= {0, 1001}


def test_a_job_that_fails_says_why_and_what_to_do(server):
    assert server.edit("PUT", "/api/masks/1?objects=1", png(blob())).status == 200
    for index in server.project()["frames"]:
        assert server.edit("DELETE", f"/api/annotations/{index}", {}).status == 200
    assert server.project()["frames"] == {}
    job = server.job("propagate", preset="fast")
    assert job["status"] == "failed"
    assert "no frame is annotated" in job["error"]["problem"]
    assert server.ask("POST", "/api/jobs/correct", {}).status == 400
    assert server.ask("POST", "/api/jobs/dance", {}).status == 404


def test_a_job_that_is_refused_because_another_one_runs_changes_nothing(of_run, run):
    annotations = run.with_name(f"{run.name}_annotations")
    unfinished = annotations / "exports" / "unfinished.zip"  # what the other job writes
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.touch()
    assert of_run.edit("PUT", "/api/masks/7?objects=1", png(blob())).status == 200
    assert of_run.ask("POST", "/api/jobs/check", {}).status == 200
    for verb, options in {"propagate": {"preset": "fast"}, "correct": {}, "export": {"format": "tables"}}.items():
        answer = of_run.ask("POST", f"/api/jobs/{verb}", options)
        assert (answer.status, answer.problem) == (409, "check is still running")
    wait_for(lambda: of_run.state()["job"]["status"] == "done")
    assert of_run.project()["pending"] == [7]
    assert unfinished.exists()
    assert not (annotations / "masks").exists()
    assert not (annotations / "started.json").exists()
    assert of_run.edit("DELETE", "/api/annotations/7", {}).status == 200


def test_a_job_that_cannot_be_prepared_leaves_the_one_before():
    async def prepare() -> None:
        raise OutputError("the disk is full", remedy="make room")

    async def when_done(_: object) -> None:
        pass

    async def start_twice() -> Job:
        jobs = Jobs(Events())
        for _ in range(2):  # the second is not refused because of the first
            with pytest.raises(OutputError, match="disk is full"):
                await jobs.start("export", {}, prepare=prepare, when_done=when_done)
        return jobs.last

    with ThreadPoolExecutor() as pool:  # the tests of the browser leave an event loop running in this thread
        assert pool.submit(asyncio.run, start_twice()).result() == Job()


def test_one_folder_has_one_server(server, clip):
    folder = server.project()["folder"]
    with served(clip, "-o", folder, cwd=Path(folder).parent) as second:
        assert second.project() is None
        assert "in use" in second.state()["problem"]["problem"]


def test_ctrl_c_ends_the_server_and_prints_one_object(clip, tmp_path):
    words = [sys.executable, "-m", "timecycle", "ui", str(clip), "--no-browser", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, start_new_session=True, **pipes)
    assert process.stderr.readline().startswith("open http")
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    result = json.loads(out)
    assert process.returncode == 0
    assert result.keys() == {"command", "url", "seconds", "exit_code"}


def test_a_wildcard_address_is_refused(clip):
    everywhere = "0.0.0.0"  # noqa: S104  what the server must refuse
    words = [sys.executable, "-m", "timecycle", "ui", str(clip), "--no-browser", "--host", everywhere]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "every address" in done.stderr


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_does_not_exist_is_refused(clip, port):
    words = [sys.executable, "-m", "timecycle", "ui", str(clip), "--no-browser", f"--port={port}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert f"there is no port {port}" in done.stderr
