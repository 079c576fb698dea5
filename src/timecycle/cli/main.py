"""The verbs, and what becomes of errors."""

import logging
import os
import select
import sys
from collections.abc import Callable, Sequence

import torch
import tyro

from timecycle.cli.audit import Audit
from timecycle.cli.bulk import Bulk
from timecycle.cli.check import Check
from timecycle.cli.console import err, out
from timecycle.cli.correct import Correct
from timecycle.cli.demo import Demo
from timecycle.cli.doctor import Doctor
from timecycle.cli.evaluate import Evaluate
from timecycle.cli.flow import Flow
from timecycle.cli.pack import PackVideos
from timecycle.cli.propagate import Propagate
from timecycle.cli.train import Train
from timecycle.cli.tune import Tune
from timecycle.cli.weights import Weights
from timecycle.cores import usable_cores
from timecycle.errors import TimecycleError, first_line
from timecycle.shortages import explained
from timecycle.version import __version__

_SIGPIPE = 13
_TRACEBACK = "TIMECYCLE_TRACEBACK"
_RESUME = "; to go on, run it again with --resume and without --overwrite"
_AGAIN = "; to go on, run it again"
_GOES_ON = {"propagate": _RESUME, "train": _RESUME, "pack": _AGAIN, "bulk": _AGAIN}


# Each with one line for `timecycle --help`; `timecycle COMMAND --help` has the rest, from its class.
_COMMANDS: dict[str, tuple[Callable[..., object], str]] = {
    "demo": (Demo, "try everything on a small clip: a minute, no download"),
    "propagate": (Propagate, "propagate the annotations of some frames through a video"),
    "check": (Check, "list the frames to look at first, with a page of pictures"),
    "correct": (Correct, "correct frames of a finished run, or undo a correction"),
    "audit": (Audit, "find labels of any tool that do not fit their video"),
    "tune": (Tune, "find the presets and encoders that suit a clip"),
    "flow": (Flow, "dense correspondence between two images"),
    "train": (Train, "learn an encoder from raw video, without labels"),
    "evaluate": (Evaluate, "score an encoder, or anyone's masks, on a benchmark"),
    "weights": (Weights, "list, verify, show and convert weights"),
    "pack": (PackVideos, "pack videos into shards for training at scale"),
    "bulk": (Bulk, "propagate annotations through many videos"),
    "doctor": (Doctor, "show what is installed and what this machine will use"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what a user can mend is one line and exit code 2, what nobody foresaw one line and 1."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()  # here, where a reader that has gone is still met with silence
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        # Nobody reads on, as after `| head`: the rest of the output has no place to go, when Python ends too.
        _write_nowhere()
        return 128 + _SIGPIPE
    except OSError as error:  # standard output cannot be written, to a full disk for one
        _write_nowhere()
        return _tell(error)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        out.print(f"timecycle {__version__}")
        return 0
    if words in ([], ["-h"], ["--help"]):
        out.print(_help())
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING, handlers=[_OnConsole()])
    command = tyro.extras.subcommand_cli_from_dict(
        {name: command for name, (command, _) in _COMMANDS.items()},
        prog="timecycle",
        args=words,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    _bound_threads()
    try:
        code = command()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        err.print(f"interrupted{_GOES_ON.get(words[0], '')}")
        return 130
    except Exception as error:
        if os.environ.get(_TRACEBACK) and not isinstance(error, TimecycleError):
            raise
        return _tell(error)
    return code if isinstance(code, int) else 0  # 1: it is done, but not all of it could be


def _tell(error: Exception) -> int:
    """Say what went wrong and what to try; returns the exit code."""
    known = explained(error)
    if known is not None:
        err.print(f"error: {known.problem}\n  try: {known.remedy}")
        return 2
    err.print(
        f"error: this should not have happened: {type(error).__name__}: {first_line(error)}\n"
        f"  try: the same with {_TRACEBACK}=1 set, and report what it prints"
    )
    return 1


def _write_nowhere() -> None:
    """Let what is still to be printed vanish, also when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help() -> str:
    """One line for each command."""
    return "\n".join(
        (
            "usage: timecycle COMMAND ...",
            "",
            "Propagate the annotations of a few frames through the whole video.",
            "",
            *(f"  {name:<11}{line}" for name, (_, line) in _COMMANDS.items()),
            "",
            "timecycle COMMAND --help explains a command, timecycle --version tells the",
            "version. To begin: timecycle demo",
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


class _OnConsole(logging.Handler):
    """Prints messages where progress is shown, so that neither cuts the other off."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(self.format(record))


def _bound_threads() -> None:
    """No more threads than cores that may be used, unless someone has said how many: torch does not see what a
    container is allowed."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
