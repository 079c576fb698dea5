"""The loop over many videos: what is done stays done, what fails is tried again or set aside with its reason.

Several such loops may share one output: each video has one owner at a time, and a loop ends when all of its videos are
done or given up, by whomever.
"""

import json
import logging
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, runtime_checkable

from timecycle.bulk.fingerprints import inputs_of
from timecycle.bulk.manifest import Item, Share
from timecycle.bulk.one import Already, Busy, Record, Refused, Stopped, Work, label_one, outdated
from timecycle.bulk.outputs import DEAD, Outputs
from timecycle.errors import ShortageError

log = logging.getLogger("timecycle")

MOST_DEAD = 0.5  # a larger share of videos given up is an alarm: rather the manifest or a disk than the videos
_LOWEST_SHOWN = 10
_TRIES = 3
_PAUSE_SECONDS = 1.0  # before asking again for videos that other processes are doing
_READERS = 8


@dataclass(frozen=True)
class Crashed:
    """A try that ended without an answer: its process was killed, or its machine was lost."""

    problem: str
    is_short: bool = False  # for want of memory, which is not the video's fault


Outcome = Record | Already | Refused | Busy | Stopped | Crashed


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
    inputs: str = ""  # the video's mark: when it changes, the video is tried again


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
    manifest: str  # its checksum

    @property
    def is_alarming(self) -> bool:
        """Whether most of the videos were given up."""
        return self.dead > MOST_DEAD * self.videos


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
    verify: bool = False,
    show: Callable[[Progress], None] | None = None,
) -> Summary:
    """Do what is not done yet. Killed at any moment, the next run goes on from what was committed.

    `verify` compares the checksums of what is done, not only sizes. ShortageError, and whatever else no video is to
    blame for, ends the run; what is done stays done.
    """
    outputs = Outputs(work.place)
    outputs.claim(work.settings())
    done = _believed(items, work, outputs, verify=verify)
    dead = {} if retry_dead else _given_up(items, outputs)
    before = len(done)
    dead = {name: letter for name, letter in dead.items() if name not in done}
    waiting = [item for item in items if item.name not in done and item.name not in dead]
    outputs.refuse_strangers(item.name for item in waiting)
    part = f"-{share.part}-of-{share.parts}" if share else ""
    loop = _Loop(waiting, done, dead, outputs, engine)
    began = time.monotonic()
    for _ in loop.outcomes():
        if show is not None:
            show(Progress(len(done), len(items), len(dead), loop.frames / (time.monotonic() - began)))
    seconds = time.monotonic() - began
    summary = _summary(items, done, before, dead, loop.frames, seconds, work.manifest)
    outputs.write(f"summary{part}.json", json.dumps(asdict(summary), indent=2) + "\n")
    letters = (json.dumps(asdict(dead[item.name])) + "\n" for item in items if item.name in dead)
    outputs.write(f"dead{part}.jsonl", "".join(letters))
    outputs.tidy()
    return summary


