"""Jobs: verbs of the API in a process of their own, one at a time, with progress and Ctrl-C.

The process reads what to do from its standard input and writes lines of JSON. Its input stays open: when the server
ends, however it ends, the job is interrupted as by Ctrl-C and can be resumed.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from timecycle.errors import InUseError
from timecycle.ui.events import Events

Prepare = Callable[[], Awaitable[None]]
Done = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Job:
    """A verb that runs, or that ran last."""

    verb: str = ""
    status: str = "idle"  # running, stopping, done, failed, interrupted
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    eta_seconds: float | None = None
    notes: list[str] = field(default_factory=list)
    error: dict[str, str] | None = None
    result: dict[str, Any] | None = None
    number: int = 0  # counted from 1: a page knows the job that it started from the one before

    @property
    def runs(self) -> bool:
        return self.status in ("running", "stopping")


class Jobs:
    """Starts jobs and tells the pages about them."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.last = Job()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()  # held from the moment that a job is reserved until it has a process

    async def start(
        self, verb: str, arguments: dict[str, Any], *, prepare: Prepare | None = None, when_done: Done
    ) -> None:
        """Start a verb; `when_done` is called with its result if it succeeds, before the pages are told.

        `prepare` writes what the verb reads or makes room for what it writes. It is called once no other job can start.
        """
        if self.last.runs:
            raise InUseError(f"{self.last.verb} is still running", remedy="wait until it is done, or pause it")
        before, self.last = self.last, Job(verb, "running", number=self.last.number + 1)
        async with self._starting:
            try:
                if prepare is not None:
                    await prepare()
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "timecycle.ui.job",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C is for the server
                    limit=64 << 20,
                )
            except BaseException:
                self.last = before
                self._tell()
                raise
            self._tell()
            message = {"verb": verb, "arguments": arguments}
            self._task = asyncio.create_task(self._follow(self._process, message, when_done))

    async def interrupt(self) -> None:
        """Stop the job as Ctrl-C does, and wait for its end."""
        async with self._starting:  # what is being prepared has no process yet
            pass
        if not self.last.runs or self._process is None or self._task is None:
            return
        self.last.status = "stopping"
        self._tell()
        with contextlib.suppress(ProcessLookupError):
            if os.name == "nt" and self._process.stdin is not None:
                self._process.stdin.close()  # Windows has no Ctrl-C for one process; the job takes this for one
            else:
                self._process.send_signal(signal.SIGINT)
        await asyncio.shield(self._task)

    async def close(self) -> None:
        """Stop the job because the server ends."""
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(self.interrupt(), 10)

    async def _follow(self, process: asyncio.subprocess.Process, message: dict[str, Any], when_done: Done) -> None:
        if process.stdin is None or process.stdout is None:  # never: both are pipes
            return
        process.stdin.write(json.dumps(message).encode() + b"\n")
        started = time.monotonic()
        first: tuple[float, int] | None = None
        while line := await process.stdout.readline():
            told, job = json.loads(line), self.last
            now = time.monotonic()
            job.seconds = now - started
            if "progress" in told:
                job.done, job.total = told["progress"]
                first = first or (now, job.done)
                # From the first report on: loading the encoder, and frames of an interrupted run, tell nothing.
                per_step = (now - first[0]) / max(job.done - first[1], 1)
                job.eta_seconds = per_step * (job.total - job.done) if job.done > first[1] else None
            job.notes += [told["note"]] if "note" in told else []
            job.error = told.get("error", job.error)
            job.result = told.get("result", job.result)
            self._tell()
        code = await process.wait()
        await self._finish(code, when_done)

    async def _finish(self, code: int, when_done: Done) -> None:
        job = self.last
        if job.result is not None:
            await when_done(job.result)
            job.status = "done"
        elif job.error is not None:
            job.status = "failed"
        elif job.status == "stopping" or code == 130:
            job.status = "interrupted"
        else:
            job.status = "failed"
            reason = f"signal {-code}" if code < 0 else f"exit code {code}"
            job.error = {
                "kind": "ShortageError" if code == -signal.SIGKILL else "UnexpectedError",
                "problem": f"the process of {job.verb} ended by itself ({reason})",
                "remedy": "memory may be short: close other programs or use the preset `fast`, then resume"
                if code == -signal.SIGKILL
                else "resume it; if it happens again, run the same on the command line to see more",
            }
        self._tell()

    def _tell(self) -> None:
        self._events.tell("job", job=described(self.last))


def described(job: Job) -> dict[str, Any]:
    """Return what the page knows of a job."""
    return {
        "verb": job.verb,
        "status": job.status,
        "done": job.done,
        "total": job.total,
        "seconds": round(job.seconds, 1),
        "etaSeconds": None if job.eta_seconds is None else round(job.eta_seconds, 1),
        "notes": job.notes,
        "error": job.error,
        "result": job.result,
        "number": job.number,
    }
