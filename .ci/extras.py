"""Show that each extra of pyproject.toml can be installed by itself, with the pinned versions, and brings no torch.

Nothing is installed: pip resolves each extra beside what is there and reports what it would add.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOREIGN = ("nvidia-", "torch", "triton", "functorch")  # beginnings of names that belong to another torch


def main() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    with ThreadPoolExecutor(2) as pool:  # most of the time goes into waiting for the package index
        installable = dict(zip(extras, pool.map(can_be_installed, *zip(*extras.items(), strict=True)), strict=True))
    failed = [name for name, is_installable in installable.items() if not is_installable]
    if failed:
        sys.exit(f"these extras cannot be installed as they should: {', '.join(failed)}")


def can_be_installed(name: str, asked: list[str]) -> bool:
    """Resolve an extra and say what it would add."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["install", "--quiet", "--dry-run", "--no-compile", "--report", str(report), "-c", "constraints.txt"]
        command = [sys.executable, "-m", "pip", *words, *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{name}: cannot be resolved\n{done.stderr[-2000:]}")
            return False
        added = sorted(one["metadata"]["name"].lower() for one in json.loads(report.read_text())["install"])
    foreign = [one for one in added if one.startswith(FOREIGN)]
    print(f"{name}: {f'would add {len(added)}' if added else 'all there'}{_told(foreign)}")
    return not foreign


def _told(foreign: list[str]) -> str:
    return f", among them {', '.join(foreign)}" if foreign else ""


if __name__ == "__main__":
    main()
