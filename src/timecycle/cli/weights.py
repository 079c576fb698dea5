"""`timecycle weights`: list, verify, show and convert weights."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg, subcommand

from timecycle.cli.console import Result, out, say
from timecycle.errors import OutputError, WeightsError
from timecycle.files import sha256
from timecycle.model.checkpoints import read_checkpoint
from timecycle.model.weights import Card, bundled_weights, find_bundled, read_card, save_weights, verify_weights

Name = Annotated[Positional[str], arg(metavar="WEIGHTS", help="a name from `timecycle weights list`, or a file")]


@dataclass(frozen=True, kw_only=True)
class List:
    """List the bundled weights and their licences."""

    def __call__(self) -> Result:
        listed = []
        for name, path in bundled_weights().items():
            card, size = read_card(path), path.stat().st_size
            trained_on, licence = (card.trained_on, card.licence.partition(":")[0]) if card else ("", "")
            out.print(f"{name}  {size / 1e6:.1f} MB  {licence}  {trained_on}")
            listed.append({"name": name, "file": path, "bytes": size, "licence": licence, "trained_on": trained_on})
        return {"weights": listed}


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Verify the checksums and values of weights; by default of all bundled ones."""

    weights: Annotated[Positional[tuple[str, ...]], arg(metavar="WEIGHTS ...", help="names or files")] = ()

    def __call__(self) -> Result:
        paths = [_find(weights) for weights in self.weights] or [*bundled_weights().values()]
        verified = []
        for path in paths:
            verified.append({"file": path, "sha256": verify_weights(path)})
            out.print(f"ok  {path.name}  sha256 {verified[-1]['sha256']}")
        return {"weights": verified}


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show the card of weights: encoder, training data, licence and scores."""

    weights: Name

    def __call__(self) -> Result:
        path = _find(self.weights)
        if not path.is_file():
            raise WeightsError(
                f"there is no file of weights {path}",
                remedy="give a .safetensors file (RUN/weights.safetensors) or a name of `timecycle weights list`",
            )
        card = read_card(path)
        if card is None:
            raise WeightsError(f"{path} has no card", remedy=f"put one beside it: {path.with_suffix('.json')}")
        checksum = sha256([path])
        out.print(_text(path, checksum, card))
        return {"file": path, "sha256": checksum, "card": card}


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert the encoder in another program's checkpoint to safetensors with a card.

    Reads checkpoints of the original TimeCycle, videowalk, MoCo and DINO, and any ResNet-18 or -50 with torchvision's
    names. No code in the checkpoint is run.

    Examples:
      timecycle weights convert checkpoint_14.pth.tar -o timecycle2019.safetensors
    """

    checkpoint: Annotated[Positional[Path], arg(metavar="CHECKPOINT", help="a file that torch.save wrote")]
    out: Annotated[
        Path | None, arg(aliases=["-o"], metavar="FILE", help="the file to write; by default beside the checkpoint")
    ] = None
    trained_on: Annotated[str, arg(help="training data, for the card")] = "unknown: ask where the checkpoint came from"
    licence: Annotated[str, arg(aliases=["--license"], help="licence, for the card")] = (
        "unknown: ask where the checkpoint came from"
    )
    overwrite: Annotated[bool, arg(help="replace an existing file")] = False

    def __call__(self) -> Result:
        target = self.out or self.checkpoint.with_name(self.checkpoint.name.partition(".")[0])
        target = target.with_name(target.name.removesuffix(".safetensors") + ".safetensors")
        if target.exists() and not self.overwrite:
            raise OutputError(f"{target} already exists", remedy="choose another file with -o, or pass --overwrite")
        checkpoint = read_checkpoint(self.checkpoint)
        card = Card(
            encoder=checkpoint.model.config,
            trained_on=self.trained_on,
            licence=self.licence,
            source={
                "file": self.checkpoint.name,
                "sha256": sha256([self.checkpoint]),
                "layout": checkpoint.layout.description,
            },
        )
        save_weights(target, checkpoint.model, card)
        layout, architecture = checkpoint.layout.description, checkpoint.model.config.architecture
        say(f"{layout}: {architecture}\nuse it with --encoder {target}")
        return {"file": target, "layout": layout, "architecture": architecture}


@dataclass(frozen=True, kw_only=True)
class Weights:
    """List, verify, show and convert weights."""

    verb: (
        Annotated[List, subcommand("list")]
        | Annotated[Verify, subcommand("verify")]
        | Annotated[Show, subcommand("show")]
        | Annotated[Convert, subcommand("convert")]
    )

    def __call__(self) -> Result:
        return self.verb()


def _find(name_or_path: str) -> Path:
    return find_bundled(name_or_path) or Path(name_or_path)


def _text(path: Path, checksum: str, card: Card) -> str:
    encoder = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(card.encoder).items())
    lines = {
        "file": path.name,
        "sha256": checksum,
        "encoder": encoder,
        "trained on": card.trained_on,
        "licence": card.licence,
        "notes": card.notes,
        "converted from": ", ".join(f"{name} {value}" for name, value in card.source.items()),
        "scores": ", ".join(f"{name} {value:g}" for name, value in card.scores.items()),
    }
    return "\n".join(f"{name:<15} {value}" for name, value in lines.items() if value)
