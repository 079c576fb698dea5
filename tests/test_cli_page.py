"""docs/command_line.md lists the commands, error kinds, exit codes and environment variables of the source."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import timecycle
from timecycle.cli.console import ExitCode
from timecycle.cli.help import _subcommands, _summary, check_options, find_command
from timecycle.cli.main import _COMMANDS, _definitions, _parse

SOURCE = Path(timecycle.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "command_line.md").read_text()


def table(*columns: str) -> list[list[str]]:
    """The rows of the table whose first columns have these names."""
    _, _, rest = PAGE.partition(f"\n| {' | '.join(columns)} |")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def commands() -> dict[str, str]:
    """The line of every command, and of the commands below it in their place."""
    lines = {}
    for name, (_, line) in _COMMANDS.items():
        below = _subcommands(_definitions(name)[name])
        lines |= {f"{name} {one}": _summary(definition) for one, definition in below.items()} or {name: line}
    return lines


def test_every_command_is_listed_with_its_line():
    assert {name.strip("`"): line for name, line, _ in table("command")} == commands()


@pytest.mark.parametrize(("name", "example"), [(name, example) for name, _, example in table("command")])
def test_the_example_of_a_command_can_be_parsed(name, example):
    program, *words = shlex.split(example.strip("`"))
    assert program == "timecycle"
    typed = find_command(words, _definitions(words[0]))
    assert " ".join(typed.words) == name.strip("`")
    check_options(typed, words)
    _parse(typed, words)


def test_exit_codes_are_those_of_the_source():
    assert [int(code) for code, _ in table("code")] == sorted(ExitCode)


def test_error_kinds_are_those_of_the_source():
    sources = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    bases = dict(re.findall(r"^class ([A-Z]\w*)\((\w+)\)", sources, re.MULTILINE))

    def is_kind(name: str | None) -> bool:
        return name == "TimecycleError" or (name in bases and is_kind(bases[name]))

    kinds = {"TimecycleError", *filter(is_kind, bases)}
    assert {kind.strip("`") for kind, _ in table("kind")} == kinds | {"UnexpectedError", "Interrupted"}


def test_environment_variables_are_those_that_the_source_reads():
    read = set().union(*(environment(path.read_text()) for path in SOURCE.rglob("*.py")))
    assert {name.strip("`") for name, _ in table("variable")} == read
    compiled = [path for path in SOURCE.rglob("*") if path.suffix in (".cpp", ".h")]
    assert compiled
    assert not any(re.search(r"\bgetenv\b", path.read_text()) for path in compiled)


def environment(source: str) -> set[str]:
    """The names of the environment variables that a module reads; every mention of os.environ must show its name."""
    tree = ast.parse(source)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names = []
    passed_on = 0
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get"), args=[name, *_]):
                names.append(name)
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=name):
                names.append(name)
            case ast.Compare(left=name, comparators=[ast.Attribute(attr="environ")]):
                names.append(name)
            case ast.Dict(keys=keys, values=values):  # {**os.environ}: the environment of a child
                pairs = zip(keys, values, strict=True)
                passed_on += sum(key is None and ast.unparse(value) == "os.environ" for key, value in pairs)
    found = [name.value if isinstance(name, ast.Constant) else constants[name.id] for name in names]
    mentions = len(re.findall(r"\b(environ|getenv)\b", source))
    assert len(found) + passed_on == mentions, "os.environ is read in a way not known here"
    return set(found)
