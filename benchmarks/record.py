"""Records of measurements, each with its settings, machine and commit."""

import json
from pathlib import Path
from typing import Any

from timecycle.runs.provenance import commit, machine
from timecycle.version import __version__

RESULTS = Path(__file__).parent / "results"


def write_record(name: str, *, settings: dict[str, Any], measured: dict[str, Any], seconds: float) -> Path:
    """Write benchmarks/results/NAME.json."""
    record = {
        "benchmark": name,
        "commit": commit(),
        "timecycle": __version__,
        "settings": settings,
        "measured": measured,
        "machine": machine(),
        "seconds": round(seconds, 1),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path
