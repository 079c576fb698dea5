"""Benchmarks by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from timecycle.errors import SettingsError
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.protocols.badja import find_badja
from timecycle.evaluation.protocols.composites import find_composites
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.evaluation.protocols.jhmdb import find_jhmdb
from timecycle.evaluation.protocols.reconstruction import find_reconstruction
from timecycle.evaluation.protocols.vip import find_vip

_FINDERS: Mapping[str, Callable[..., Benchmark]] = {
    "davis": find_davis,
    "jhmdb": find_jhmdb,
    "vip": partial(find_vip, task="semantic"),
    "badja": partial(find_badja, davis=None),
    "reconstruction": find_reconstruction,
    "composites": find_composites,
}


def find_benchmark(name: str, root: Path, *, sequences: Sequence[str] = (), **options: Any) -> Benchmark:
    """Find a benchmark in its own folder layout; `options` are those of its protocol, such as year="2016" of davis."""
    if name not in _FINDERS:
        raise SettingsError(f"there is no benchmark {name!r}", remedy=f"choose one of {', '.join(_FINDERS)}")
    find = _FINDERS[name]
    known = [option for option in inspect.signature(find).parameters if option not in ("root", "folder", "names")]
    for option in options:
        if option not in known:
            raise SettingsError(
                f"the benchmark {name} has no option {option!r}",
                remedy=f"its options are {', '.join(known)}" if known else "leave it out: it has none",
            )
    return find(root, names=sequences, **options)
