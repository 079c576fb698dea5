"""The commands, exit codes, and how errors are printed."""

import io
import os
import select
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from importlib import import_module
from typing import Any, TextIO

import tyro

from timecycle.cli.console import ExitCode, Mode, Result, err, out, print_json, printing, split_mode
from timecycle.cli.help import Command, asks_for_help, check_options, command_help, find_command, parse_problem
from timecycle.concurrency import usable_cores
from timecycle.errors import SettingsError, TimecycleError, first_line
from timecycle.shortages import explain_error
from timecycle.version import __version__

_VERSION = ("-V", "--version")
_TRACEBACK = "TIMECYCLE_TRACEBACK"
_RESUME = "to resume, run it again with --resume and without --overwrite"
_AGAIN = "to resume, run it again"
_NEVER_COMPUTE = ("ui",)  # its processes do: importing torch here would only delay the page
_HOW_TO_RESUME = {"propagate": _RESUME, "train": _RESUME, "pack": _AGAIN, "bulk": _AGAIN}


# The class in the module of the command, which is imported only to run the command: torch takes seconds. One line
# each for `timecycle --help`; `timecycle COMMAND --help` prints the docstring of the class.
_COMMANDS: dict[str, tuple[str, str]] = {
    "ui": ("Ui", "annotate, propagate, review and export in the browser"),
    "demo": ("Demo", "try everything on a small clip: one minute, no download"),
    "propagate": ("Propagate", "propagate the annotations of some frames through a video"),
    "check": ("Check", "list the frames to review first, with a page of pictures"),
    "correct": ("Correct", "correct frames of a finished run, or undo a correction"),
    "audit": ("Audit", "find errors in labels that any tool made"),
    "tune": ("Tune", "rank presets and encoders on a clip"),
    "convert": ("Convert", "convert label files between the formats of many tools"),
    "frames": ("Frames", "save frames of a video as PNG, to annotate elsewhere"),
    "flow": ("Flow", "compute dense correspondence between two images"),
    "train": ("Train", "learn an encoder from raw video, without labels"),
    "evaluate": ("Evaluate", "score an encoder, or anyone's masks, on a benchmark"),
    "weights": ("Weights", "list, verify, show and convert weights"),
    "presets": ("Presets", "list presets, or print one"),
    "pack": ("PackVideos", "pack videos into shards for training at scale"),
    "bulk": ("Bulk", "propagate annotations through many videos"),
    "benchmark": ("Benchmark", "measure how fast this machine encodes, matches and trains"),
    "doctor": ("Doctor", "show what is installed and what this machine will use"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 1: some videos failed, or an unexpected error. 2: an error that the user can fix, in one line with a
    remedy. 130: interrupted. 141: nobody reads the output any more.
    """
    words, mode = split_mode(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            if not words or asks_for_help(words) or words[0] in _VERSION:
                return _describe(words)
            with printing(mode):
                code, result = _run(words, mode)
            if mode.json:
                print_json(result)
            return code
        finally:
            sys.stdout.flush()  # here, where a closed pipe is still caught
    except BrokenPipeError:
        unread = _unread()
        if not unread:
            raise
        # As after `| head`: nobody reads the rest of the output, nor what Python flushes at its end.
        for stream in unread:
            _discard(stream)
        return ExitCode.CLOSED_PIPE
    except OSError as error:  # standard output cannot be written, for example to a full disk
        _discard(sys.stdout)
        return _fail(error)[0]


def _describe(words: list[str]) -> int:
    """Print the version, or the help of all commands or of one."""
    if words[:1] in ([], ["-h"], ["--help"]):
        out.print(_help())
    elif words[0] in _VERSION:
        out.print(f"timecycle {__version__}")
    else:
        try:
            out.print(command_help(find_command(words, _definitions(words[0]))))
        except TimecycleError as error:
            return _fail(error)[0]
    return ExitCode.DONE


def _run(words: list[str], mode: Mode) -> tuple[int, Result]:
    """Run a command; return its exit code and what --json prints."""
    start, how_to_resume = time.monotonic(), ""
    try:
        if mode.quiet and mode.verbose:
            raise SettingsError("--quiet and --verbose were both given", remedy="leave one of them out")
        typed = find_command(words, _definitions(words[0]))
        check_options(typed, words)
        command = _parse(typed, words)
        if words[0] not in _NEVER_COMPUTE:
            _limit_threads()
        how_to_resume = _HOW_TO_RESUME.get(words[0], "")
        result: Result = command()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as interrupt:
        remedy = str(interrupt) or how_to_resume
        err.print("; ".join(filter(None, ("interrupted", remedy))))
        return _error("Interrupted", "interrupted", remedy or "run it again", ExitCode.INTERRUPTED)
    except Exception as error:
        if os.environ.get(_TRACEBACK) and not isinstance(error, TimecycleError):
            raise
        return _fail(error)
    code = result.pop("exit_code", ExitCode.DONE)
    seconds = round(time.monotonic() - start, 3)
    return code, {"command": " ".join(typed.words), **result, "seconds": seconds, "exit_code": int(code)}


def _parse(typed: Command, words: list[str]) -> Any:
    """Build the command from its words; what tyro prints about wrong ones becomes an error like any other."""
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            return tyro.cli(
                _definitions(words[0])[words[0]],
                prog=f"timecycle {words[0]}",
                args=words[1:],
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        raise SettingsError(
            parse_problem(printed.getvalue()), remedy=f"{typed} --help describes its arguments"
        ) from stop


def _definitions(word: str) -> dict[str, Any]:
    """Return the class of the command `word` by its name; if there is no such command, the names of all."""
    if word not in _COMMANDS:
        return dict.fromkeys(_COMMANDS)
    return {word: getattr(import_module(f"timecycle.cli.{word}"), _COMMANDS[word][0])}


def _fail(error: Exception) -> tuple[int, Result]:
    """Print what went wrong and what to try; return the exit code and what --json prints."""
    known = explain_error(error)
    if known is not None:
        kind, problem, remedy, code = type(known).__name__, known.problem, known.remedy, ExitCode.REFUSED
    else:
        kind, code = "UnexpectedError", ExitCode.FAILED
        problem = f"this should not have happened: {type(error).__name__}: {first_line(error)}"
        remedy = f"the same with {_TRACEBACK}=1 set, and report what it prints"
    err.print(f"error: {problem}\n  try: {remedy}")
    return _error(kind, problem, remedy, code)


def _error(kind: str, message: str, remedy: str, code: ExitCode) -> tuple[int, Result]:
    return code, {"error": {"kind": kind, "message": message, "remedy": remedy, "exit_code": int(code)}}


def _discard(stream: TextIO) -> None:
    """Send the rest of a stream nowhere, including what Python flushes when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _help() -> str:
    """One line for each command."""
    return "\n".join(
        (
            "Propagate the annotations of a few frames through the whole video.",
            "usage: timecycle COMMAND ..., or timecycle --version",
            "",
            *(f"  {name:<11}{line}" for name, (_, line) in _COMMANDS.items()),
            "",
            "timecycle COMMAND --help describes a command. To begin: timecycle demo",
            "exit codes: 0 done, 1 videos failed or bug, 2 user error, 130 interrupted",
        )
    )


def _unread() -> list[TextIO]:
    """Return those of standard output and standard error that are pipes which nobody reads any more."""
    if not hasattr(select, "poll"):  # Windows
        return [sys.stdout]
    poll, streams = select.poll(), {}
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the stream is no file
            poll.register(stream.fileno(), 0)
            streams[stream.fileno()] = stream
    return [streams[number] for number, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]


def _limit_threads() -> None:
    """Use no more threads than usable cores, unless OMP_NUM_THREADS is set: torch ignores a container's limits."""
    if "OMP_NUM_THREADS" not in os.environ:
        import torch  # noqa: PLC0415, here: it takes seconds

        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
