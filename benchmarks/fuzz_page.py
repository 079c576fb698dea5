"""Requests to the page for benchmarks/fuzz.py: a real `timecycle ui`, asked what its own page would never ask.

Each request is one of the page's, changed: its JSON, its picture, numbers and names in its path, its headers, its
length. It must be answered, or refused with a status below 500. Found are answers of 500 and above, tracebacks that the
server prints, no answer in time, and a state of the page that cannot be read afterwards. What an edit does depends on
the edits before it, so a finding may need those too.
"""

import ctypes
import io
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from http.client import HTTPException, HTTPResponse
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from fuzz_kind import Kind, expect
from fuzz_mutations import changed_json, changed_png, damaged
from timecycle.errors import SettingsError
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import Size, VideoWriter

_HEIGHT_PX, _WIDTH_PX, _FRAMES = 32, 48, 4
_ANSWER_SECONDS = 15.0
_PARENT_DEATH_SIGNAL = 1  # of prctl

_HINTS = {
    "box": [4, 4, 30, 25],
    "inside": [{"points": [[10, 10], [14.5, 12]], "width_px": 4, "order": 1}],
    "outside": [{"points": [[2, 2]], "width_px": 3}],
}
_OBJECTS = {"value": [{"id": 1, "name": "dog"}, {"id": 2, "name": ""}]}
# Method, path and JSON of what the page asks; jobs are those that end at once.
_ASKED: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/", None),
    ("GET", "/static/main.js", None),
    ("GET", "/api/state", None),
    ("GET", "/api/browse?path=inner", None),
    ("GET", "/api/frames/0123abcd/2", None),
    ("GET", "/api/thumbnails/0123abcd/1", None),
    ("GET", "/api/run?since=0", None),
    ("GET", "/api/labels/1?before=1", None),
    ("GET", "/api/masks/1", None),
    ("GET", "/api/exports/out_masks.zip", None),
    ("POST", "/api/open", {"path": "inner/../clip.mp4"}),
    ("PUT", "/api/masks/1?objects=1,2", "png"),
    ("PUT", "/api/points/1", {"points": {"nose": [3.5, 4, True], "tail": [10, 20.25, False]}}),
    ("DELETE", "/api/annotations/1", None),
    ("PUT", "/api/settings/kind", {"value": "keypoints"}),
    ("PUT", "/api/settings/objects", _OBJECTS),
    ("PUT", "/api/settings/skeleton", {"value": [["nose", "tail"]]}),
    ("POST", "/api/undo", {}),
    ("POST", "/api/redo", {}),
    ("POST", "/api/assist/0", _HINTS),
    ("POST", "/api/jobs/propagate", {"preset": "none", "direction": "both", "resume": False}),
    ("POST", "/api/jobs/correct", {}),
    ("POST", "/api/jobs/undo", {}),
    ("POST", "/api/jobs/export", {"format": "masks.zip"}),
    ("POST", "/api/jobs/pause", {}),
)
_WORDS = (
    "",
    "0",
    "-1",
    "00",
    "1e9",
    "x",
    "%00",
    "..",
    "%2e%2e%2f",
    "9" * 30,
    "9" * 5000,
    "1.5",
    "a" * 3000,
    "%ff",
    "é",
)
_PATHS = ("//etc/passwd", "/static/../../version.py", "/static/%2e%2e/%2e%2e/version.py", "/api/exports/..%2f..%2fa")
_HEADERS = (
    *(("content-length", text) for text in ("-1", "0", "9" * 20, "abc", "5, 5", "100000000")),
    *(("x-revision", text) for text in ("-1", "", "9" * 40, "1.0", "\xb2", "x")),
    *(("range", text) for text in ("bytes=0-0", "bytes=9-1", "bytes=-0", "bytes=0-0," * 500 + "1-2", "lines=1")),
    *(("content-type", text) for text in ("application/json; charset=utf-16", "multipart/form-data; boundary=x", "")),
    *(("cookie", text) for text in ("", "timecycle", "=;=;", "a" * 9000, "\xff\xfe")),
    *(("host", text) for text in ("", "evil", "127.0.0.1:99999", "[::1]")),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "gzip, chunked"),
    ("expect", "100-continue"),
    ("origin", "null"),
    ("if-none-match", '"' * 500),
    ("if-modified-since", "Mon, 99 Foo 99999 99:99:99 GMT"),
    ("upgrade", "websocket"),
    ("x" * 70000, "1"),
)


