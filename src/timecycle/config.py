"""Settings from presets (TOML) and NAME=VALUE overrides; unknown names and wrong types are refused with advice."""

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
    """The settings of a propagation preset, changed by NAME=VALUE pairs (`window_px=none` for no window)."""
    given = [overrides] if isinstance(overrides, str) else overrides  # one pair alone is meant as one
    return build(PropagateConfig, _changed(read_preset("propagate", preset), given))


def train_config(preset: str = "small", overrides: Sequence[str] = ()) -> TrainConfig:
    """The settings of a training preset, changed by NAME=VALUE pairs (`optimizer.rate=1e-3`, `walks.dropout=0`)."""
    return build(TrainConfig, _changed(read_preset("train", preset), overrides))


def preset_names(verb: str) -> list[str]:
    """The presets there are for a verb."""
    folder = resources.files("timecycle.presets") / verb
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_preset(verb: str, name: str) -> dict[str, Any]:
    """The settings written in a preset."""
    names = preset_names(verb)
    if name not in names:
        raise SettingsError(f"there is no {verb} preset {name!r}", remedy=f"choose one of {', '.join(names)}")
    text = (resources.files("timecycle.presets") / verb / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def build(config: type[Config], values: dict[str, Any]) -> Config:
    """A config dataclass from names and values, which may be text; `none` stands for None."""
    hints = typing.get_type_hints(config)
    known = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"the settings are {', '.join(known)}"
            raise SettingsError(f"unknown setting {name!r} for {config.__name__}", remedy=remedy)
    return config(**{name: _convert(name, value, hints[name]) for name, value in values.items()})


def _changed(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The values with each override put where its dotted name says."""
    changed = copy.deepcopy(values)
    for pair in overrides:
        name, value = _split(pair)
        *tables, last = name.split(".")
        table = changed
        for number, part in enumerate(tables, start=1):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                whole = ".".join(tables[:number])
                raise SettingsError(
                    f"{whole} has no part {name.removeprefix(f'{whole}.')!r}", remedy=f"set {whole}=VALUE"
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
            raise SettingsError(f"{name} is {value!r}", remedy=f"set its parts, for example {name}.NAME=VALUE")
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
    # In presets they stand in brackets, so on the command line they may too.
    parts = value.strip("[]").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or len(parts) != len(kinds):
        raise SettingsError(f"{name} is {value!r}", remedy=f"give {len(kinds)} values, parted by commas")
    return tuple(_convert(name, part, kind) for part, kind in zip(parts, kinds, strict=True))
