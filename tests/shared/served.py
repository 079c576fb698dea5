"""A real server of the page in a process of its own, and a client that may send any request to it."""

import http.client
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        return str(self.json["error"]["problem"])


class Served:
    """A running `timecycle ui`, and requests to it as its page sends them."""

    def __init__(self, *arguments: str | Path, cwd: Path, stderr: Path | None = None) -> None:
        words = [sys.executable, "-m", "timecycle", "ui", *map(str, arguments), "--no-browser"]
        with stderr.open("wb") if stderr else nullcontext() as log:
            self.process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, text=True, cwd=cwd, start_new_session=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("open http"), line
        self.url = line.split()[1]
        self.host = urlsplit(self.url).netloc
        self.origin = f"http://{self.host}"
        answer = self.ask("GET", self.url.removeprefix(self.origin), cookie=None)
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        cookie: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; `headers` replace those of the page, and one that is empty is left out."""
        sent = {"host": self.host, "cookie": self.cookie if cookie == "" else cookie or ""}
        if method not in ("GET", "HEAD"):
            sent |= {"origin": self.origin, "x-timecycle": "1"}
        if isinstance(body, dict):
            body, sent["content-type"] = json.dumps(body).encode(), "application/json"
        sent |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", int(self.host.rpartition(":")[2]), timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            if body is not None and "content-length" not in sent:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders()
            try:
                if body is not None:
                    connection.send(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before all of it was sent
            answer = connection.getresponse()
            content = answer.read()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)
        finally:
            connection.close()

    def state(self) -> Any:
        return self.ask("GET", "/api/state").json

    def project(self) -> Any:
        """The open project, once it is open."""
        wait_for(lambda: self.state()["project"] or self.state()["problem"])
        return self.state()["project"]

    def edit(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        """Send an edit of the newest revision."""
        revision = str(self.project()["revision"])
        return self.ask(method, path, body, headers={"x-revision": revision, **more})

    def job(self, verb: str, **options: Any) -> Any:
        """Run a job to its end; returns its description."""
        answer = self.ask("POST", f"/api/jobs/{verb}", options)
        assert answer.status == 200, answer.body
        wait_for(lambda: self.state()["job"]["status"] not in ("running", "stopping"), seconds=180)
        return self.state()["job"]

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        _, code = self.process.communicate(timeout=30), self.process.returncode
        return code


@contextmanager
def served(*arguments: str | Path, cwd: Path, stderr: Path | None = None) -> Iterator[Served]:
    """Run a server until the block ends; `stderr` is a file for what it prints."""
    server = Served(*arguments, cwd=cwd, stderr=stderr)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def wait_for(condition: Callable[[], Any], *, seconds: float = 60) -> Any:
    """Wait until a condition holds; returns its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


def png(ids: np.ndarray) -> bytes:
    """A grey PNG of ids."""
    file = io.BytesIO()
    Image.fromarray(ids).save(file, format="PNG")
    return file.getvalue()


def children(pid: int) -> dict[str, int]:
    """The processes that a server has started, by what they read."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    found = {}
    for line in listed.splitlines():
        number, _, words = line.strip().partition(" ")
        if "timecycle.ui" in words:
            found["job" if words.endswith("timecycle.ui.job") else words.split()[-1]] = int(number)
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
