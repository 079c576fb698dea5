"""The process in which benchmarks/fuzz.py reads inputs: limited, and given up without harm when it crashes or hangs."""

import faulthandler
import importlib
import os
import resource
import shutil
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from fuzz_kind import Kind, WrongError
from timecycle.errors import TimecycleError

_ROOM_BYTES = 3 << 30  # of address space for one input, beyond what the process has before it
_FILE_BYTES = 256 << 20

ACCEPTED, REFUSED, OTHER_EXCEPTION, WRONG = "accepted", "refused", "other_exception", "wrong"


def find_kind(word: str) -> Kind:
    """The kind of a name in fuzz_targets.KINDS, or MODULE:NAME."""
    module, _, name = word.rpartition(":")
    kind = getattr(importlib.import_module(module), name) if module else _known()[word]
    if not isinstance(kind, Kind):
        raise TypeError(f"{word} is no kind of input")
    return kind


def _known() -> dict[str, Kind]:
    kinds: dict[str, Kind] = importlib.import_module("fuzz_targets").KINDS
    return kinds


def chance_of(seed: int, word: str, number: int) -> Random:
    """What decides an input: nothing but these."""
    return Random(f"{seed}/{word}/{number}")


def serve(pipe: Connection, seed: int, work: str) -> None:
    """Read the inputs that are asked for, one after the other, and tell what became of each."""
    log = os.open(Path(work, "child.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()
    os.chdir(work)
    prepared: dict[str, Any] = {}
    while True:
        word, number = pipe.recv()
        kind = find_kind(word)
        if word not in prepared:
            prepared[word] = prepare(kind, word, Path(work))
        folder = Path(work, "input")
        case = make(kind, prepared[word], chance_of(seed, word, number), folder)
        pipe.send("made")
        _limit(kind)
        try:
            answer = judge(kind, case)
        finally:
            _unlimit()
        pipe.send(answer)


def prepare(kind: Kind, word: str, work: Path) -> Any:
    """The whole files that inputs of a kind are made from."""
    folder = work / "whole" / word.replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return kind.prepare(folder)


def make(kind: Kind, sources: Any, chance: Random, folder: Path) -> Any:
    """Write an input into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return kind.make(chance, sources, folder)


def judge(kind: Kind, case: Any) -> tuple[str, str]:
    """What became of an input, and in which words."""
    try:
        return ACCEPTED, kind.read(case) or ""
    except TimecycleError as error:
        return REFUSED, type(error).__name__
    except WrongError as error:
        return WRONG, str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return OTHER_EXCEPTION, f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"


def _limit(kind: Kind) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _set(resource.RLIMIT_AS, pages * resource.getpagesize() + _ROOM_BYTES)
    _set(resource.RLIMIT_FSIZE, _FILE_BYTES)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + 2 * kind.patience_seconds) + 1)


def _unlimit() -> None:
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
        _set(limit, resource.RLIM_INFINITY)


def _set(limit: int, most: int) -> None:
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else hard, hard))
