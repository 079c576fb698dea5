"""What folders hold, to compare them."""

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