@dataclass(frozen=True)
class Page:
    """A running server, and what a request needs to be let in."""

    process: "subprocess.Popen[str]"
    host: str
    cookie: str
    log: Path  # what the server prints

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"", *, cut: bool = False) -> Any:
        """Send a request and return its status and JSON; None for both where the server only hung up."""
        own = {"host": self.host, "cookie": self.cookie, "connection": "close", "content-length": str(len(body))}
        if method not in ("GET", "HEAD"):
            own |= {"origin": f"http://{self.host}", "x-timecycle": "1"}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (own | headers).items())]
        sent = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")
        host, _, port = self.host.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS) as connection:
            try:
                connection.sendall(sent + (body[: len(body) // 2] if cut else body))
                if cut or {"content-length", "transfer-encoding"} & headers.keys():
                    connection.shutdown(socket.SHUT_WR)  # hang up, or the server waits for the rest, as it should
                answer = HTTPResponse(connection, method=method)
                answer.begin()
                content = answer.read()
            except (HTTPException, ConnectionError):
                return None, None
        is_json = (answer.getheader("content-type") or "").startswith("application/json")
        return answer.status, json.loads(content) if is_json and content else None

    def tracebacks(self) -> int:
        return self.log.read_text(errors="replace").count("Traceback")


@dataclass(frozen=True)
class Case:
    """One request."""

    page: Page
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    cut: bool


def begin(folder: Path) -> Page:
    """Start the server of a folder with one clip, and open the clip. The server ends with this process."""
    world = make_world(WorldConfig(height_px=_HEIGHT_PX, width_px=_WIDTH_PX, frames=_FRAMES))
    (folder / "root" / "inner").mkdir(parents=True)
    with VideoWriter(folder / "root" / "clip.mp4", Size(_HEIGHT_PX, _WIDTH_PX), Fraction(1, 24)) as writer:
        for index, image in enumerate(world.frames()):
            writer.write(image, index)
    shutil.copyfile(folder / "root" / "clip.mp4", folder / "secret.mp4")
    log = folder / "server.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "timecycle", "ui", str(folder / "root"), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=log.open("wb"),
        text=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  it makes one system call
    )
    address = process.stdout.readline().split()[1] if process.stdout else ""
    page = Page(process, urlsplit(address).netloc, "", log)
    host, _, port = page.host.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        path = address.removeprefix(f"http://{page.host}")
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: {page.host}\r\n\r\n".encode())
        answer = HTTPResponse(connection)
        answer.begin()
    page = Page(process, page.host, (answer.getheader("set-cookie") or "").partition(";")[0], log)
    status, said = page.ask("POST", "/api/open", {"content-type": "application/json"}, b'{"path": "clip.mp4"}')
    if status != 200:
        raise RuntimeError(f"the clip could not be opened: {said}")
    while not page.ask("GET", "/api/state", {})[1]["colours"]:  # the process that reads labels still begins
        time.sleep(0.2)
    return page


def _end_with_parent() -> None:
    """Ask the system to end this process with the one that starts it, however that ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def make(chance: Random, page: Page, folder: Path) -> Case:
    """Choose a request of the page and change some of it."""
    method, path, asked = chance.choice(_ASKED)
    headers: dict[str, str] = {}
    body = b""
    if asked == "png":
        body = _png(chance)
    elif asked is not None:
        headers["content-type"] = "application/json"
        body = json.dumps(asked).encode()
    if body and chance.random() < 0.7:
        body = changed_png(chance, body) if asked == "png" else changed_json(chance, body)
    if chance.random() < 0.1:
        body = damaged(chance, body or b"\x00\x01")
    if chance.random() < 0.3:
        path = _changed_path(chance, path)
    if chance.random() < 0.2:
        name, value = chance.choice(_HEADERS)
        headers[name] = value
    if chance.random() < 0.05:
        method = chance.choice(("GET", "HEAD", "OPTIONS", "TRACE", "PATCH", "X" * 200, "get"))
    case = Case(page, method, path, headers, body, cut=chance.random() < 0.05)
    told = {"method": method, "path": path, "headers": headers, "body": body.decode("latin-1"), "cut": case.cut}
    (folder / "request.json").write_text(json.dumps(told, indent=2))
    return case


def _png(chance: Random) -> bytes:
    ids = np.zeros((_HEIGHT_PX, _WIDTH_PX), np.uint8)
    ids[chance.randrange(16) :, 5:20] = chance.choice((0, 1, 2))
    file = io.BytesIO()
    Image.fromarray(ids).save(file, format="PNG")
    return file.getvalue()


def _changed_path(chance: Random, path: str) -> str:
    if chance.random() < 0.1:
        return chance.choice(_PATHS)
    address, _, query = path.partition("?")
    if query and chance.random() < 0.5:
        return f"{address}?{query.partition('=')[0]}={chance.choice(_WORDS)}"
    parts = address.split("/")
    parts[chance.randrange(1, len(parts))] = chance.choice(_WORDS)
    return "/".join(parts) + (f"?{query}" if query else "")


def read(case: Case) -> str | None:
    """Send the request; every answer below 500 is right if the server printed no traceback and still works."""
    page, before = case.page, case.page.tracebacks()
    own, state = page.ask("GET", "/api/state", {})
    expect(own == 200, "the state cannot be read any more")
    project = state["project"]
    headers = {"x-revision": str(project["revision"]) if project else "0", **case.headers}
    status, said = page.ask(case.method, case.path, headers, case.body, cut=case.cut)
    after, _ = page.ask("GET", "/api/state", {})
    expect(after == 200, f"the state cannot be read after {case.method} {case.path[:80]}")
    expect(page.process.poll() is None, "the server has ended")
    if page.tracebacks() > before:
        raise RuntimeError(f"a traceback: {case.method} {case.path[:80]} {said}")
    if (status or 400) >= 500 or "should not have happened" in str(said):
        raise RuntimeError(f"{status} {case.method} {case.path[:80]} {str(said)[:200]}")
    if status is None or status >= 400:
        raise SettingsError(f"{status} {str(said)[:200]}", remedy="ask as the page does")
    return str(status)


KINDS = (
    {"page": Kind(prepare=begin, make=make, read=read, patience_seconds=60.0)}
    if find_spec("starlette") and find_spec("uvicorn")
    else {}
)
