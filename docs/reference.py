"""Write the pages that come from the program: python docs/reference.py (with --check: say which ones are old).

docs/options.md has the help of every command; docs/settings.md every setting with its default, its meaning (the comment
beside it in the source) and its value in every preset.
"""

import ast
import dataclasses
import inspect
import os
import runpy
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import timecycle as tc
from timecycle.cli.help import Command, _subcommands, command_help
from timecycle.cli.main import _COMMANDS, _definitions
from timecycle.cli.presets import _summary
from timecycle.config import preset_names

DOCS = Path(__file__).resolve().parent
field_comment = runpy.run_path(str(DOCS / "field_comments.py"))["field_comment"]
NOTE = "<!-- written by docs/reference.py -->"


def main() -> None:
    pages = {"options.md": options_page(), "settings.md": settings_page()}
    old = [name for name, text in pages.items() if not _is(DOCS / name, text)]
    if "--check" in sys.argv:
        sys.exit(f"old: {', '.join(old)}; run python docs/reference.py" if old else 0)
    for name in old:
        (DOCS / name).write_text(pages[name], encoding="utf-8")
        print(f"docs/{name}")


def _is(page: Path, text: str) -> bool:
    return page.is_file() and page.read_text(encoding="utf-8") == text


# Options


def options_page() -> str:
    """Show the help of every command."""
    parts = [
        f"# The options of every command\n\n{NOTE}\n",
        "What `timecycle COMMAND --help` prints, without the options that all commands have:",
        "[`--json`, `--quiet`, `--verbose`](command_line.md#what-is-printed). What `--preset` and `--set` change:",
        "[settings](settings.md).",
    ]
    for command in commands():
        with patch.dict(os.environ, COLUMNS="100"):
            text, _, _ = command_help(command).partition("\n\nmessages:")
        parts.append(f"\n## {' '.join(command.words)}\n\n```text\n{text}\n```")
    return "\n".join(parts) + "\n"


def commands() -> Iterator[Command]:
    """List the commands, those with commands below them replaced by these."""
    for name in _COMMANDS:
        definition = _definitions(name)[name]
        below = _subcommands(definition)
        yield from (Command((name, one), which) for one, which in below.items())
        if not below:
            yield Command((name,), definition)


# Settings


def settings_page() -> str:
    """Show the settings of propagation, training, packing, audits and confidence."""
    introduction = (
        f"# Settings\n\n{NOTE}\n",
        "Every setting with its default and its meaning. `--preset NAME` chooses a preset, and `--set NAME=VALUE`",
        "changes single settings of it: `--set neighbours=5 window_px=none`, `--set optimizer.learning_rate=1e-3`.",
        "`timecycle presets NAME` prints a preset. In Python: `tc.propagate_config`, `tc.train_config`, and the",
        "classes themselves ([names](api.md)).\n",
        "## Propagation\n",
        "`timecycle propagate`, `evaluate`, `tune`, `bulk` and others; `tc.PropagateConfig`. Sizes are pixels of the",
        "encoded image.",
    )
    parts = [
        "\n".join(introduction),
        settings_table(tc.PropagateConfig),
        presets_list("propagate"),
        values_table("propagate", tc.propagate_config),
        "## Training\n\n`timecycle train`; `tc.TrainConfig`.",
        settings_table(tc.TrainConfig),
        presets_list("train"),
        values_table("train", tc.train_config),
        "## Packing\n\n`timecycle pack`; `tc.PackConfig`.",
        settings_table(tc.PackConfig),
        "## Audit\n\n`tc.AuditConfig`.",
        settings_table(tc.AuditConfig),
        "## Confidence\n\n`timecycle propagate --min-confidence`; `tc.ConfidenceConfig`.",
        settings_table(tc.ConfidenceConfig),
    ]
    return "\n\n".join(parts) + "\n"


def settings_table(config: type) -> str:
    rows = (f"| `{name}` | {_shown(default)} | {text} |" for name, default, text in fields(config))
    return "\n".join(("| setting | default | meaning |", "|---|---|---|", *rows))


def fields(config: type, above: str = "") -> Iterator[tuple[str, Any, str]]:
    """List the name, the default and the comment of every setting, those of nested settings with dotted names."""
    comments = field_comments(config)
    defaults = config()
    for field in dataclasses.fields(config):
        value = getattr(defaults, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields(type(value), f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}", value, comments[field.name]


def field_comments(config: type) -> dict[str, str]:
    """Return the comment at the end of each field of a dataclass."""
    source = textwrap.dedent(inspect.getsource(config))
    lines = source.splitlines()
    nested = {one.name for one in dataclasses.fields(config) if dataclasses.is_dataclass(one.default_factory)}
    comments = {
        ast.unparse(one.target): field_comment("\n".join(lines[one.lineno - 1 : one.end_lineno]))
        for one in ast.parse(source).body[0].body
        if isinstance(one, ast.AnnAssign)
    }
    if missing := [name for name, text in comments.items() if not text and name not in nested]:
        sys.exit(f"{config.__module__}.{config.__name__}: write a comment beside {', '.join(missing)}")
    return comments


def presets_list(command: str) -> str:
    rows = (f"| `{name}` | {_summary(command, name)} |" for name in preset_names(command))
    return "\n".join((f"### Presets of `timecycle {command}`", "", "| preset | what |", "|---|---|", *rows))


def values_table(command: str, config: Any) -> str:
    """Compare the presets: the settings in which they differ."""
    names = preset_names(command)
    columns = [{name: value for name, value, _ in _values(config(one))} for one in names]
    rows = [
        f"| `{name}` | {' | '.join(_shown(column[name]) for column in columns)} |"
        for name in columns[0]
        if len({_shown(column[name]) for column in columns}) > 1
    ]
    head = f"| | {' | '.join(f'`{name}`' for name in names)} |"
    return "\n".join(("The settings in which they differ:", "", head, "|---|" + "---|" * len(names), *rows))


def _values(config: Any, above: str = "") -> Iterator[tuple[str, Any, str]]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _values(value, f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}", value, ""


def _shown(value: object) -> str:
    """Write a value as `--set` takes it, rounded."""
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
