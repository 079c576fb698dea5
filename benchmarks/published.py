"""Results as their authors published them: cited data to compare ours with, not measured here."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Literal

from timecycle.errors import SettingsError

Group = Literal["paper", "ablation", "later"]


@dataclass(frozen=True)
class Source:
    """The publication of a number."""

    cite: str
    url: str


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One method's row in one table. Scores are as published: percent, except L1, in the unit of its paper."""

    method: str
    group: Group
    protocol: str  # the key of `protocols`, such as davis2017
    scores: Mapping[str, float]
    inference: str
    source: Source
    place: str  # where in the source
    supervised: bool = False
    checked: bool = True  # against its source; tables leave the others out

    def score(self, name: str) -> float | None:
        """Return a score as published; a missing J&F is the mean of J and F, with halves rounded up as in print."""
        if name == "JF" and name not in self.scores and {"J", "F"} <= self.scores.keys():
            j, f = (Decimal(str(self.scores[part])) for part in ("J", "F"))
            return float(((j + f) / 2).quantize(Decimal("0.1"), ROUND_HALF_UP))
        return self.scores.get(name)


def published_rows(protocol: str | None = None, *, group: Group | None = None) -> list[PublishedRow]:
    """Return all rows, or those of one protocol and one group, in the order of their source."""
    data = _read()
    known = data["protocols"]
    if protocol is not None and protocol not in known:
        raise SettingsError(f"there is no protocol {protocol!r}", remedy=f"choose one of {', '.join(known)}")
    sources = {name: Source(**source) for name, source in data["sources"].items()}
    rows = [PublishedRow(**{**row, "source": sources[row["source"]]}) for row in data["rows"]]
    return [row for row in rows if protocol in (None, row.protocol) and group in (None, row.group)]


def protocols() -> dict[str, str]:
    """Describe each protocol in words."""
    return dict(_read()["protocols"])


def _read() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
