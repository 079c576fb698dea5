"""What each format keeps of labels, found out by writing and reading them; docs/formats.md has the table.

Run it to write the table: PYTHONPATH=src:tests/shared python tests/shared/format_table.py
"""

import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from label_samples import SAMPLES
from timecycle.formats.format import Format
from timecycle.formats.registry import FORMATS, read_file, write_file
from timecycle.formats.video_labels import VideoFacts, VideoLabels

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
_COLUMNS = ("labels", "empty frames", "names", "confidence", "states", "size", "frames", "rate")
_START, _END = "<!-- table: start -->\n", "<!-- table: end -->\n"


def missing_extra(one: Format) -> str | None:
    """Return the module that a format needs here and that is not installed."""
    return one.module if one.module and find_spec(one.module) is None else None


def round_trip(labels: VideoLabels, one: Format, folder: Path, *, with_video: bool = True) -> VideoLabels:
    """Write labels and read them again, with what is known of their video."""
    path = folder / f"labels{one.suffixes[0] if one.suffixes else ''}"
    write_file(labels, path, name=one.name)
    # As little as possible: the size and the numbers of the frames alone, which some formats need.
    video = VideoFacts(name="clip.mp4", size=labels.video.size) if with_video else None
    return read_file(path, video, name=one.name) if video is None else one.read(path, video)


def same_masks(before: VideoLabels, after: VideoLabels) -> str:
    """Describe how masks differ: exact, or the lowest IoU of an object on any frame."""
    lowest = 1.0
    for index, one in before.labels.items():
        a = one.ids
        b = after.labels[index].ids if index in after.labels else np.zeros_like(a)
        for identity in np.unique(a[a > 0]):
            union = ((a == identity) | (b == identity)).sum()
            lowest = min(lowest, ((a == identity) & (b == identity)).sum() / union)
        if np.setdiff1d(b, a).size:
            lowest = 0.0
    return "exact" if lowest == 1 else f"IoU {lowest:.2f}"


def same_points(before: VideoLabels, after: VideoLabels) -> str:
    """Describe how points differ: in positions, and in which of them are visible or have a position."""
    farthest, hidden, guessed = 0.0, True, True
    for index, one in before.labels.items():
        other = after.labels.get(index)
        for i, name in enumerate(one.names):
            if other is None or name not in other.names:
                hidden &= not one.visible[i]
                guessed &= not np.isfinite(one.xy[i]).all()
                continue
            j = other.names.index(name)
            hidden &= bool(one.visible[i]) == bool(other.visible[j])
            if np.isfinite(one.xy[i]).all():
                if np.isfinite(other.xy[j]).all():
                    farthest = max(farthest, float(np.abs(one.xy[i] - other.xy[j]).max()))
                else:
                    guessed = False
    what = "exact" if farthest == 0 else f"within {max(farthest, 0.0005):.3f} px"
    return what + ("" if hidden else ", visibility lost") + ("" if guessed else ", no position of hidden points")


def kept_confidence(before: VideoLabels, after: VideoLabels) -> bool:
    if before.kind.kind == "keypoints":
        return all(
            index in after.labels
            and after.labels[index].confidence is not None
            and all(
                name not in after.labels[index].names
                or np.isclose(after.labels[index].confidence[after.labels[index].names.index(name)], c, atol=1e-3)
                for name, c, seen in zip(one.names, one.confidence, one.visible, strict=True)
                if seen
            )
            for index, one in before.labels.items()
        )
    return all(
        name in after.known.get(index, {})
        and after.known[index][name].confidence is not None
        and abs(after.known[index][name].confidence - known.confidence) < 1e-3
        for index, objects in before.known.items()
        for name, known in objects.items()
    )


def kept_states(before: VideoLabels, after: VideoLabels) -> bool:
    occluded = [
        (index, name) for index, of in before.known.items() for name, known in of.items() if known.state == "occluded"
    ]
    return bool(occluded) and all(
        after.known.get(index, {}).get(name) and after.known[index][name].state == "occluded"
        for index, name in occluded
    )


def row(one: Format, kind: str, folder: Path) -> list[str]:
    """Return what a format keeps of one kind of labels."""
    before = SAMPLES[kind]()
    after = round_trip(before, one, folder)
    points = kind == "keypoints"
    return [
        (same_points if points else same_masks)(before, after),
        "" if points else "yes" if 3 in after.labels else "no",
        "" if points else "yes" if dict(after.names) == dict(before.names) else "no",
        "yes" if kept_confidence(before, after) else "no",
        "" if points else "yes" if kept_states(before, after) else "no",
        "yes" if after.video.size == before.video.size else "no",
        "yes" if after.video.frames == before.video.frames else "no",
        "yes" if after.video.fps and abs(after.video.fps / before.video.fps - 1) < 1e-3 else "no",
    ]


def table() -> str:
    """Return the table of all formats."""
    lines = [
        f"| name | format | files | extra | read, write | kind | {' | '.join(_COLUMNS)} |",
        "|---" * (6 + len(_COLUMNS)) + "|",
    ]
    for one in FORMATS.values():
        files = ", ".join(f"`{suffix}`" for suffix in one.suffixes) or "folder"
        can = " and ".join(name for name, verb in (("read", one.read), ("write", one.write)) if verb)
        extra = f"`{one.extra}`" if one.extra else ""
        if one.module is None and one.modules_by_suffix:
            extra += f", for {', '.join(f'`{suffix}`' for suffix in one.modules_by_suffix)}"
        head = f"| `{one.name}` | {one.title} | {files} | {extra} | {can} |"
        for kind in (kind for kind in one.kinds if kind in SAMPLES):
            cells = [""] * len(_COLUMNS)
            if one.read and one.write:
                with tempfile.TemporaryDirectory() as folder:
                    cells = row(one, kind, Path(folder))
            lines.append(f"{head} {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def losses() -> str:
    return "".join(f"- `{one.name}`: {one.loses}.\n" for one in FORMATS.values())


def replaced(page: str) -> str:
    """Return the page with the table as it is now."""
    block = f"{_START}{table()}\nWhat they cannot hold:\n\n{losses()}{_END}"
    return re.sub(f"{_START}.*{_END}", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
