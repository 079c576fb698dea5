"""`timecycle evaluate`: one command for every protocol, and one to compare two results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg, subcommand

from timecycle.api.evaluation import compare
from timecycle.cli.console import Result, out, progress_bars, say
from timecycle.cli.options import MethodOptions, Out, Preset, log_encoder
from timecycle.data.augment.composites import CompositesConfig
from timecycle.errors import SettingsError
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.evaluate import evaluate, evaluate_masks
from timecycle.evaluation.methods.registry import load_method, method_names
from timecycle.evaluation.protocols.badja import find_badja
from timecycle.evaluation.protocols.composites import find_composites, make_composites
from timecycle.evaluation.protocols.davis import Year, find_davis
from timecycle.evaluation.protocols.jhmdb import find_jhmdb
from timecycle.evaluation.protocols.reconstruction import find_reconstruction
from timecycle.evaluation.protocols.vip import Task, find_vip
from timecycle.evaluation.reporting.compare import comparison_text
from timecycle.evaluation.reporting.plots import write_pictures
from timecycle.evaluation.reporting.report import REPORT, Report
from timecycle.model.registry import DEFAULT_ENCODER

Root = Annotated[Positional[Path], arg(metavar="ROOT", help="the dataset's folder, in its own layout")]
Method = Annotated[str, arg(help=f"a .safetensors file, or {', '.join(method_names())}")]
Sequences = Annotated[tuple[str, ...], arg(metavar="NAME ...", help="only these sequences")]


@dataclass(frozen=True, kw_only=True)
class _Protocol(MethodOptions, ABC):
    """Options of every protocol."""

    root: Root
    out: Out
    encoder: Method = DEFAULT_ENCODER
    sequences: Sequences = ()
    overwrite: Annotated[bool, arg(help="replace an existing evaluation")] = False

    @abstractmethod
    def find(self) -> Benchmark: ...

    def __call__(self) -> Result:
        config = self.config()
        benchmark = self.find()
        method = load_method(self.encoder, device=self.device, precision=self.precision)
        log_encoder(method.name, method.description, method.sha256)
        with progress_bars() as show:
            report = evaluate(benchmark, method, config, self.out, overwrite=self.overwrite, progress=show)
            pictures = write_pictures(report, self.out, clips=benchmark.clips)
        return _print(report, self.out, pictures)


@dataclass(frozen=True, kw_only=True)
class Davis(_Protocol):
    """DAVIS-2016 or -2017 val: propagated masks, region J and boundary F.

    For example: timecycle evaluate davis DAVIS --encoder vgg16 -o out

    or, for the masks of another program: timecycle evaluate davis DAVIS --masks results -o out
    """

    year: Annotated[Year | None, arg(help="2016 (one object) or 2017; by default the newest that ROOT lists")] = None
    masks: Annotated[Path | None, arg(metavar="DIR", help="score DIR/SEQUENCE/00000.png instead of predicting")] = None

    def find(self) -> Benchmark:
        return find_davis(self.root, year=self.year, names=self.sequences)

    def __call__(self) -> Result:
        if self.masks is None:
            return super().__call__()
        self._refuse_settings()
        benchmark = self.find()
        with progress_bars() as show:
            report = evaluate_masks(benchmark, self.masks, self.out, overwrite=self.overwrite, progress=show)
            pictures = write_pictures(report, self.out, clips=benchmark.clips, predictions=self.masks)
        return _print(report, self.out, pictures)

    def _refuse_settings(self) -> None:
        """Refuse settings of prediction, which have no effect on stored masks."""
        defaults = {field.name: field.default for field in fields(self)}
        given = [f"--{name}" for name in ("encoder", "preset", "set") if getattr(self, name) != defaults[name]]
        if given:
            raise SettingsError(
                f"{' and '.join(given)} cannot be combined with --masks, which scores stored masks without predicting",
                remedy=f"leave out {' and '.join(given)}, or leave out --masks to predict",
            )


@dataclass(frozen=True, kw_only=True)
class Jhmdb(_Protocol):
    """JHMDB, test clips of split 1: propagated joints, PCK."""

    def find(self) -> Benchmark:
        return find_jhmdb(self.root, names=self.sequences)


@dataclass(frozen=True, kw_only=True)
class Vip(_Protocol):
    """VIP val: propagated human parts, mIoU of classes or AP of instances."""

    preset: Preset = "vip"
    task: Annotated[Task, arg(help="semantic: mIoU of 20 classes; parts: AP of part instances")] = "semantic"

    def find(self) -> Benchmark:
        return find_vip(self.root, task=self.task, names=self.sequences)


@dataclass(frozen=True, kw_only=True)
class Badja(_Protocol):
    """BADJA: propagated joints of animals in DAVIS sequences, PCK."""

    davis: Annotated[Path | None, arg(metavar="DIR", help="the DAVIS folder, if ROOT is not inside or beside it")] = (
        None
    )

    def find(self) -> Benchmark:
        return find_badja(self.root, davis=self.davis, names=self.sequences)


@dataclass(frozen=True, kw_only=True)
class Reconstruction(_Protocol):
    """DAVIS frames rebuilt from earlier ones by dense correspondence, L1 in RGB."""

    gaps: Annotated[tuple[int, ...], arg(help="distances to the earlier frame, in frames")] = (5, 10)
    stride: Annotated[int, arg(help="rebuild one frame in STRIDE: faster, less exact")] = 1

    def find(self) -> Benchmark:
        return find_reconstruction(self.root, gaps=self.gaps, stride=self.stride, names=self.sequences)


@dataclass(frozen=True, kw_only=True)
class Composites(_Protocol):
    """Synthetic composites of your own videos, with known masks; needs no labels.

    For example: timecycle evaluate composites videos/ --encoder rgb --preset fast -o out
    """

    seed: Annotated[int, arg(help="a different seed makes different clips")] = 0
    footage: Annotated[Path | None, arg(metavar="DIR", help="folder of the clips; beside OUT by default")] = None

    def find(self) -> Benchmark:
        with progress_bars() as show:
            folder = self.out.with_name(f"{self.out.name}-footage") if self.footage is None else self.footage
            made = make_composites(self.root, folder, CompositesConfig(seed=self.seed), progress=show("composing"))
        return find_composites(made, names=self.sequences)


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare two results, with confidence intervals over sequences.

    For example: timecycle evaluate compare out/rgb out/vgg16
    """

    a: Annotated[Positional[Path], arg(metavar="A", help="a report.json, or the folder it is in")]
    b: Annotated[Positional[Path], arg(metavar="B", help="the other one")]

    def __call__(self) -> Result:
        comparison = compare(self.a, self.b)
        out.print(comparison_text(comparison))
        return asdict(comparison)


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score an encoder, or the masks of another program, on a benchmark."""

    protocol: (
        Annotated[Davis, subcommand("davis")]
        | Annotated[Jhmdb, subcommand("jhmdb")]
        | Annotated[Vip, subcommand("vip")]
        | Annotated[Badja, subcommand("badja")]
        | Annotated[Reconstruction, subcommand("reconstruction")]
        | Annotated[Composites, subcommand("composites")]
        | Annotated[Compare, subcommand("compare")]
    )

    def __call__(self) -> Result:
        return self.protocol()


def _print(report: Report, folder: Path, pictures: Sequence[Path]) -> Result:
    sequences = len(report.per_sequence)
    out.print(f"{report.encoder} on {report.benchmark}, {sequences} sequence{'s' if sequences != 1 else ''}")
    for name, score in report.scores.items():
        out.print(f"  {name:<24} {score:.4f}")
    beside = f"; pictures beside it: {', '.join(path.name for path in pictures)}" if pictures else ""
    say(f"report: {folder / REPORT}{beside}")
    return {
        "benchmark": report.benchmark,
        "encoder": report.encoder,
        "sequences": sequences,
        "scores": report.scores,
        "report": folder / REPORT,
        "pictures": pictures,
    }
