"""`timecycle pack`"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import board, err, out
from timecycle.cores import usable_cores
from timecycle.data.pack import MOST_CORRUPT, PACK, Counts, PackConfig, check_pack, pack
from timecycle.data.transcode import ClipForm
from timecycle.errors import StoreError
from timecycle.files import user_cache
from timecycle.store import is_address, open_store

_FORM, _PACK = ClipForm(), PackConfig()


@dataclass(frozen=True, kw_only=True)
class PackVideos:
    """Turn a folder of videos into shards, once, for training from a disk or an object store.

    For example: timecycle pack videos/ s3://bucket/corpus

    then: timecycle train s3://bucket/corpus -o run

    Run it again after an interruption, or when there are new videos: what is packed is not packed again. The exit code
    is 1 when most of the videos could not be read.
    """

    videos: Annotated[Positional[Path], arg(metavar="VIDEOS", help="a folder of videos, searched through and through")]
    place: Annotated[Positional[str], arg(metavar="PLACE", help="a folder, or an address as s3://BUCKET/PREFIX")]
    short_side: Annotated[int, arg(help="of the clips, in pixels")] = _FORM.short_side_px
    fps: Annotated[float, arg(help="frames a second of the clips")] = _FORM.fps
    shard_mb: Annotated[float, arg(help="size of a shard in megabytes")] = _PACK.shard_mb
    work: Annotated[
        Path | None, arg(help="a local folder for unfinished work; by default inside PLACE, or in the user's cache")
    ] = None
    workers: Annotated[int, arg(help="processes that cut videos")] = field(default_factory=usable_cores)
    check: Annotated[bool, arg(help="read every shard back at the end and compare its checksum")] = False

    def __call__(self) -> int:
        store = open_store(self.place)
        config = PackConfig(form=ClipForm(short_side_px=self.short_side, fps=self.fps), shard_mb=self.shard_mb)
        with board() as bar:
            done = pack(
                self.videos,
                store,
                self.work or _work_folder(self.place),
                config,
                workers=self.workers,
                progress=bar("packing"),
            )
            problems = check_pack(store, bar("checking")) if self.check else []
        if problems:
            raise StoreError(
                f"{len(problems)} shards differ from what was packed, the first: {problems[0]}",
                remedy="delete them and pack again",
            )
        out.print(_told(done.counts))
        size = sum(shard.size for shard in done.shards)
        checked = ", all as they were packed" if self.check else ""
        out.print(f"{store.name}: {len(done.shards)} shards, {size / 1e6:,.1f} MB{checked}; {PACK} lists them")
        if not done.counts.is_alarming:
            return 0
        share = f"{done.counts.corrupt / done.counts.videos:.0%}"
        err.print(f"alarm: {share} of the videos cannot be read, more than {MOST_CORRUPT:.0%}: sources.jsonl says why")
        return 1


def _work_folder(place: str) -> Path:
    """Beside the shards if they are on a disk; otherwise where caches are kept, by the address."""
    return user_cache("pack", place.rstrip("/")) if is_address(place) else Path(place) / ".pack"


def _told(counts: Counts) -> str:
    left_out = {
        "still": counts.still,
        "too short": counts.short,
        "seen before": counts.duplicate,
    }
    said = ", ".join(f"{number} {why}" for why, number in left_out.items())
    corrupt = f", {counts.corrupt} of them not readable" if counts.corrupt else ""
    return (
        f"{counts.videos:,} videos ({counts.seconds / 3600:,.2f} hours{corrupt}): {counts.clips:,} clips; "
        f"left out: {said}"
    )
