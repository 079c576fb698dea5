"""Show that an installed timecycle works on this machine: doctor finds no fault, and the demo writes its labels.

    python .ci/smoke.py [--kernel | --no-kernel]

With --kernel the compiled kernel must be used, with --no-kernel it must be missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    arguments = argparse.ArgumentParser(description="Show that an installed timecycle works on this machine.")
    arguments.add_argument("--kernel", action=argparse.BooleanOptionalAction)
    expected = arguments.parse_args().kernel
    with tempfile.TemporaryDirectory() as folder:  # away from the checkout, whose src must not be imported
        home = Path(folder)
        print(where := timecycle("-c", "import timecycle; print(timecycle.__file__)", folder=home))
        report = timecycle("-m", "timecycle", "doctor", folder=home)
        print(report)
        if expected is not None and ("compiled kernel (" in report) != expected:
            sys.exit(f"smoke: the kernel should be {'used' if expected else 'missing'} in {where.strip()}")
        timecycle("-m", "timecycle", "demo", "-o", str(home / "demo"), folder=home)
        labels = sorted((home / "demo").rglob("labels/*.png"))
        if not labels:
            sys.exit("smoke: the demo wrote no labels")
        print(f"smoke: the demo wrote {len(labels)} label images")


def timecycle(*words: str, folder: Path) -> str:
    """Run Python in a folder and return what it printed; end with its errors if it fails."""
    environment = {**os.environ, "PYTHONUTF8": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode != 0:
        sys.exit(f"smoke: {' '.join(words)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
