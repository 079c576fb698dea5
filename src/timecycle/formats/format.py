"""What a format is: its functions, and what users are told about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timecycle.errors import LabelError
from timecycle.formats.video_labels import VideoFacts, VideoLabels

Read = Callable[[Path, VideoFacts], VideoLabels]
Write = Callable[[VideoLabels, Path], None]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of label files.

    recognises: returns whether a file or folder is of this format, from its beginning at most.
    loses: what the format cannot hold, for the docs; nothing where it is empty.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]  # of its files; none for a folder
    kinds: tuple[str, ...]
    loses: str
    read: Read | None
    write: Write | None
    recognises: Callable[[Path], bool] = lambda _: False
    extra: str | None = None  # optional dependencies that it needs
    module: str | None = None  # that they bring
    modules_by_suffix: Mapping[str, str] = field(default_factory=dict)  # for files that need others than the first

    @property
    def is_folder(self) -> bool:
        return not self.suffixes

    def check_kind(self, labels: VideoLabels) -> None:
        """Refuse labels of a kind that the format cannot hold."""
        if labels.kind.kind not in self.kinds:
            raise LabelError(
                f"{self.title} cannot hold {labels.kind.kind}, only {' and '.join(self.kinds)}",
                remedy="choose another format: `timecycle convert --help` lists them",
            )
