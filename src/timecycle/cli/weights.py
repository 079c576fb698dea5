"""`timecycle weights`: what comes with the package, what a file is, and other programs' checkpoints converted."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg, subcommand

from timecycle.cli.console import out
from timecycle.errors import OutputError, WeightsError
from timecycle.files import sha256
from timecycle.model.checkpoints import read_checkpoint
from timecycle.model.shipped import find_shipped, shipped, verify_weights
from timecycle.model.weights import Card, read_card, save_weights

Name = Annotated[Positional[str], arg(metavar="WEIGHTS", help="a name that `weights list` gives, or a file")]


@dataclass(frozen=True, kw_only=True)
class List:
    """The weights that come with the package."""

    def __call__(self) -> None:
        for weights in shipped():
            card = read_card(weights.path)
            size_mb = weights.path.stat().st_size / 1e6
            out.print(f"{weights.name}  {size_mb:.1f} MB  {card.trained_on if card else ''}")


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Is a file of weights whole? By default all that come with the package are examined."""

    weights: Annotated[Positional[tuple[str, ...]], arg(metavar="WEIGHTS ...", help="names or files")] = ()

    def __call__(self) -> None:
        paths = [_find(weights) for weights in self.weights] or [weights.path for weights in shipped()]
        for path in paths:
            out.print(f"ok  {path.name}  sha256 {verify_weights(path)}")


@dataclass(frozen=True, kw_only=True)
class Show:
    """The card of a file of weights: what it is, what it learned from, on what terms, and its scores."""

    weights: Name

    def __call__(self) -> None:
        path = _find(self.weights)
        if not path.is_file():
            raise WeightsError(
                f"there is no file of weights {path}",
                remedy="give a .safetensors file (RUN/weights.safetensors) or a name of `timecycle weights list`",
            )
        card = read_card(path)
        if card is None:
            raise WeightsError(f"{path} has no card", remedy=f"put one beside it: {path.with_suffix('.json')}")
        out.print(_text(path, card))


@dataclass(frozen=True, kw_only=True)
class Convert:
    """The encoder in another program's checkpoint, as safetensors with a card. Nothing in the checkpoint is run.

    For example: timecycle weights convert checkpoint_14.pth.tar -o timecycle2019.safetensors

    Read are the original TimeCycle, videowalk, MoCo, DINO, and any ResNet-18 or -50 with torchvision's names.
    """

    checkpoint: Annotated[Positional[Path], arg(metavar="CHECKPOINT", help="a file that torch.save wrote")]
    out: Annotated[Path | None, arg(aliases=["-o"], help="the file to write; by default beside the checkpoint")] = None
    trained_on: Annotated[str, arg(help="for the card")] = "unknown: ask where the checkpoint came from"
    licence: Annotated[str, arg(aliases=["--license"], help="for the card")] = (
        "unknown: ask where the checkpoint came from"
    )
    overwrite: Annotated[bool, arg(help="replace a file that is there already")] = False

    def __call__(self) -> None:
        target = self.out or self.checkpoint.with_name(self.checkpoint.name.partition(".")[0])
        target = target.with_name(target.name.removesuffix(".safetensors") + ".safetensors")
        if target.exists() and not self.overwrite:
            raise OutputError(f"{target} is there already", remedy="choose another with -o, or pass --overwrite")
        foreign = read_checkpoint(self.checkpoint)
        card = Card(
            encoder=foreign.model.config,
            trained_on=self.trained_on,
            licence=self.licence,
            source={
                "file": self.checkpoint.name,
                "sha256": sha256([self.checkpoint]),
                "layout": foreign.layout.words,
            },
        )
        save_weights(target, foreign.model, card)
        out.print(f"{foreign.layout.words}: {foreign.model.config.architecture}\nuse it with --encoder {target}")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What comes with the package, what a file of weights is, and other programs' checkpoints converted."""

    verb: (
        Annotated[List, subcommand("list")]
        | Annotated[Verify, subcommand("verify")]
        | Annotated[Show, subcommand("show")]
        | Annotated[Convert, subcommand("convert")]
    )

    def __call__(self) -> None:
        self.verb()


def _find(name_or_path: str) -> Path:
    return find_shipped(name_or_path) or Path(name_or_path)


def _text(path: Path, card: Card) -> str:
    encoder = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(card.encoder).items())
    lines = {
        "file": path.name,
        "sha256": sha256([path]),
        "encoder": encoder,
        "trained on": card.trained_on,
        "licence": card.licence,
        "notes": card.notes,
        "converted from": ", ".join(f"{name} {value}" for name, value in card.source.items()),
        "scores": ", ".join(f"{name} {value:g}" for name, value in card.scores.items()),
    }
    return "\n".join(f"{name:<15} {value}" for name, value in lines.items() if value)
