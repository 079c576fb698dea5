"""Child processes that read what others made: frames of videos, labels of runs, pictures that the page sends.

A worker answers one call after the other. If it crashes, takes too long or runs out of memory, the call fails with a
message and the next call starts a new process. Its standard input closes with the server, however that ends, and so it
ends too.
"""

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from timecycle import errors
from timecycle.errors import TimecycleError, VideoError
from timecycle.ui.messages import HEADER, MAX_BYTES, Answer, packed

# The decoder's threads free what others allocated; with an arena for each, glibc keeps more and more of it.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}


class Worker:
    """A child process that runs `python -m timecycle.ui.child KIND`, started at its first call."""

    def __init__(self, kind: str, *, timeout_seconds: float = 60) -> None:
        self.kind = kind
        self._timeout_seconds = timeout_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def call(
        self, verb: str, arguments: dict[str, Any] | None = None, body: bytes = b"", *, seconds: float | None = None
    ) -> Answer:
        """Call a function of the child; raise its error here."""
        async with self._lock:
            try:
                answer, data = await asyncio.wait_for(
                    self._exchange(packed({"verb": verb, "arguments": arguments or {}}, body)),
                    seconds or self._timeout_seconds,
                )
            except TimeoutError:
                await self._end()
                raise VideoError(
                    f"reading took more than {seconds or self._timeout_seconds:.0f} s and was stopped",
                    remedy="try again; if it stays so, re-encode the video with: ffmpeg -i IN -c:v libx264 OUT.mp4",
                ) from None
            except asyncio.CancelledError:
                await self._end()  # its answer would be taken for that of the next call
                raise
            except (OSError, EOFError, asyncio.IncompleteReadError):
                code = await self._end()
                raise VideoError(
                    f"the process that reads {self.kind} stopped ({_ended(code)})",
                    remedy="it starts again by itself: try again; if it stays so, the file is damaged or too large",
                ) from None
        if "error" in answer:
            raise _error(**answer["error"])
        return answer, data

    async def close(self) -> None:
        """End the process for good."""
        self._closed = True
        await self._end()

    async def _exchange(self, message: bytes) -> Answer:
        process = self._process
        if self._closed:
            raise EOFError
        if process is None or process.returncode is not None:
            process = self._process = await self._start()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:  # never: both are pipes
            raise EOFError
        stdin.write(message)
        await stdin.drain()
        text_length, body_length = HEADER.unpack(await stdout.readexactly(HEADER.size))
        if text_length + body_length > MAX_BYTES:
            raise EOFError
        content: dict[str, Any] = json.loads(await stdout.readexactly(text_length))
        return content, await stdout.readexactly(body_length)

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "timecycle.ui.child",
            self.kind,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, which then closes its workers
            env={**_ENVIRONMENT, **os.environ},
        )

    async def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()


@dataclass
class Workers:
    """The processes that read frames and labels."""

    frames: Worker = field(default_factory=lambda: Worker("frames"))
    thumbnails: Worker = field(default_factory=lambda: Worker("thumbnails"))
    labels: Worker = field(default_factory=lambda: Worker("labels"))

    async def close(self) -> None:
        for worker in (self.frames, self.thumbnails, self.labels):
            await worker.close()


def _ended(code: int | None) -> str:
    if code is None:
        return "it could not be started"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _error(kind: str, problem: str, remedy: str) -> TimecycleError:
    """Return the error that the child raised, of its own class."""
    found = getattr(errors, kind, TimecycleError)
    known = found if isinstance(found, type) and issubclass(found, TimecycleError) else TimecycleError
    return known(problem, remedy=remedy)
