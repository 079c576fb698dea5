"""The measurements of one device, and the Markdown table that shows them."""

import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from timecycle.speed.timing import Timing

Task = Literal["encode", "match", "train"]
TASKS: tuple[Task, ...] = get_args(Task)

_COLUMNS = 80  # of the table, so that it can be pasted anywhere
_MIB = 2**20
_CAPTION = (
    "Milliseconds of a frame (encode, match) or a step (train): median, and range over the repeats. "
    "Frames or clips per second. Clips are synthetic; nothing is decoded."
)


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """One measurement: seconds of a frame, or of a training step; without them, the device had too little memory."""

    task: Task
    subject: str  # the height of the frames (480p), or the training preset
    precision: str
    path: str = ""  # what searches: `kernel` or `torch`
    seconds: float | None = None  # the median of the repeats
    min_seconds: float | None = None
    max_seconds: float | None = None
    repeats: int = 0
    per_second: float | None = None  # frames, or clips
    peak_bytes: int | None = None  # of the device's memory; CUDA only

    @property
    def name(self) -> str:
        """Task, subject and path, as the table shows them."""
        return f"{self.task} {self.subject}" + (f", {self.path}" if self.path else "")


@dataclass(frozen=True, kw_only=True)
class SpeedTable:
    """How fast a device is: what was measured, and with what. It prints as Markdown."""

    device: str  # cpu, cuda or mps
    device_name: str
    processor: str
    threads: int
    torch: str
    timecycle: str
    commit: str
    kernel: str
    encoder: str
    tf32: bool  # whether convolutions in fp32 may be computed in TF32, as CUDA does by default
    peak_process_bytes: int | None  # main memory
    rows: Sequence[SpeedRow]

    def __str__(self) -> str:
        """Return the table as Markdown, at most 80 columns wide."""
        head = "\n".join(_wrapped(line) for line in self._head())
        return "\n\n".join((head, _markdown(self.rows), textwrap.fill(_CAPTION, _COLUMNS)))

    def _head(self) -> list[str]:
        processor = f"{self.processor}, {self.threads} thread{'' if self.threads == 1 else 's'}"
        if self.device == "cpu":
            device = [f"device: cpu, {processor}"]
        else:
            device = [f"device: {self.device}, {self.device_name}", f"processor: {processor}"]
        lines = [
            *device,
            f"timecycle {self.timecycle}, commit {_short(self.commit)}, torch {self.torch}",
            f"encoder: {self.encoder}; kernel: {self.kernel}",
        ]
        if self.tf32:
            lines.append("fp32 convolutions may use TF32")
        if self.peak_process_bytes is not None:
            lines.append(f"peak memory of the process: {self.peak_process_bytes / _MIB:,.0f} MiB")
        return lines


def row_of(task: Task, subject: str, precision: str, timing: Timing | None, *, items: int, path: str = "") -> SpeedRow:
    """Make the row of a timing; `items` are the frames or clips of one repeat. None is too little memory."""
    if timing is None:
        return SpeedRow(task=task, subject=subject, precision=precision, path=path)
    median = statistics.median(timing.seconds)
    return SpeedRow(
        task=task,
        subject=subject,
        precision=precision,
        path=path,
        seconds=median,
        min_seconds=min(timing.seconds),
        max_seconds=max(timing.seconds),
        repeats=len(timing.seconds),
        per_second=items / median,
        peak_bytes=timing.peak_bytes,
    )


def _markdown(rows: Sequence[SpeedRow]) -> str:
    has_peak = any(row.peak_bytes is not None for row in rows)
    table = [["", "precision", "ms", "range", "per s", "MiB"], *(_cells(row) for row in rows)]
    table = [cells if has_peak else cells[:-1] for cells in table]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = [_line([_aligned(cell, widths, i) for i, cell in enumerate(cells)]) for cells in table]
    rule = _line(["-" * width if i < 2 else "-" * (width - 1) + ":" for i, width in enumerate(widths)])
    return "\n".join([lines[0], rule, *lines[1:]])


def _cells(row: SpeedRow) -> list[str]:
    if row.seconds is None or row.min_seconds is None or row.max_seconds is None or row.per_second is None:
        return [row.name, row.precision, "-", "no memory", "-", "-"]
    ends = [_digits(1000 * seconds) for seconds in (row.min_seconds, row.max_seconds)]
    peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / _MIB:,.0f}"
    return [row.name, row.precision, _digits(1000 * row.seconds), " to ".join(ends), _digits(row.per_second), peak]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _aligned(cell: str, widths: Sequence[int], i: int) -> str:
    return cell.ljust(widths[i]) if i < 2 else cell.rjust(widths[i])


def _digits(value: float) -> str:
    """Write a number with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _short(commit: str) -> str:
    """Shorten the hash of a commit, and keep what follows it."""
    first, *rest = commit.split(" ", 1)
    return " ".join([first[:12], *rest])


def _wrapped(line: str) -> str:
    return textwrap.fill(line, _COLUMNS, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
