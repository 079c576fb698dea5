"""`timecycle pack`"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.learning import pack
from timecycle.cli.console import ExitCode, Result, err, say
from timecycle.concurrency import usable_cores
from timecycle.data.packing.pack import MAX_CORRUPT, PACK, Counts, PackConfig
from timecycle.data.packing.transcode import ClipFormat
from timecycle.store import open_store

_DEFAULTS = PackConfig()


@dataclass(frozen=True, kw_only=True)
class PackVideos:
    """Pack a folder of videos into shards, for training from a disk or an object store.

    For example: timecycle pack videos/ s3://bucket/corpus

    then: timecycle train s3://bucket/corpus -o run

    Run it again to resume, or to add new videos: packed videos are not packed again. The exit code is 1 when most of
    the videos could not be read.
    """

    videos: Annotated[Positional[Path], arg(metavar="VIDEOS", help="a folder of videos, searched recursively")]
    destination: Annotated[
        Positional[str], arg(metavar="DESTINATION", help="a folder, or a URL such as s3://BUCKET/PREFIX")
    ]
    short_side: Annotated[int, arg(help="short side of the clips in pixels")] = _DEFAULTS.clips.short_side_px
    fps: Annotated[float, arg(help="frames per second of the clips")] = _DEFAULTS.clips.fps
    shard_mb: Annotated[float, arg(help="size of a shard in megabytes")] = _DEFAULTS.shard_mb
    work: Annotated[
        Path | None,
        arg(help="a local folder for unfinished work; by default inside DESTINATION, or in the user's cache"),
    ] = None
    workers: Annotated[int, arg(help="number of processes that cut videos")] = field(default_factory=usable_cores)
    check: Annotated[bool, arg(help="read every shard back at the end and compare its checksum")] = False

    def __call__(self) -> Result:
        config = PackConfig(clips=ClipFormat(short_side_px=self.short_side, fps=self.fps), shard_mb=self.shard_mb)
        done = pack(
            self.videos,
            self.destination,
            config=config,
            work=self.work,
            workers=self.workers,
            check=self.check,
            progress=True,
        )
        name, counts = open_store(self.destination).name, done.counts
        say(_summary(counts))
        size = sum(shard.size for shard in done.shards)
        checked = ", all verified" if self.check else ""
        say(f"{name}: {len(done.shards)} shard{'' if len(done.shards) == 1 else 's'}, {size / 1e6:,.1f} MB{checked}; {PACK} lists them")
        if counts.is_alarming:
            share = f"{counts.corrupt / counts.videos:.0%}"
            err.print(
                f"alarm: {share} of the videos cannot be read, more than {MAX_CORRUPT:.0%}: sources.jsonl says why"
            )
        return {
            "destination": name,
            "videos": counts.videos,
            "unreadable_videos": counts.corrupt,
            "video_seconds": counts.seconds,
            "clips": counts.clips,
            "left_out_clips": {"static": counts.static, "short": counts.short, "duplicate": counts.duplicate},
            "shards": len(done.shards),
            "bytes": size,
            "verified": self.check,
            "exit_code": ExitCode.FAILED if counts.is_alarming else ExitCode.DONE,
        }


def _summary(counts: Counts) -> str:
    left_out = f"{counts.static} static, {counts.short} too short, {counts.duplicate} duplicate"
    corrupt = f", {counts.corrupt} of them unreadable" if counts.corrupt else ""
    return (
        f"{counts.videos:,} videos ({counts.seconds / 3600:,.2f} hours{corrupt}): {counts.clips:,} clips; "
        f"left out: {left_out}"
    )