class _Loop:
    """Gives videos to an engine until all are done or given up."""

    def __init__(
        self,
        waiting: Sequence[Item],
        done: dict[str, dict[str, Any]],
        dead: dict[str, DeadLetter],
        outputs: Outputs,
        engine: Engine,
    ) -> None:
        self.frames = 0  # by this run
        self._waiting, self._busy = deque(waiting), deque[Item]()
        self._done, self._dead, self._outputs, self._engine = done, dead, outputs, engine
        self._tries: Counter[str] = Counter()
        self._running = 0
        self._ask_again = 0.0  # when to ask for the busy ones
        self._holder = self._told = ""  # who has the last of them, and what was said of it

    def outcomes(self) -> Iterator[None]:
        """Do one after the other, with a turn for the caller after each."""
        while self._waiting or self._busy or self._running:
            self._begin()
            if self._running == 0:  # all that is left is in the hands of others
                self._say_who()
                time.sleep(max(0.0, self._ask_again - time.monotonic()))
                continue
            item, outcome = self._engine.next()
            self._running -= 1
            self._take(item, outcome)
            yield

    def _begin(self) -> None:
        if self._busy and time.monotonic() >= self._ask_again:
            self._waiting.extend(self._busy)
            self._busy.clear()
        while self._waiting and self._engine.room > 0:
            self._engine.begin(self._waiting.popleft())
            self._running += 1

    def _take(self, item: Item, outcome: Outcome) -> None:
        if isinstance(outcome, Stopped):
            raise outcome.error
        if isinstance(outcome, Busy):
            if not self._busy:
                self._ask_again = time.monotonic() + _PAUSE_SECONDS
            self._busy.append(item)
            self._holder = outcome.problem
            return
        self._tries[item.name] += 1
        if isinstance(outcome, Already):
            self._done[item.name] = outcome.record
        elif isinstance(outcome, Record):
            self._done[item.name] = asdict(outcome)
            self.frames += outcome.frames
        elif isinstance(outcome, Crashed) and self._tries[item.name] < _TRIES:
            self._waiting.append(item)
        elif isinstance(outcome, Crashed) and outcome.is_short:
            raise ShortageError(
                f"memory is short while {item.name} was labelled: {outcome.problem}",
                remedy="use fewer workers, then run it again: what is done is kept",
            )
        else:
            self._give_up(item, outcome.problem)

    def _say_who(self) -> None:
        if self._holder != self._told:
            log.warning("%d videos are left to other processes: %s; waiting", len(self._busy), self._holder)
            self._told = self._holder

    def _give_up(self, item: Item, problem: str) -> None:
        letter = DeadLetter(
            name=item.name,
            video=item.video,
            tries=self._tries[item.name],
            problem=problem,
            inputs=_inputs(item),
        )
        self._dead[item.name] = letter
        # A file for each: processes that share the output must not replace each other's list.
        self._outputs.write(f"{DEAD}/{item.name}.json", json.dumps(asdict(letter)) + "\n")


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


def _believed(items: Sequence[Item], work: Work, outputs: Outputs, *, verify: bool) -> dict[str, dict[str, Any]]:
    """The records of what is done, is still there, and was made of the same video, labels and settings."""
    records, listing = outputs.records(), outputs.listing()

    def doubt(item: Item) -> str:
        record = records[item.name]
        return outputs.difference(record, checksums=verify, listing=listing) or outdated(item, record, work)

    known = [item for item in items if item.name in records]
    believed = {}
    with ThreadPoolExecutor(_READERS) as pool:
        for item, reason in zip(known, pool.map(doubt, known), strict=True):
            if reason:
                log.warning("%s is done again: %s", item.name, reason)
            else:
                believed[item.name] = {name: value for name, value in records[item.name].items() if name != "files"}
    return believed


def _given_up(items: Sequence[Item], outputs: Outputs) -> dict[str, DeadLetter]:
    """What was given up before and has not changed since."""
    names = {field.name for field in fields(DeadLetter)}
    letters = {name: found for name, found in outputs.records(DEAD).items() if set(found) == names}
    return {
        item.name: DeadLetter(**letters[item.name])
        for item in items
        if item.name in letters and letters[item.name]["inputs"] == _inputs(item)
    }


def _inputs(item: Item) -> str:
    """What changes when the video or its labels do."""
    inputs = inputs_of(item)
    return f"{inputs.video} {inputs.labels}"


def _summary(
    items: Sequence[Item],
    done: dict[str, dict[str, Any]],
    before: int,
    dead: dict[str, DeadLetter],
    frames: int,
    seconds: float,
    manifest: str,
) -> Summary:
    records = [done[item.name] for item in items if item.name in done]
    sure = {record["name"]: record["confidence"] for record in records if record["confidence"] is not None}
    return Summary(
        videos=len(items),
        done=len(records),
        before=before,
        dead=len(dead),
        frames=frames,
        seconds=round(seconds, 3),
        frames_a_second=round(frames / seconds, 3) if seconds else 0.0,
        confidence=round(statistics.fmean(sure.values()), 4) if sure else None,
        least_sure=tuple(sorted(sure, key=lambda name: sure[name])[:_LOWEST_SHOWN]),
        manifest=manifest,
    )
