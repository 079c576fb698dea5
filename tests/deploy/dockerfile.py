"""Read a Dockerfile: its stages, their instructions, and which files .dockerignore leaves to it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

_INSTRUCTION = re.compile(r"([A-Z]+)\s+(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Instruction:
    """One instruction, with continued lines joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words of the text, or the elements of a JSON array."""
        return json.loads(self.text) if self.text.startswith("[") else self.text.split()


@dataclass
class Stage:
    """The instructions after one FROM."""

    name: str
    base: str
    steps: list[Instruction] = field(default_factory=list)

    def find(self, name: str) -> list[Instruction]:
        return [step for step in self.steps if step.name == name]


@dataclass(frozen=True)
class Dockerfile:
    """The stages by name, in their order, and the build arguments before the first of them."""

    arguments: Mapping[str, str]
    stages: Mapping[str, Stage]


def read_dockerfile(path: Path) -> Dockerfile:
    """Parse a Dockerfile; refuse what this parser does not know."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction in _instructions(path.read_text()):
        match instruction.name, instruction.words:
            case "FROM", [base, "AS", name]:
                stages[name] = stage = Stage(name, expand(base, arguments))
            case "ARG", [argument] if stage is None:
                name, _, value = argument.partition("=")
                arguments[name] = value
            case (("ARG" | "COPY" | "ENV" | "RUN" | "USER" | "WORKDIR" | "ENTRYPOINT" | "CMD"), _) if stage is not None:
                stage.steps.append(instruction)
            case _:
                raise ValueError(f"unknown instruction in {path}: {instruction}")
    return Dockerfile(arguments, stages)


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for whole in "\n".join(lines).replace("\\\n", "").splitlines():
        if not whole.strip():
            continue
        found = _INSTRUCTION.fullmatch(whole.strip())
        if found is None:
            raise ValueError(f"no instruction: {whole}")
        yield Instruction(*found.groups())


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $NAME and ${NAME}; a name without a value is an error."""
    return _VARIABLE.sub(lambda found: variables[found[1] or found[2]], text)


def in_context(path: str, ignore: str) -> bool:
    """Whether a .dockerignore leaves a file to the build: of the patterns that match it, the last one decides."""
    kept = True
    parents = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    for line in ignore.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keeps, pattern = pattern.startswith("!"), pattern.removeprefix("!")
        if any(_matches(one, pattern) for one in parents):
            kept = keeps
    return kept


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        names = path.split("/")
        return any(_matches("/".join(names[start:]), pattern[3:]) for start in range(len(names)))
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
