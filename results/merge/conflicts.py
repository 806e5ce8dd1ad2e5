"""Where rows call different things the same, so that they must not be set beside each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from results.schema import CASE
from results.verify import FLOORS, FORMATS, MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable

_CASE = ["model", *CASE, "seed"]
_ENGINE = ["machine", "backend"]
_NLL_PLACES = 63  # positions of the probe whose mean `probe_nll` is


@dataclass(frozen=True)
class Conflict:
    """Rows that say two things of one.

    Attributes:
        reason: what they say, without file names, since it becomes a cell.
        rows: index labels of the facts that are not to be compared.
        files: numbers of the files that say each of the two or more things first.
    """

    reason: str
    rows: list[int]
    files: list[int]


@dataclass(frozen=True)
class Rule:
    """Within equal cells of `key`, all cells of `value` are the same, or the rows are of different things."""

    key: list[str]
    value: str
    what: str  # is said of a conflict, with the key's cells and the number of values filled in
    sides: Callable[[pd.DataFrame, str], pd.Series[int]] = field(default=lambda facts, value: _equal(facts[value]))

    @property
    def columns(self) -> list[str]:
        """What the rule reads."""
        return [*self.key, self.value, *_ENGINE]

    def conflicts(self, facts: pd.DataFrame) -> list[Conflict]:
        """Of distinct `columns`, with the `file` that says each first.

        The side with the most engines stays as it is, since it is the others that the rows of the smaller sides must
        not be set beside; where no side has the most, all are marked.
        """
        facts = facts.dropna(subset=[self.value])
        found = []
        for key, alike in facts.groupby(self.key, dropna=False, sort=False):
            if alike[self.value].nunique() == 1:
                continue
            side = self.sides(alike, self.value)
            if side.nunique() == 1:
                continue
            engines = (alike["machine"] + "\n" + alike["backend"]).groupby(side).nunique()
            largest = engines.index[engines == engines.max()]
            marked = alike if len(largest) > 1 else alike[side != largest[0]]
            files = alike.groupby(side)["file"].first().tolist()
            cells = dict(zip(self.key, key, strict=True))
            cells["text"] = f" of {cells['prompt_file']}" if isinstance(cells.get("prompt_file"), str) else ""
            found.append(Conflict(self.what.format(n=side.nunique(), **cells), marked.index.tolist(), files))
        return found


def _equal(values: pd.Series[str]) -> pd.Series[int]:
    return pd.Series(pd.factorize(values)[0], values.index)


def _near(facts: pd.DataFrame, value: str) -> pd.Series[int]:
    """Which values are alike within what rounding makes of a mean over the probe's places.

    The limit is that of the probe's logits, `MARGIN` times the coarsest format's floor, over the root of the number of
    places, whose errors are independent. Formats without a floor have no limit.
    """
    values = facts[value].sort_values()
    floors = [FLOORS.get(str(name)) for name in facts[FORMATS].iloc[0]]
    known = [floor for floor in floors if floor is not None]
    limit = MARGIN * max(known) / math.sqrt(_NLL_PLACES) if len(known) == len(FORMATS) else math.inf
    return (values.diff().abs() > limit * values.abs()).astype(int).cumsum().reindex(facts.index)


RULES = (
    Rule(
        _CASE,
        "tokens_sha256",
        "{model} p{n_prompt} n{n_gen} d{n_depth} b{batch}{text} seed {seed} was given {n} different token streams",
    ),
    Rule(["provenance", "model"], "architecture", "{model} is the name of {n} architectures"),
    Rule(
        ["model", *FORMATS],
        "probe_nll",
        "{model} {weight_format} has {n} values of probe_nll that rounding does not explain: somebody's weights or "
        "engine differ",
        _near,
    ),
)
