"""The part of CVAT's server that its agents talk to: one task, one function, and the queue of its requests.

CVAT Online and Enterprise have this part; neither can be installed here. Everything on the other side of the network is
CVAT's own: `cvat-cli`, its agent and the SDK.
"""

import io
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import numpy as np
from PIL import Image

VERSION = "2.80.0"
_DATE = "2026-01-01T00:00:00Z"


class CvatServer:
    """Frames of a task; shapes on its first frame, which are to be tracked through the others."""

    def __init__(self, frames: Sequence[np.ndarray], shapes: Sequence[dict[str, Any]]) -> None:
        self.frames = frames
        self.url = ""
        self.function: dict[str, Any] | None = None
        self.tracked: dict[int, list[dict[str, Any] | None]] = {}  # shapes by frame, as the agent sent them
        self.failures: list[str] = []
        self._waiting: list[dict[str, Any]] = [
            {"type": "init_tracking", "task": 1, "frame": 0, "shapes": list(shapes), "job": 1}
        ]
        self._acquired: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, body: dict[str, Any], query: str) -> bytes | dict[str, Any]:
        if path == "/api/server/about":
            return {"name": "CVAT", "description": "", "version": VERSION, "logo_url": "", "subtitle": ""}
        if path == "/api/tasks/1":
            return self._task()
        if path == "/api/tasks/1/data/meta":
            frames = [
                {"width": f.shape[1], "height": f.shape[0], "name": f"{i}.png", "related_files": 0}
                for i, f in enumerate(self.frames)
            ]
            return {
                "chunks_updated_date": _DATE,
                "frames": frames,
                "deleted_frames": [],
                "chunk_size": 36,
                "size": len(frames),
                "start_frame": 0,
                "stop_frame": len(frames) - 1,
                "image_quality": 70,
            }
        if path == "/api/tasks/1/data/":
            return self._png(int(re.search(r"number=(\d+)", query)[1]))
        if path == "/api/labels":
            return {"count": 0, "next": None, "previous": None, "results": []}
        if path == "/api/functions" and method == "POST":
            self.function = {"id": 7, **body}
            return self.function
        if path == "/api/functions/7":
            return self.function or {}
        if path == "/api/functions/queues/function:7/requests/acquire":
            return {"ar_assignment": self._acquire(body["request_category"])}
        finished = re.fullmatch(r"/api/functions/queues/function:7/requests/(\w+)/(complete|fail|update)", path)
        if finished:
            return self._finish(finished[1], finished[2], body)
        raise KeyError(path)

    def _task(self) -> dict[str, Any]:
        return {
            "id": 1,
            "name": "clip",
            "size": len(self.frames),
            "data_chunk_size": 36,
            "data_original_chunk_type": "imageset",
            "data_compressed_chunk_type": "imageset",
            "mode": "annotation",
            "organization": None,
            "created_date": _DATE,
            "updated_date": _DATE,
            "dimension": "2d",
            "jobs": {"count": 1, "completed": 0, "validation": 0, "url": f"{self.url}/api/jobs"},
            "labels": {"url": f"{self.url}/api/labels"},
        }

    def _png(self, index: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(self.frames[index]).save(file, "PNG")
        return file.getvalue()

    def _acquire(self, category: str) -> dict[str, Any] | None:
        if category != "interactive" or not self._waiting:
            return None
        identity = f"r{len(self._acquired)}"
        self._acquired[identity] = self._waiting.pop(0)
        return {"ar_id": identity, "ar_params": self._acquired[identity]}

    def _finish(self, identity: str, how: str, body: dict[str, Any]) -> dict[str, Any]:
        asked = self._acquired[identity]
        if how == "fail":
            self.failures.append(body["exc_info"])
        elif how == "complete" and asked["type"] == "track":
            self.tracked[asked["frame"]] = body["shapes"]
        elif how == "complete":
            self._waiting += [
                {"type": "track", "task": 1, "frame": frame, "states": body["states"], "job": 1}
                for frame in range(1, len(self.frames))
            ]
        return {}


@contextmanager
def serving(server: CvatServer) -> Iterator[CvatServer]:
    """Answer requests on a free port, in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            path, _, query = unquote(self.path).partition("?")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "{}")
            try:
                answer = server.answer(self.command, path, body, query)
                status = 200
            except KeyError:
                answer, status = {"detail": f"no {path}"}, 404
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "image/png" if isinstance(answer, bytes) else "application/vnd.cvat+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _reply  # noqa: N815

        def log_message(self, *words: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
