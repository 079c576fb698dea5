"""Tell TIFF stacks, which are videos, from TIFF files of one image by their first bytes, without a library."""

from pathlib import Path

TIFF_SUFFIXES = (".tif", ".tiff")


def is_stack(path: Path) -> bool:
    """Return whether a file is a TIFF of more than one image; False for damaged ones, which readers explain better."""
    if path.suffix.lower() not in TIFF_SUFFIXES:
        return False
    try:
        with path.open("rb") as file:
            order = {b"II": "little", b"MM": "big"}.get(file.read(2))
            if order not in ("little", "big"):
                return False

            def number(length: int) -> int:
                return int.from_bytes(file.read(length), "little" if order == "little" else "big")

            big = number(2) == 43
            file.seek(8 if big else 4)
            file.seek(number(8 if big else 4))
            entries = number(8 if big else 2)
            entry_bytes = 20 if big else 12
            start = file.tell()
            file.seek(start + entries * entry_bytes)
            if number(8 if big else 4):
                return True
            # ImageJ may write one directory for all images of a stack, and their number in the description.
            file.seek(0)
            head = file.read(1 << 16)
            return b"ImageJ=" in head and b"images=" in head and b"images=1\n" not in head
    except (OSError, OverflowError):
        return False
