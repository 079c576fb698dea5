"""`timecycle bulk`"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.bulk.bulk import MOST_DEAD, Engine, Here, Progress, Summary, run_bulk
from timecycle.bulk.manifest import Share, read_manifest
from timecycle.bulk.on_ray import on_ray
from timecycle.bulk.one import Work, prepare
from timecycle.cli.console import Bar, err, out, progress
from timecycle.cli.options import (
    Abstain,
    AllowDamaged,
    Device,
    Encoder,
    LabelFilesOption,
    Precision,
    Preset,
    Settings,
    Unjudged,
    encoder_from_anywhere,
    trust_of,
)
from timecycle.config import propagate_config
from timecycle.files import sha256
from timecycle.model.registry import DEFAULT_ENCODER


@dataclass(frozen=True, kw_only=True)
class Bulk:
    """Carry labels through many videos, each as `timecycle propagate` would.

    For example: timecycle bulk videos.csv -o out

    where videos.csv begins with the line video,labels and has a line for each, as clips/a.mp4,first/a.png

    on this machine's cores: timecycle bulk videos.csv -o out --ray local

    as the fourth of eight jobs: timecycle bulk videos.csv -o s3://bucket/out --shard 3/8

    Run it again after an interruption: what is done is not done again. Several may run at once on one output. The exit
    code is 1 when videos were given up.
    """

    manifest: Annotated[Positional[Path], arg(metavar="MANIFEST", help="a .csv file or JSON lines")]
    out: Annotated[str, arg(aliases=["-o"], help="a folder, or an address as s3://BUCKET/PREFIX")]
    ray: Annotated[str | None, arg(metavar="local|ADDRESS", help="on Ray: this machine, or a cluster's address")] = None
    workers: Annotated[int | None, arg(help="with --ray: videos at once; by default as many as there are cores")] = None
    threads: Annotated[int, arg(help="with --ray: threads of each worker")] = 1
    shard: Annotated[str | None, arg(metavar="I/N", help="only the I-th of N parts, counted from 0")] = None
    retry_dead: Annotated[bool, arg(help="try those again that were given up")] = False
    verify: Annotated[bool, arg(help="first compare the checksums of what is done, not only sizes")] = False
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "default"
    set: Settings = ()
    device: Device = "auto"
    precision: Precision = "fp32"
    abstain: Abstain = 0.0
    unjudged: Unjudged = False
    label_files: LabelFilesOption = "palette"
    allow_damaged: AllowDamaged = False

    def __call__(self) -> int:
        share = Share.parse(self.shard) if self.shard else None
        items = read_manifest(self.manifest, share)
        asked = Work(
            place=self.out,
            encoder=encoder_from_anywhere(self.encoder),
            config=propagate_config(self.preset, self.set),
            trust=trust_of(abstain=self.abstain, unjudged=self.unjudged),
            device=self.device,
            precision=self.precision,
            label_files=self.label_files,
            allow_damaged=self.allow_damaged,
            manifest=sha256([self.manifest]),
        )
        work = prepare(asked)
        with progress("videos") as bar, self._engine(work) as engine:
            summary = run_bulk(
                items, work, engine, share=share, retry_dead=self.retry_dead, verify=self.verify, show=_on(bar)
            )
        self._print(summary, f"dead-{share.part}-of-{share.parts}.jsonl" if share else "dead.jsonl")
        return 1 if summary.dead else 0

    def _engine(self, work: Work) -> AbstractContextManager[Engine]:
        if self.ray is None:
            return nullcontext(Here(work))
        return on_ray(self.ray, work, workers=self.workers, threads=self.threads)

    def _print(self, summary: Summary, letters: str) -> None:
        before = f", {summary.before} of them before" if summary.before else ""
        out.print(f"{summary.done} of {summary.videos} videos are done{before} -> {self.out}")
        if summary.frames:
            out.print(f"{summary.frames:,} frames in {summary.seconds:.1f} s, {summary.frames_a_second:.1f} a second")
        if summary.confidence is not None:
            names = ", ".join(summary.least_sure[:3])
            out.print(f"confidence {summary.confidence:.2f} on average; look first at {names}")
        if summary.dead:
            err.print(f"{summary.dead} videos were given up: {letters} says why; --retry-dead tries them again")
        if summary.is_alarming:
            share = f"{summary.dead / summary.videos:.0%}"
            err.print(
                f"alarm: {share} of the videos were given up, more than {MOST_DEAD:.0%}: check the manifest first"
            )


def _on(bar: Bar) -> Callable[[Progress], None]:
    def show(now: Progress) -> None:
        given_up = f" · {now.dead} given up" if now.dead else ""
        bar(now.done, now.total, f"{now.frames_a_second:.1f} frames/s{given_up}")

    return show
