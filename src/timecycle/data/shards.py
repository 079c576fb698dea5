"""Shards: many short clips in one tar file, as WebDataset lays them out, with an index of where each lies.

NAME.tar holds 000000.mp4, 000000.json, 000001.mp4 ... in this order; any reader of WebDataset can read it. NAME.json
beside it tells place, size and checksum of every clip, so that a clip is read without the tar's own headers, and a
damaged one is known before a decoder sees it. Equal clips give equal bytes.
"""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from timecycle.data.examine import Box, Findings
from timecycle.data.index import Entry
from timecycle.errors import DamagedError

_FORMAT = {"timecycle_shard": 1}
_BLOCK = 512  # a tar's
_NAME = re.compile(r"shard-[0-9]{6,}")
_MOST_CLIP_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class PackedClip(Findings):
    """What examining a clip told, and where it is from."""

    source: str  # the video it was cut from, below the packed folder
    start_seconds: float  # where in it


@dataclass(frozen=True, kw_only=True)
class Member:
    """Where a clip lies in its shard."""

    clip: PackedClip
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Shard:
    """A tar file and what is in it."""

    name: str  # without .tar
    size: int
    sha256: str
    members: tuple[Member, ...]

    def entries(self) -> list[Entry]:
        """Its clips as training lists them."""
        return [_entry(self.name, number, member) for number, member in enumerate(self.members)]


def shard_name(number: int) -> str:
    return f"shard-{number:06d}"


def is_shard_name(name: str) -> bool:
    """Whether `shard_name` could have given it: no path, nothing hidden."""
    return _NAME.fullmatch(name) is not None


def clip_name(number: int) -> str:
    return f"{number:06d}.mp4"


def write_shard(file: IO[bytes], name: str, clips: Sequence[tuple[PackedClip, Path]]) -> Shard:
    """Write the clips' files as a tar; the same clips give the same bytes on every machine and day."""
    members = []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (clip, path) in enumerate(clips):
            film = path.read_bytes()
            about = json.dumps(asdict(clip), sort_keys=True).encode()
            # A header of one block comes first.
            members.append(
                Member(clip=clip, offset=tar.offset + _BLOCK, size=len(film), sha256=hashlib.sha256(film).hexdigest())
            )
            for suffix, content in ((".mp4", film), (".json", about)):
                head = tarfile.TarInfo(Path(clip_name(number)).stem + suffix)
                head.size = len(content)
                head.mode = 0o644
                tar.addfile(head, io.BytesIO(content))
    size = file.tell()
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return Shard(name, size, digest.hexdigest(), tuple(members))


def shard_text(shard: Shard) -> str:
    """The index of a shard, to be kept beside it."""
    return json.dumps({**_FORMAT, **asdict(shard)}, indent=1) + "\n"


def read_shard(text: str | bytes, *, where: str) -> Shard:
    """The index of a shard; whatever does not fit together is refused, since it may come from anywhere."""
    try:
        fields = json.loads(text)
        if fields.pop("timecycle_shard", None) != _FORMAT["timecycle_shard"]:
            raise ValueError("not the index of a shard")
        members = tuple(_member(member) for member in fields.pop("members"))
        shard = Shard(members=members, **fields)
        _check(shard)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{where} is not the index of a shard: {error}", remedy="pack the videos again") from error
    return shard


def split_shard(tar: Path, shard: Shard) -> Iterator[bytes | None]:
    """The clips' bytes, in order; None for those that are not what was packed.

    Only places from the index are read. Names in the tar itself, which may point anywhere, are never looked at.
    """
    with tar.open("rb") as file:
        for member in shard.members:
            file.seek(member.offset)
            film = file.read(member.size)
            yield film if hashlib.sha256(film).hexdigest() == member.sha256 else None


def _entry(name: str, number: int, member: Member) -> Entry:
    clip = member.clip
    return Entry(
        path=f"{name}/{clip_name(number)}",
        fingerprint=member.sha256,
        frames=clip.frames,
        fps=clip.fps,
        width_px=clip.width_px,
        height_px=clip.height_px,
        box=clip.box,
        motion=clip.motion,
        source=clip.source,
    )


def packed_clip(fields: dict[str, Any]) -> PackedClip:
    """A clip from what JSON kept of it."""
    return PackedClip(box=Box(**fields.pop("box")), **fields)


def _member(fields: dict[str, Any]) -> Member:
    return Member(clip=packed_clip(fields.pop("clip")), **fields)


def _check(shard: Shard) -> None:
    if not isinstance(shard.name, str) or not is_shard_name(shard.name):
        raise ValueError(f"its name is {shard.name!r}")
    end = 0
    for number, member in enumerate(shard.members):
        if not end + _BLOCK <= member.offset or not 0 < member.size <= _MOST_CLIP_BYTES:
            raise ValueError(f"clip {number} lies at {member.offset} and is {member.size} bytes long")
        end = member.offset + member.size
        box, clip = member.clip.box, member.clip
        if not (0 <= box.left < box.right <= clip.width_px and 0 <= box.top < box.bottom <= clip.height_px):
            raise ValueError(f"the picture of clip {number} reaches beyond its frame")
        if clip.frames < 2 or not clip.fps > 0:
            raise ValueError(f"clip {number} has {clip.frames} frames at {clip.fps} a second")
    if end > shard.size:
        raise ValueError(f"its last clip ends at {end}, it itself at {shard.size}")
