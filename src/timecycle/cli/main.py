"""The verbs, and what becomes of errors."""

import logging
import os
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
from timecycle.errors import TimecycleError
from timecycle.version import __version__

_RESUME = "; to go on, run it again with --resume and without --overwrite"
_AGAIN = "; to go on, run it again"
_GOES_ON = {"propagate": _RESUME, "train": _RESUME, "pack": _AGAIN, "bulk": _AGAIN}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what a user can mend is one line and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        out.print(f"timecycle {__version__}")
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    verbs: dict[str, Callable[..., object]] = {
        "propagate": Propagate,
        "check": Check,
        "correct": Correct,
        "audit": Audit,
        "tune": Tune,
        "flow": Flow,
        "train": Train,
        "pack": PackVideos,
        "bulk": Bulk,
        "evaluate": Evaluate,
        "weights": Weights,
        "demo": Demo,
        "doctor": Doctor,
    }
    command = tyro.extras.subcommand_cli_from_dict(
        verbs,
        prog="timecycle",
        description="Carry the labels of one frame through the whole video. (--version prints the version.)",
        args=words,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    _bound_threads()
    try:
        command()
    except TimecycleError as error:
        err.print(f"error: {error.problem}\n  try: {error.remedy}")
        return 2
    except KeyboardInterrupt:
        err.print(f"interrupted{_GOES_ON.get(words[0], '')}")
        return 130
    return 0


def _bound_threads() -> None:
    """No more threads than cores that may be used, unless someone has said how many: torch does not see what a
    container is allowed."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
