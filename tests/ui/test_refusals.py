"""Every request that the server must refuse, sent to a real server."""

import os
import re
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from clips import small_world, write_clip
from served import Served, children, png, served, wait_for

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

WORLD = small_world()
HEIGHT, WIDTH = WORLD.config.height_px, WORLD.config.width_px
PATHS = ("/", "/api/state", "/api/frames/x/0", "/api/run", "/static/main.js", "/api/events", "/api/exports/a.zip")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return fill(tmp_path_factory.mktemp("served"))


def fill(top: Path) -> Path:
    """Write a folder with a clip, and outside of it a clip, a secret and a link to them."""
    root = top / "root"
    root.mkdir()
    write_clip(root / "clip.mp4", WORLD)
    write_clip(top / "outside.mp4", WORLD)
    (top / "secret.txt").write_text("secret")
    (root / "link.mp4").symlink_to(top / "outside.mp4")
    (root / "link").symlink_to(top)
    (root / "inner").mkdir()
    (root / "inner" / "clip.mp4").symlink_to(root / "clip.mp4")
    return top


@pytest.fixture(scope="module")
def one(folder) -> Served:
    """A server of one video."""
    with served(folder / "root" / "clip.mp4", "-o", folder / "out", cwd=folder) as server:
        server.project()
        yield server


@pytest.fixture(scope="module")
def browsing(folder) -> Served:
    """A server of a folder."""
    with served(folder / "root", cwd=folder) as server:
        yield server


# Who may ask


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_told_without_the_cookie(one, path):
    assert one.ask("GET", path, cookie=None).status == 401
    assert one.ask("GET", path, cookie=f"{one.cookie}x").status == 401


def test_a_wrong_token_buys_no_cookie(one):
    answer = one.ask("GET", "/?token=guess", cookie=None)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(one):
    set_cookie = one.ask("GET", one.url.removeprefix(one.origin), cookie=None).headers["set-cookie"].lower()
    assert "httponly" in set_cookie
    assert "samesite=strict" in set_cookie


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}"]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(one, host):
    answer = one.ask("GET", "/api/state", headers={"host": host.format(port=one.host.rpartition(":")[2])})
    assert answer.status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://{host}", "http://127.0.0.1:1"])
def test_another_origin_is_refused(one, origin):
    headers = {"origin": origin.format(host=one.host)}
    assert one.ask("GET", "/api/state", headers=headers).status == 403
    assert one.ask("POST", "/api/undo", {}, headers={**headers, "x-revision": "0"}).status == 403


def test_a_change_needs_the_origin_and_the_header_that_forms_cannot_send(one):
    for lacking in ("origin", "x-timecycle"):
        assert one.ask("POST", "/api/undo", {}, headers={lacking: ""}).status == 403
    assert one.ask("POST", "/api/undo", {}, headers={"sec-fetch-site": "cross-site"}).status == 403
    assert one.ask("GET", "/api/state", headers={"sec-fetch-site": "cross-site"}).status == 403


def test_a_change_cannot_be_made_by_get(one):
    for path in ("/api/undo", "/api/jobs/propagate", "/api/open"):
        assert one.ask("GET", path).status == 405


