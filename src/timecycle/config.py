"""Settings from presets (TOML) and NAME=VALUE overrides; unknown names and wrong types are refused with a remedy."""

import copy
import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeVar

from timecycle.errors import SettingsError
from timecycle.propagation.settings import PropagateConfig
from timecycle.training.settings import TrainConfig

Config = TypeVar("Config")


def propagate_config(preset: str = "default", overrides: Sequence[str] = ()) -> PropagateConfig:
    """Return the settings of a propagation preset, changed.

    preset: its name: fast, default, best, paper ...
    overrides: NAME=VALUE pairs, as "neighbours=5".
    """
    pairs = [overrides] if isinstance(overrides, str) else overrides  # a single pair
    return build(PropagateConfig, _override(read_preset("propagate", preset), pairs))


def train_config(preset: str = "small", overrides: Sequence[str] = ()) -> TrainConfig:
    """Return the settings of a training preset, changed.

    preset: its name: small, small-cycles, paper ...
    overrides: NAME=VALUE pairs, as "optimizer.learning_rate=1e-3".
    """
    pairs = [overrides] if isinstance(overrides, str) else overrides  # a single pair
    return build(TrainConfig, _override(read_preset("train", preset), pairs))


def preset_names(command: str) -> list[str]:
    """List the presets of a command."""
    folder = resources.files("timecycle.presets") / command
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def preset_text(command: str, name: str) -> str:
    """Read the TOML file of a preset."""
    names = preset_names(command)
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(names)}"
        raise SettingsError(f"there is no {command} preset {name!r}", remedy=remedy)
    return (resources.files("timecycle.presets") / command / f"{name}.toml").read_text(encoding="utf-8")


def read_preset(command: str, name: str) -> dict[str, Any]:
    """Read the settings of a preset."""
    return tomllib.loads(preset_text(command, name))


def build(config: type[Config], values: dict[str, Any]) -> Config:
    """Build a config dataclass from names and values, which may be text; `none` stands for None."""
    hints = typing.get_type_hints(config)
    known = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"the settings are {', '.join(known)}"
            raise SettingsError(f"unknown setting {name!r} for {config.__name__}", remedy=remedy)
    return config(**{name: _convert(name, value, hints[name]) for name, value in values.items()})


def _override(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Copy the values and set each override at its dotted name."""
    changed = copy.deepcopy(values)
    for pair in overrides:
        name, value = _split(pair)
        *tables, last = name.split(".")
        table = changed
        for depth, key in enumerate(tables, start=1):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                parent = ".".join(tables[:depth])
                raise SettingsError(
                    f"{parent} has no setting {name.removeprefix(f'{parent}.')!r}", remedy=f"set {parent}=VALUE"
                )
        table[last] = value
    return changed


def _split(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise SettingsError(f"{pair!r} is not a setting", remedy="write NAME=VALUE, for example neighbours=5")
    return name.strip().replace("-", "_"), value.strip()


def _convert(name: str, value: Any, hint: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if type(None) in options and (value is None or str(value).lower() == "none"):
        return None
    kind = next(option for option in options if option is not type(None))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise SettingsError(f"{name} is {value!r}", remedy=f"set one of its settings: {name}.NAME=VALUE")
        return build(kind, value)
    if typing.get_origin(kind) is tuple:
        return _convert_tuple(name, value, typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise SettingsError(f"{name} is {value!r}", remedy=f"choose one of {', '.join(map(str, choices))}")
        return value
    if kind is bool:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
    elif not (kind is int and isinstance(value, float)) and not isinstance(value, bool):  # 7.5 is not 7, true not 1
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise SettingsError(f"{name} is {value!r}", remedy=f"give a value of type {kind.__name__}")


def _convert_tuple(name: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    # Presets write tuples in brackets, so the command line accepts them too.
    items = value.strip("[]").split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or len(items) != len(kinds):
        raise SettingsError(f"{name} is {value!r}", remedy=f"give {len(kinds)} values, separated by commas")
    return tuple(_convert(name, item, kind) for item, kind in zip(items, kinds, strict=True))
