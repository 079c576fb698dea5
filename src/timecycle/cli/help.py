"""Help texts, and checks for mistyped commands and options. Both read the dataclass of the command.

Parsing itself is done by tyro. Its own help cannot leave out defaults of None or group the options of one dataclass.
"""

import dataclasses
import difflib
import inspect
import re
import shutil
import textwrap
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg

from timecycle.cli.console import MODE_OPTIONS
from timecycle.errors import SettingsError

_MAX_COLUMNS = 100
_HELP_COLUMN = 26
_HELP = ("-h", "--help")
_GROUPS = {
    "output": ("out", "label_files", "format", "matte", "resume", "overwrite"),
    "annotations": ("box", "box_as_is", "texture", "coordinates", "kind", "names", "exhaustive", "object"),
    "video": ("fps", "allow_damaged"),
    "method": ("encoder", "encoders", "preset", "presets", "set", "device", "precision"),
    "confidence": ("min_confidence", "no_confidence"),
    "measurements": ("scale", "pairs"),
}
_METAVARS = {Path: "PATH", int: "N", float: "NUMBER", str: "TEXT"}
# What tyro says about wrong arguments, and what is printed.
_PLAIN = {
    "^Missing from (.*?):": r"`\1` needs",
    "^Missing value for argument '(.*?)'.*": r"\1 needs a value",
    "^Unrecognized options:": "unknown arguments:",
    "^Error parsing (.*?): .*?'(.*?)'.*": r"\1 cannot be '\2'",
    r"^[Ii]nvalid choice (.*?) for argument '(.*?)'\. Expected one of \((.*)\)": r"\2 cannot be \1; choose one of \3",
}
_ArgSettings: Any = type(arg())
_POSITIONAL = get_args(Positional[str])[1]


@dataclass(frozen=True)
class Command:
    """A command as it was typed (`weights list`) and the dataclass that defines it."""

    words: tuple[str, ...]
    definition: Any

    def __str__(self) -> str:
        return " ".join(("timecycle", *self.words))


@dataclass(frozen=True)
class _Argument:
    """An option, or a positional argument, which has no names."""

    field: str
    names: tuple[str, ...]
    metavar: str
    help: str
    is_required: bool

    @property
    def invocation(self) -> str:
        return " ".join(filter(None, (", ".join(self.names), self.metavar)))


def find_command(words: Sequence[str], commands: Mapping[str, Any]) -> Command:
    """Find the command that the words begin with; refuse a word that is none, with the closest one."""
    command = Command((), None)
    rest = list(words)
    while commands:
        if not rest or rest[0] in _HELP:
            break
        if rest[0] not in commands:
            name = " ".join((str(command), rest[0]))
            remedy = _ELSEWHERE.get(rest[0]) or _suggestion(rest[0], commands, command)
            raise SettingsError(f"there is no command `{name}`", remedy=remedy)
        command = Command((*command.words, rest[0]), commands[rest.pop(0)])
        commands = _subcommands(command.definition)
    return command


def check_options(command: Command, words: Iterable[str]) -> None:
    """Refuse an option that the command does not have, with the closest one that it has."""
    if subcommands := _subcommands(command.definition):
        raise SettingsError(f"`{command}` needs a command", remedy=f"choose one of {', '.join(subcommands)}")
    known = [name for argument in _arguments(command.definition) for name in argument.names]
    known += [name for names, _ in MODE_OPTIONS.values() for name in names]
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and name not in (*known, *_HELP, "--"):
            raise SettingsError(f"`{command}` has no option {name}", remedy=_suggestion(name, known, command))


def asks_for_help(words: Iterable[str]) -> bool:
    return any(word in _HELP for word in words)


