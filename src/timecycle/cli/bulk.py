"""`timecycle bulk`"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.many import bulk
from timecycle.bulk.manifest import Shard
from timecycle.bulk.scheduler import ALARM_FRACTION, BulkSummary, dead_letters
from timecycle.cli.console import ExitCode, Result, err, say
from timecycle.cli.options import FormatOption, RunOptions, ScaleOption


@dataclass(frozen=True, kw_only=True)
class Bulk(RunOptions):
    """Propagate annotations through many videos, each as `timecycle propagate` would.

    The manifest videos.csv begins with the line `video,labels` and has a line for each video, as
    `clips/a.mp4,first/a.png`. Run the command again to resume it: finished videos are skipped. Several processes may
    share one output. The exit code is 1 if videos failed.

    Examples:
      timecycle bulk videos.csv -o out
      timecycle bulk videos.csv -o out --ray local              on the cores of this machine
      timecycle bulk videos.csv -o s3://bucket/out --shard 3/8  as the fourth of eight jobs
      timecycle bulk videos.csv -o s3://bucket/out --chunk 1000 one tar for each 1000 videos
    """

    manifest: Annotated[Positional[Path], arg(metavar="MANIFEST", help="a .csv file or JSON lines")]
    out: Annotated[str, arg(aliases=["-o"], metavar="OUTPUT", help="a folder, or an address as s3://BUCKET/PREFIX")]
    ray: Annotated[
        str | None, arg(metavar="local|ADDRESS", help="run on Ray: on this machine, or on a cluster's address")
    ] = None
    workers: Annotated[int | None, arg(help="with --ray: videos at once; by default as many as there are cores")] = None
    threads: Annotated[int, arg(help="with --ray: threads of each worker")] = 1
    shard: Annotated[str | None, arg(metavar="I/N", help="only the I-th of N shards, counted from 0")] = None
    chunk: Annotated[
        int | None, arg(metavar="N", help="commit N videos at a time, as one tar: for a million videos")
    ] = None
    format: FormatOption = ()
    scale: ScaleOption = None
    retry_failed: Annotated[bool, arg(help="try failed videos again")] = False
    verify: Annotated[bool, arg(help="first compare the checksums of finished videos, not only sizes")] = False

    def __call__(self) -> Result:
        summary = bulk(
            self.manifest,
            self.out,
            encoder=self.encoder,
            config=self.config(),
            confidence=self.confidence(),
            device=self.device,
            precision=self.precision,
            label_files=self.label_files,
            scale=self.scale,
            formats=self.format,
            allow_damaged=self.allow_damaged,
            ray=self.ray,
            workers=self.workers,
            threads=self.threads,
            shard=self.shard,
            chunk=self.chunk,
            retry_failed=self.retry_failed,
            verify=self.verify,
            progress=True,
        )
        letters = dead_letters(Shard.parse(self.shard) if self.shard else None)
        self._print(summary, letters)
        return {
            "output": self.out,
            "videos": summary.videos,
            "done": summary.done,
            "done_before": summary.before,
            "failed": summary.dead,
            "failures": letters if summary.dead else None,
            "frames": summary.frames,
            "mean_confidence": summary.confidence,
            "review_first": summary.least_confident,
            "exit_code": ExitCode.FAILED if summary.dead else ExitCode.DONE,
        }

    def _print(self, summary: BulkSummary, letters: str) -> None:
        before = f", {summary.before} of them before" if summary.before else ""
        say(f"{summary.done} of {summary.videos} videos are done{before} -> {self.out}")
        if summary.frames:
            say(f"{summary.frames:,} frames in {summary.seconds:.1f} s, {summary.frames_a_second:.1f} per second")
        if summary.confidence is not None:
            names = ", ".join(summary.least_confident[:3])
            say(f"mean confidence {summary.confidence:.2f}; review these first: {names}")
        if summary.dead:
            failed = "1 video" if summary.dead == 1 else f"{summary.dead} videos"
            err.print(f"{failed} failed: {self.out}/{letters} says why; --retry-failed tries them again")
        if summary.is_alarming:
            fraction = f"{summary.dead / summary.videos:.0%}"
            err.print(
                f"alarm: {fraction} of the videos failed, more than {ALARM_FRACTION:.0%}: check the manifest first"
            )
