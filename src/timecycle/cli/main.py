"""The commands, exit codes, and how errors are printed."""

import logging
import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import tyro

from timecycle.cli.console import err, out
from timecycle.cli.help import asks_for_help, check_options, command_help, find_command
from timecycle.concurrency import usable_cores
from timecycle.errors import TimecycleError, first_line
from timecycle.shortages import explain_error
from timecycle.version import __version__

_SIGPIPE = 13
_TRACEBACK = "TIMECYCLE_TRACEBACK"
_RESUME = "; to resume, run it again with --resume and without --overwrite"
_AGAIN = "; to resume, run it again"
_HOW_TO_RESUME = {"propagate": _RESUME, "train": _RESUME, "pack": _AGAIN, "bulk": _AGAIN}


# The class in the module of the command, which is imported only to run the command: torch takes seconds. One line
# each for `timecycle --help`; `timecycle COMMAND --help` prints the docstring of the class.
_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("Demo", "try everything on a small clip: one minute, no download"),
    "propagate": ("Propagate", "propagate the annotations of some frames through a video"),
    "check": ("Check", "list the frames to review first, with a page of pictures"),
    "correct": ("Correct", "correct frames of a finished run, or undo a correction"),
    "audit": ("Audit", "find errors in labels that any tool made"),
    "tune": ("Tune", "rank presets and encoders on a clip"),
    "frames": ("Frames", "save frames of a video as PNG, to annotate elsewhere"),
    "flow": ("Flow", "compute dense correspondence between two images"),
    "train": ("Train", "learn an encoder from raw video, without labels"),
    "evaluate": ("Evaluate", "score an encoder, or anyone's masks, on a benchmark"),
    "weights": ("Weights", "list, verify, show and convert weights"),
    "presets": ("Presets", "list presets, or print one"),
    "pack": ("PackVideos", "pack videos into shards for training at scale"),
    "bulk": ("Bulk", "propagate annotations through many videos"),
    "doctor": ("Doctor", "show what is installed and what this machine will use"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 1: some videos failed, or an unexpected error. 2: an error that the user can fix, in one line with a
    remedy. 130: interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()  # here, where a closed pipe is still caught
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        # As after `| head`: nobody reads the rest of the output, nor what Python flushes at its end.
        _discard_output()
        return 128 + _SIGPIPE
    except OSError as error:  # standard output cannot be written, for example to a full disk
        _discard_output()
        return _print_error(error)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        out.print(f"timecycle {__version__}")
        return 0
    if words in ([], ["-h"], ["--help"]):
        out.print(_help())
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING, handlers=[_ConsoleHandler()])
    try:
        typed = find_command(words, _definitions(words[0]))
        if asks_for_help(words):
            out.print(command_help(typed))
            return 0
        check_options(typed, words)
    except TimecycleError as error:
        return _print_error(error)
    command = tyro.cli(
        _definitions(words[0])[words[0]],
        prog=f"timecycle {words[0]}",
        args=words[1:],
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    _limit_threads()
    try:
        code = command()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        err.print(f"interrupted{_HOW_TO_RESUME.get(words[0], '')}")
        return 130
    except Exception as error:
        if os.environ.get(_TRACEBACK) and not isinstance(error, TimecycleError):
            raise
        return _print_error(error)
    return code if isinstance(code, int) else 0


def _definitions(word: str) -> dict[str, Any]:
    """Return the class of the command `word` by its name; if there is no such command, the names of all."""
    if word not in _COMMANDS:
        return dict.fromkeys(_COMMANDS)
    return {word: getattr(import_module(f"timecycle.cli.{word}"), _COMMANDS[word][0])}


def _print_error(error: Exception) -> int:
    """Print what went wrong and what to try; return the exit code."""
    known = explain_error(error)
    if known is not None:
        err.print(f"error: {known.problem}\n  try: {known.remedy}")
        return 2
    err.print(
        f"error: this should not have happened: {type(error).__name__}: {first_line(error)}\n"
        f"  try: the same with {_TRACEBACK}=1 set, and report what it prints"
    )
    return 1


def _discard_output() -> None:
    """Send the rest of standard output nowhere, including what Python flushes when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help() -> str:
    """One line for each command."""
    return "\n".join(
        (
            "usage: timecycle COMMAND ..., or timecycle --version",
            "",
            "Propagate the annotations of a few frames through the whole video.",
            "",
            *(f"  {name:<11}{line}" for name, (_, line) in _COMMANDS.items()),
            "",
            "timecycle COMMAND --help describes a command. To begin: timecycle demo",
            "exit codes: 0 done, 1 videos failed or bug, 2 user error, 130 interrupted",
        )
    )


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    if not hasattr(select, "poll"):  # Windows
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # standard output is no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class _ConsoleHandler(logging.Handler):
    """Prints log messages on the console that shows progress, so that neither garbles the other."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(self.format(record))


def _limit_threads() -> None:
    """Use no more threads than usable cores, unless OMP_NUM_THREADS is set: torch ignores a container's limits."""
    if "OMP_NUM_THREADS" not in os.environ:
        import torch  # noqa: PLC0415, here: it takes seconds

        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