def command_help(command: Command) -> str:
    """Describe a command, its arguments and its options, in at most 100 columns."""
    width = min(shutil.get_terminal_size().columns, _MAX_COLUMNS)
    arguments, subcommands = _arguments(command.definition), _subcommands(command.definition)
    positional = [argument for argument in arguments if not argument.names]
    options = [argument for argument in arguments if argument.names]
    required = (f"{option.names[0]} {option.metavar}" for option in options if option.is_required)
    words = [*(one.metavar if one.is_required else f"[{one.metavar}]" for one in positional), *required]
    usage = " ".join(
        (f"usage: {command}", *(["COMMAND ..."] if subcommands else words), "[options]" if options else "")
    )
    paragraphs = [usage.rstrip(), *_paragraphs(inspect.getdoc(command.definition) or "", width)]
    if subcommands:
        summaries = ((name, _summary(one)) for name, one in subcommands.items())
        paragraphs.append(_table("commands", summaries, width))
        paragraphs.append(f"{command} COMMAND --help describes a command.")
    else:
        paragraphs.append(_table("arguments", ((one.metavar, one.help) for one in positional), width))
        for title, fields in _GROUPS.items():
            grouped = sorted((one for one in options if one.field in fields), key=lambda one: fields.index(one.field))
            paragraphs.append(_table(title, ((one.invocation, one.help) for one in grouped), width))
        others = (one for one in options if not any(one.field in fields for fields in _GROUPS.values()))
        paragraphs.append(_table("other options", ((one.invocation, one.help) for one in others), width))
        every = [(", ".join(names), text) for names, text in MODE_OPTIONS.values()]
        paragraphs.append(_table("messages", [*every, ("-h, --help", "print this help")], width))
    return "\n\n".join(filter(None, paragraphs))


def _arguments(definition: Any) -> list[_Argument]:
    """The arguments of a command, in the order of its fields."""
    if _subcommands(definition):
        return []
    hints = get_type_hints(definition, include_extras=True)
    return [_argument(field, hints[field.name]) for field in dataclasses.fields(definition)]


def _argument(field: "dataclasses.Field[Any]", hint: Any) -> _Argument:
    kind, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    settings: Any = next((one for one in metadata if isinstance(one, _ArgSettings)), arg())
    name = (settings.name or field.name).replace("_", "-")
    names = () if _POSITIONAL in metadata else (*(settings.aliases or ()), f"--{name}")
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    is_required = default is dataclasses.MISSING
    shown = "" if is_required or default in (None, False, (), "") else _shown(default)
    text = " ".join(filter(None, (settings.help, f"(default: {shown})" if shown else "")))
    return _Argument(field.name, names, settings.metavar or _metavar(kind), text, is_required)


def _shown(default: object) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _metavar(kind: Any) -> str:
    """Name the value of an option by its type; a flag has none."""
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(option for option in get_args(kind) if option is not types.NoneType)
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        return f"{_metavar(get_args(kind)[0])} ..."
    return "" if kind is bool else _METAVARS[kind]


def _subcommands(definition: Any) -> dict[str, Any]:
    """The commands below a command, by name."""
    fields = dataclasses.fields(definition) if dataclasses.is_dataclass(definition) else ()
    if len(fields) != 1:
        return {}
    options = get_args(get_type_hints(definition, include_extras=True)[fields[0].name])
    found = (get_args(option) for option in options if get_origin(option) is Annotated)
    return {one[1].name: one[0] for one in found if dataclasses.is_dataclass(one[0])}


def _summary(definition: Any) -> str:
    return (inspect.getdoc(definition) or "").partition("\n")[0]


def _paragraphs(text: str, width: int) -> list[str]:
    """Wrap paragraphs; those with indented lines stay as they are."""
    return [paragraph if "\n  " in paragraph else _fill(paragraph, width) for paragraph in text.split("\n\n")]


def _table(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """Lay out names and what they mean in two columns; nothing without rows."""
    lines = []
    for name, text in rows:
        start = f"  {name}"
        if len(start) > _HELP_COLUMN - 2:
            lines.append(start)
            start = ""
        lines.append(_fill(text, width, start.ljust(_HELP_COLUMN), " " * _HELP_COLUMN))
    return "\n".join((f"{title}:", *lines)) if lines else ""


def _fill(text: str, width: int, first: str = "", later: str = "") -> str:
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )


def parse_problem(printed: str) -> str:
    """Turn the box that tyro prints about wrong arguments into one line, in the words of this command line."""
    sections: list[list[str]] = [[]]
    for line in printed.replace("│", "").splitlines():
        if line.startswith("╭") or (line.strip() and not line.strip(" ─-")):
            sections.append([])  # at a line across: after the title, and after what is wrong
        elif not line.startswith(" " * 9):  # so far in stands the help of an option
            sections[-1].append(line)
    text = " ".join(" ".join(sections[1] if len(sections) > 1 else sections[0]).split()).rstrip(".")
    for pattern, plain in _PLAIN.items():
        text = re.sub(pattern, plain, text)
    return text or "these arguments cannot be parsed"


_ELSEWHERE = {"undo": "write: timecycle correct OUT --undo"}  # verbs of Python that are options here


def _suggestion(word: str, known: Iterable[str], command: Command) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"{command} --help lists what there is"
