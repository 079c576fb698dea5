"""A reader with one defect of each sort, for the tests of benchmarks/fuzz.py: the number of an input decides."""

import os
import signal
import time
from pathlib import Path
from random import Random

from fuzz_child import chance_of
from fuzz_kind import Kind, WrongError
from timecycle.errors import LabelError

SOUND, REFUSES, RAISES, LIES, CRASHES, HANGS = range(6)


_NUMBERS = {chance_of(0, "planted_defects:DEFECTS", number).random(): number for number in range(6)}


def _make(chance: Random, _: None, folder: Path) -> tuple[int, Path]:
    first = chance.random()
    (folder / "input").write_text(repr(first))
    return _NUMBERS[first], folder / "input"


def _read(case: tuple[int, Path]) -> str | None:
    number, path = case
    if number == REFUSES:
        raise LabelError(f"{path} is strange", remedy="give another")
    if number == RAISES:
        raise ZeroDivisionError("of another library")
    if number == LIES:
        raise WrongError("another mask")
    if number == CRASHES:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == HANGS:
        time.sleep(600)
    return "as it should be"


DEFECTS = Kind(prepare=lambda _: None, make=_make, read=_read, patience_seconds=1.5)