@pytest.mark.parametrize("path", ["/", "/api/state", "/static/main.js", "/nothing"])
def test_pages_run_no_script_of_others_and_no_inline_script(one, path):
    headers = one.ask("GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_static_pages_have_no_inline_script_and_no_address_of_others():
    static = Path(__file__).parents[2] / "src" / "timecycle" / "ui" / "static"
    for path in static.iterdir():
        text = path.read_text()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert not path.name.endswith(".html") or not re.search(r"<script>|<style|\son\w+=|\sstyle=", text)


# Paths


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
def test_static_files_are_only_those_of_the_page(one, path):
    assert one.ask("GET", path).status == 404


@pytest.mark.parametrize("name", ["..%2f..%2fsecret.txt", "%2e%2e", "..%5csecret.txt", "session.json"])
def test_exports_are_only_files_that_were_exported(one, name):
    assert one.ask("GET", f"/api/exports/{name}").status in (400, 404)


@pytest.mark.parametrize("path", ["..", "../outside.mp4", "/etc", "inner/../..", "link", "link/..", "a\0b"])
def test_the_folder_cannot_be_left(browsing, path):
    from urllib.parse import quote

    answer = browsing.ask("GET", f"/api/browse?path={quote(path)}")
    assert answer.status == 400
    assert "outside" in answer.problem
    assert browsing.ask("POST", "/api/open", {"path": path}).status == 400


def test_a_name_that_is_too_long_is_refused(browsing):
    assert browsing.ask("GET", f"/api/browse?path={'x' * 5000}").status == 400
    assert browsing.ask("POST", "/api/open", {"path": "x" * 5000}).status == 400


def test_links_that_lead_out_are_not_listed_nor_opened(browsing):
    listed = {one["name"] for one in browsing.ask("GET", "/api/browse").json["entries"]}
    assert listed == {"clip.mp4", "inner"}
    answer = browsing.ask("POST", "/api/open", {"path": "link.mp4"})
    assert "outside" in answer.problem


def test_a_link_that_stays_inside_is_a_video_like_any_other(tmp_path):
    with served(fill(tmp_path) / "root", cwd=tmp_path) as server:  # opening a video writes beside it
        assert server.ask("POST", "/api/open", {"path": "inner/clip.mp4"}).status == 200


def test_a_server_of_one_video_lists_nothing(one):
    assert one.ask("GET", "/api/browse").status == 400
    assert one.ask("POST", "/api/open", {"path": "../outside.mp4"}).status == 400


# Uploads


def test_an_upload_that_is_too_large_is_refused_by_its_header(one):
    headers = {"content-length": str(65 << 20), "x-revision": "0"}
    assert one.ask("PUT", "/api/masks/0", b"", headers=headers).status == 413


def test_an_upload_that_is_too_large_is_refused_while_it_arrives(one):
    piece = b"%x\r\n" % (1 << 20) + b"0" * (1 << 20) + b"\r\n"
    body = piece * 66 + b"0\r\n\r\n"
    headers = {"transfer-encoding": "chunked", "content-length": "", "x-revision": "0"}
    assert one.ask("PUT", "/api/masks/0", body, headers=headers).status == 413


def test_json_that_is_too_large_is_refused(one):
    assert one.ask("PUT", "/api/points/0", {"points": {"a": "x" * (2 << 20)}}).status == 413


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _png(width: int, height: int, data: bytes, bits: int = 8, colour: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


HOSTILE_PNGS = {
    "nothing": b"",
    "no picture": b"hello",
    "a huge header": _png(60000, 60000, zlib.compress(b"0" * 100)),
    "a bomb": _png(WIDTH, HEIGHT, zlib.compress(b"\0" * (200 << 20))),
    "cut off": png(np.ones((HEIGHT, WIDTH), np.uint8))[:60],
    "another size": png(np.ones((HEIGHT, WIDTH + 1), np.uint8)),
    "colours": png(np.ones((HEIGHT, WIDTH, 3), np.uint8)),
    "a page": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
}


@pytest.mark.parametrize("name", HOSTILE_PNGS)
def test_a_hostile_picture_is_refused_and_nothing_is_kept(one, name):
    before = one.project()
    answer = one.edit("PUT", "/api/masks/0?objects=1", HOSTILE_PNGS[name])
    if name == "a bomb":  # what is beyond the size of the picture is not even unpacked: it is an empty mask
        assert answer.status in (200, 400)
        one.edit("POST", "/api/undo", {})
        return
    assert answer.status == 400
    assert "mask" in answer.problem
    assert one.project()["frames"] == before["frames"]


@pytest.mark.parametrize(
    "hints",
    [
        {}, {"box": [0, 0]}, {"box": None, "inside": [], "outside": []}, {"box": "abc", "inside": [], "outside": []},
        {"box": [0, 0, 1e400, 5], "inside": [], "outside": []},
        {"box": None, "inside": [{"points": [[1e9, 5]], "width_px": 3}], "outside": []},
        {"box": None, "inside": [{"points": [], "width_px": 3}], "outside": []},
        {"box": [-50, -50, -40, -40], "inside": [], "outside": []},
    ],
)  # fmt: skip
def test_marks_that_make_no_sense_are_refused(one, hints):
    assert one.ask("POST", "/api/assist/0", hints).status == 400


@pytest.mark.parametrize("name", ["=1+1", "@x", "a\nb", "\0", "x" * 500])
def test_names_that_would_harm_tables_are_refused(one, name):
    answer = one.edit("PUT", "/api/settings/objects", {"value": [{"id": 1, "name": name}]})
    assert answer.status == 400


def test_a_script_in_a_name_is_kept_as_text(one):
    name = "<script>alert(1)</script>"
    answer = one.edit("PUT", "/api/settings/objects", {"value": [{"id": 1, "name": name}]})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert one.project()["objects"] == [{"id": 1, "name": name}]


@pytest.mark.parametrize("path", ["/api/settings/frame%2f0", "/api/settings/revision", "/api/settings/../x"])
def test_only_settings_can_be_set(one, path):
    assert one.edit("PUT", path, {"value": {"mask": "../../x"}}).status in (400, 404)


@pytest.mark.parametrize("index", [-1, 12, 10**9])
def test_frames_that_do_not_exist_are_refused(one, index):
    key = one.project()["key"]
    assert one.ask("GET", f"/api/frames/{key}/{index}").status in (400, 404)
    assert one.edit("PUT", f"/api/masks/{index}?objects=1", png(np.ones((HEIGHT, WIDTH), np.uint8))).status in (
        400,
        404,
    )


MALFORMED = {  # method, path and body
    "no number of frames": ("GET", "/api/run?since=x", None),
    "a number without end": ("GET", f"/api/labels/{'9' * 5000}", None),
    "an object that is no number": ("PUT", "/api/masks/0?objects=x", png(np.ones((HEIGHT, WIDTH), np.uint8))),
    "strokes that are no list": ("POST", "/api/assist/0", {"box": [1, 1, 9, 9], "inside": 5, "outside": []}),
    "an infinite point": ("PUT", "/api/points/0", b'{"points": {"a": [1e999, 1, true]}}'),
    "an infinite point in words": ("PUT", "/api/points/0", {"points": {"a": ["nan", 1, True]}}),
    "a point beyond all numbers": ("PUT", "/api/points/0", b'{"points": {"a": [1%s, 1, true]}}' % (b"0" * 400)),
    "half a character": ("PUT", "/api/settings/skeleton", {"value": [["\ud800", "tail"]]}),
    "an infinite id": ("PUT", "/api/settings/objects", b'{"value": [{"id": Infinity, "name": ""}]}'),
    "nested without end": ("PUT", "/api/settings/skeleton", b'{"value": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"),
    "no JSON": ("POST", "/api/jobs/propagate", b"{"),
    "no object": ("POST", "/api/jobs/propagate", b"[1]"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused_and_nothing_is_kept(one, name):
    method, path, body = MALFORMED[name]
    before = one.project()
    assert one.edit(method, path, body).status == 400
    assert one.project() == before  # a state that cannot be sent would lock the annotations up for good


def test_a_request_that_ends_too_early_leaves_no_traceback(folder):
    with served(folder / "root", cwd=folder, stderr=folder / "log") as server:
        host, _, port = server.host.rpartition(":")
        head = f"PUT /api/points/0 HTTP/1.1\r\nhost: {server.host}\r\ncookie: {server.cookie}\r\n"
        head += f"origin: {server.origin}\r\nx-timecycle: 1\r\nx-revision: 0\r\ncontent-length: 100\r\n\r\n"
        assert server.ask("POST", "/api/open", {"path": "clip.mp4"}).status == 200
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + b'{"points":')
        assert server.state()["project"]["frames"] == {}
    assert "Traceback" not in (folder / "log").read_text()


# Hostile videos


@pytest.mark.parametrize("name", ["noise.mp4", "cut.mp4", "playlist.mp4", "empty.mp4", "huge.avi"])
def test_a_hostile_video_is_a_message_and_the_page_lives(folder, name):
    root = folder / f"hostile-{name}"
    root.mkdir()
    whole = (folder / "root" / "clip.mp4").read_bytes()
    contents = {
        "noise.mp4": os.urandom(20000),
        "cut.mp4": whole[: len(whole) // 2],
        "playlist.mp4": b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:1/x.ts\n",
        "empty.mp4": b"",
        "huge.avi": b"RIFF" + struct.pack("<I", 1 << 30) + b"AVI LIST" + os.urandom(2000),
    }
    (root / name).write_bytes(contents[name])
    (root / "good.mp4").write_bytes(whole)
    with served(root, cwd=root) as server:
        answer = server.ask("POST", "/api/open", {"path": name})
        assert answer.status == 400
        assert answer.problem
        assert answer.json["error"]["remedy"]
        assert server.ask("POST", "/api/open", {"path": "good.mp4"}).status == 200
        assert server.ask("GET", f"/api/frames/{server.project()['key']}/3").body[:2] == b"\xff\xd8"


def test_a_decoder_that_crashes_is_a_message_and_starts_again(one):
    key = one.project()["key"]
    assert one.ask("GET", f"/api/frames/{key}/1").status == 200
    pid = children(one.process.pid)["frames"]
    os.kill(pid, 11)
    wait_for(lambda: children(one.process.pid).get("frames") != pid)
    answers = [one.ask("GET", f"/api/frames/{key}/{index}") for index in (4, 5)]
    assert answers[-1].status == 200
    assert answers[0].status == 200 or "stopped" in answers[0].problem
