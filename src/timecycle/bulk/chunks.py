"""Chunks: consecutive videos of a manifest that are labelled, leased and committed together.

Which videos are in a chunk is a pure function of the manifest and of the number of videos in a chunk. A plan remembers
where each chunk begins in the manifest, never the videos, so that a million of them need little memory.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from timecycle.bulk.manifest import Item, Manifest, Names, Row, Start, check_row, make_item
from timecycle.bulk.outputs import Outputs, parse_object
from timecycle.errors import OutputError, SettingsError

PLAN = "manifest.json"
_VERSION = "timecycle_manifest"
_DIGITS = 32  # of a checksum; a plan of a hundred million videos stays small


@dataclass(frozen=True)
class Chunk:
    """One chunk with its videos."""

    index: int
    items: tuple[Item, ...]
    lines: str  # the checksum of its lines in the manifest
    again: bool = False  # do again, in a finished chunk, what is damaged or out of date
    retry_failed: bool = False

    @property
    def name(self) -> str:
        return chunk_name(self.index)


@dataclass(frozen=True)
class Span:
    """The lines of a chunk in the manifest."""

    start: Start
    videos: int
    first: int  # number of its first line
    last: int
    lines: str


@dataclass(frozen=True)
class Plan:
    """All chunks of a manifest."""

    manifest: Manifest
    size: int  # videos in a chunk; the last one may have fewer
    spans: tuple[Span, ...]

    @property
    def videos(self) -> int:
        return sum(span.videos for span in self.spans)

    def chunk(self, index: int, *, again: bool = False, retry_failed: bool = False) -> Chunk:
        """Read the videos of a chunk."""
        rows = self._rows(index, self.spans[index].videos)
        if _checksum(rows) != self.spans[index].lines:
            raise SettingsError(f"{self.manifest.name} was changed meanwhile", remedy="run it again with one manifest")
        items = tuple(make_item(self.manifest, row, check_row(self.manifest, row)) for row in rows)
        return Chunk(index, items, self.spans[index].lines, again, retry_failed)

    def checksum(self, index: int, videos: int) -> str:
        """Compute the checksum that a chunk would have if it ended after fewer videos."""
        return _checksum(self._rows(index, videos))

    def _rows(self, index: int, videos: int) -> list[Row]:
        return list(islice(self.manifest.rows(self.spans[index].start), videos))


def chunk_name(index: int) -> str:
    """Name the files of a chunk."""
    return f"{index:06d}"


def plan_chunks(manifest: Manifest, size: int) -> Plan:
    """Validate every line of a manifest and divide it into chunks; no video is opened."""
    if size < 1:
        raise SettingsError(f"a chunk cannot have {size} videos", remedy="give 1 or more")
    names, spans, start = Names(), [], Start()
    rows: Iterator[Row] = manifest.rows()
    while taken := list(islice(rows, size)):
        for row in taken:
            names.add(check_row(manifest, row))
        spans.append(Span(start, len(taken), taken[0].number, taken[-1].number, _checksum(taken)))
        start = taken[-1].end
    names.check(manifest)
    return Plan(manifest, size, tuple(spans))


def _checksum(rows: list[Row]) -> str:
    return hashlib.sha256(b"".join(row.text + b"\n" for row in rows)).hexdigest()[:_DIGITS]


def check_plan(plan: Plan, outputs: Outputs) -> frozenset[int]:
    """Record the plan of an output, or refuse a manifest that is not the recorded one with lines appended.

    Returns the chunks that had fewer videos when the manifest was shorter: a finished one may still lack the rest.
    """
    text = outputs.read(PLAN)
    recorded = parse_object(text)
    if text and not _is_plan(recorded):
        raise OutputError(f"{outputs.location}/{PLAN} is damaged", remedy="choose another output with -o")
    grown = set(recorded["grown"] if recorded else ())
    before: list[str] = recorded["lines"] if recorded else []
    now = [span.lines for span in plan.spans]
    if recorded and before != now[: len(before)]:
        _check_prefix(plan, before, recorded["videos"], outputs.location)
        grown.add(len(before) - 1)
    if before != now:
        fields = {_VERSION: 1, "videos": plan.videos, "grown": sorted(grown), "lines": now}
        outputs.write(PLAN, json.dumps(fields) + "\n")
    return frozenset(grown)


def _check_prefix(plan: Plan, before: list[str], videos: int, location: str) -> None:
    """Refuse a manifest whose lines differ from the recorded ones, but for the last chunk, which may be longer now."""
    remedy = "append new lines at the end only, or choose another output with -o"
    for index, lines in enumerate(before):
        if index == len(plan.spans):
            raise SettingsError(f"{plan.manifest.name} has fewer lines than {location} was begun with", remedy=remedy)
        span = plan.spans[index]
        is_last = index == len(before) - 1
        count = videos - index * plan.size if is_last else plan.size
        if span.lines != lines and not (is_last and count < span.videos and plan.checksum(index, count) == lines):
            raise SettingsError(
                f"lines {span.first} to {span.last} of {plan.manifest.name} are not those {location} was begun with",
                remedy=remedy,
            )


def _is_plan(fields: Mapping[str, Any] | None) -> bool:
    return (
        fields is not None
        and fields.get(_VERSION) == 1
        and isinstance(fields.get("videos"), int)
        and _is_list_of(int, fields.get("grown"))
        and _is_list_of(str, fields.get("lines"))
        and len(fields["lines"]) > 0
    )


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)
