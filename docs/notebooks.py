"""Make notebooks of the examples: `make notebooks`, or python docs/notebooks.py [FOLDER]; it needs the extra `docs`."""

import sys
from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parents[1]
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}  # without it Jupyter asks for one


def main(folder: Path) -> list[Path]:
    """Write a notebook for every script of examples/ into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for script in sorted((ROOT / "examples").glob("*.py")):
        notebook = jupytext.read(script, fmt="py:percent")
        notebook.metadata["kernelspec"] = KERNEL
        written.append(folder / f"{script.stem}.ipynb")
        jupytext.write(notebook, written[-1], fmt="ipynb")
        print(written[-1])
    return written


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "notebooks")
