"""The loop over many videos: what is done stays done, what fails is tried again or set aside with its reason."""

import json
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from timecycle.bulk.manifest import Item, Share
from timecycle.bulk.one import Record, Refused, Work, label_one
from timecycle.bulk.outputs import Outputs

_LOWEST_SHOWN = 10
_TRIES = 3


@dataclass(frozen=True)
class Crashed:
    """A try that ended without an answer: its process was killed, or its machine was lost."""

    problem: str


Outcome = Record | Refused | Crashed


@runtime_checkable
class Engine(Protocol):
    """Does videos, several at a time."""

    @property
    def room(self) -> int:
        """How many more it should be given now."""

    def begin(self, item: Item) -> None:
        """Give it one."""

    def next(self) -> tuple[Item, Outcome]:
        """Wait for one of those it was given."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A video that was given up."""

    name: str
    video: str
    tries: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run has done, and where to look first."""

    videos: int  # of the manifest, or of the share
    done: int
    before: int  # of these, by runs before this one
    dead: int
    frames: int  # by this run
    seconds: float
    frames_a_second: float
    confidence: float | None  # the mean over videos
    least_sure: tuple[str, ...]  # the names of videos, the least sure first


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    done: int
    total: int
    dead: int
    frames_a_second: float


def run_bulk(
    items: Sequence[Item],
    work: Work,
    engine: Engine,
    *,
    share: Share | None = None,
    retry_dead: bool = False,
    show: Callable[[Progress], None] | None = None,
) -> Summary:
    """Do what is not done yet. Killed at any moment, the next run goes on from what was committed."""
    outputs = Outputs(work.place)
    done = outputs.done()
    part = f"-{share.part}-of-{share.parts}" if share else ""
    dead_name = f"dead{part}.jsonl"
    dead = [] if retry_dead else [letter for letter in _read_dead(outputs, dead_name) if letter.name not in done]
    before = {item.name for item in items} & set(done)
    settled = before | {letter.name for letter in dead}
    waiting = deque(item for item in items if item.name not in settled)
    tries: Counter[str] = Counter()
    here = len(before)  # done, of these items
    frames, began, running = 0, time.monotonic(), 0
    while waiting or running:
        while waiting and engine.room > 0:
            item = waiting.popleft()
            tries[item.name] += 1
            engine.begin(item)
            running += 1
        item, outcome = engine.next()
        running -= 1
        if isinstance(outcome, Record):
            done[item.name] = asdict(outcome)
            here += 1
            frames += outcome.frames
        elif isinstance(outcome, Crashed) and tries[item.name] < _TRIES:
            waiting.append(item)
        else:
            letter = DeadLetter(name=item.name, video=item.video, tries=tries[item.name], problem=outcome.problem)
            dead.append(letter)
            outputs.write(dead_name, "".join(json.dumps(asdict(one)) + "\n" for one in dead))
        if show is not None:
            show(Progress(here, len(items), len(dead), frames / (time.monotonic() - began)))
    seconds = time.monotonic() - began
    summary = _summary(items, done, len(before), len(dead), frames, seconds)
    outputs.write(f"summary{part}.json", json.dumps(asdict(summary), indent=2) + "\n")
    if not dead:
        outputs.write(dead_name, "")
    return summary


class Here:
    """An engine that does one video after the other, in this process."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._given: list[Item] = []

    @property
    def room(self) -> int:
        return 1 - len(self._given)

    def begin(self, item: Item) -> None:
        self._given.append(item)

    def next(self) -> tuple[Item, Outcome]:
        item = self._given.pop()
        try:
            return item, label_one(item, self._work)
        except Exception as error:  # one video must not end the others
            return item, Crashed(f"{type(error).__name__}: {error}")


def _read_dead(outputs: Outputs, name: str) -> list[DeadLetter]:
    text = outputs.read(name)
    return [DeadLetter(**json.loads(line)) for line in text.splitlines()] if text else []


def _summary(
    items: Sequence[Item], done: dict[str, dict[str, Any]], before: int, dead: int, frames: int, seconds: float
) -> Summary:
    records = [done[item.name] for item in items if item.name in done]
    sure = {record["name"]: record["confidence"] for record in records if record["confidence"] is not None}
    return Summary(
        videos=len(items),
        done=len(records),
        before=before,
        dead=dead,
        frames=frames,
        seconds=round(seconds, 3),
        frames_a_second=round(frames / seconds, 3) if seconds else 0.0,
        confidence=round(statistics.fmean(sure.values()), 4) if sure else None,
        least_sure=tuple(sorted(sure, key=lambda name: sure[name])[:_LOWEST_SHOWN]),
    )
