"""The main function of a job's process: one verb of the API, reported as lines of JSON."""

import _thread
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import timecycle as tc
from timecycle.errors import LabelError, TimecycleError
from timecycle.files import write_text
from timecycle.ui.child import described
from timecycle.ui.exports import EXPORTS

Arguments = dict[str, Any]
_REPORT_SECONDS = 0.1
_INTERRUPTED = 130
_LAST_SECONDS = 20.0  # to write a snapshot after the server has gone


def propagate(arguments: Arguments) -> dict[str, Any]:
    """Propagate annotations into a folder, and rank the frames to check."""
    labels = {int(index): _read(path, arguments["kind"]) for index, path in arguments["labels"].items()}
    if not labels:
        raise LabelError("no frame is annotated yet", remedy="mark an object on a frame first")
    present = {name for one in labels.values() for name in one.space([one]).objects}
    run = tc.propagate_to_folder(
        arguments["video"],
        labels,
        arguments["folder"],
        config=tc.propagate_config(arguments["preset"], [f"direction={arguments['direction']}"]),
        names={int(number): name for number, name in arguments["names"].items() if number in present},
        resume=arguments["resume"],
        overwrite=arguments["overwrite"],
        progress=_report,
    )
    return {"frames": len(run), "toReview": _check(arguments)["toReview"]}


def correct(arguments: Arguments) -> dict[str, Any]:
    """Apply corrections; only the frames that depend on them are propagated again."""
    run = tc.Run(arguments["folder"])
    corrections = {int(index): _correction(one, arguments["kind"]) for index, one in arguments["corrections"].items()}
    intervals = tc.correct(run, corrections, progress=_report)
    return {"intervals": [asdict(one) for one in intervals], "toReview": _check(arguments)["toReview"]}


def undo(arguments: Arguments) -> dict[str, Any]:
    """Take the last correction back."""
    return {"frames": tc.undo(arguments["folder"]), "toReview": _check(arguments)["toReview"]}


def check(arguments: Arguments) -> dict[str, Any]:
    """Rank the frames to check first."""
    return _check(arguments)


def audit(arguments: Arguments) -> dict[str, Any]:
    """Find errors in the labels of the run."""
    findings = [asdict(one) for one in tc.audit(tc.Run(arguments["folder"]), progress=_report).findings]
    write_text(Path(arguments["audit_file"]), json.dumps({"version": arguments["version"], "findings": findings}))
    return {"findings": len(findings)}


def export(arguments: Arguments) -> dict[str, Any]:
    """Write the run in a format to a file that the page downloads."""
    name, folder, path = arguments["format"], Path(arguments["folder"]), Path(arguments["path"])
    if name in EXPORTS:
        EXPORTS[name].write(folder, path, _report)
    else:
        from timecycle.ui import format_exports  # noqa: PLC0415, loads torch, which files that exist do not need

        format_exports.write(folder, name, path, _report)
    return {"file": path.name, "format": name, "bytes": path.stat().st_size}


def _check(arguments: Arguments) -> dict[str, Any]:
    try:
        return {"toReview": len(tc.check(arguments["folder"]).queue)}
    except TimecycleError as error:  # a run without confidence has no queue, and is a result all the same
        _tell(note=str(error))
        return {"toReview": 0}


def _read(path: str, kind: str) -> "tc.Labels":
    kinds: dict[str, type[tc.Masks | tc.Parts | tc.Keypoints]] = {
        one.kind: one for one in (tc.Masks, tc.Parts, tc.Keypoints)
    }
    return kinds[kind].read(path)


def _correction(one: Arguments, kind: str) -> "tc.Labels":
    """Make the labels of a corrected frame: they constrain the objects that were edited there."""
    if kind == tc.Keypoints.kind:
        from timecycle.ui.label_calls import points_of  # noqa: PLC0415

        return points_of(one["points"])
    masks = _read(one["path"], kind)
    present, edited = set(masks.space([masks]).objects), {str(number) for number in one["objects"]}
    if not edited <= present:  # an object was erased: it is absent, which only a statement about all objects can say
        return masks.as_exhaustive()
    return masks.restricted_to(frozenset(edited)) if edited else masks


VERBS: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    "propagate": propagate,
    "correct": correct,
    "undo": undo,
    "check": check,
    "audit": audit,
    "export": export,
}


def main() -> int:
    """Run the verb that standard input names."""
    message = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_interrupt_without_server, daemon=True).start()
    logging.getLogger("timecycle").addHandler(_Notes())
    try:
        result = VERBS[message["verb"]](message["arguments"])
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        _tell(error=described(error))
        return 1
    _tell(result=result)
    return 0


def _interrupt_without_server() -> None:
    """Wait for the end of standard input, which the server keeps open; then stop as after Ctrl-C."""
    while os.read(0, 1024):  # not through `sys.stdin`, whose lock Python wants at its end
        pass
    _thread.interrupt_main()
    time.sleep(_LAST_SECONDS)
    os._exit(_INTERRUPTED)


_last_report = 0.0


def _report(done: int, total: int) -> None:
    global _last_report  # noqa: PLW0603, one process has one job
    now = time.monotonic()
    if now - _last_report >= _REPORT_SECONDS or done == total:
        _last_report = now
        _tell(progress=[done, total])


def _tell(**content: Any) -> None:
    with suppress(BrokenPipeError):  # the server has gone
        _answers.write(json.dumps(content) + "\n")
        _answers.flush()


class _Notes(logging.Handler):
    """Sends the notes that the command line would print."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell(note=record.getMessage().removeprefix("note: "))


if __name__ == "__main__":
    _answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    sys.exit(main())
