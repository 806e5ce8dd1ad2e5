"""Did the engines answer the same tokens while they were timed? One line under the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.case import case_name
from reports.numbers import percent

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_LOW = 0.9


def agreement_text(agreement: pd.DataFrame, words: Words) -> str:
    """One line on each pair of engines, the worst of its cases told apart; empty where no engines met.

    Args:
        agreement: as `results.verify.argmax_agreement` gives it.
        words: of the language to speak.
    """
    lines = []
    for (one, other), cases in agreement.groupby(["engine_a", "engine_b"], sort=False):
        compared = cases["ids"].sum()
        share = (cases["agreement"] * cases["ids"]).sum() / compared
        told = {"one": _short(str(one)), "other": _short(str(other)), "share": percent(share), "ids": compared}
        line = words["agreement.engines"].format(**told)
        worst = {str(name): value for name, value in cases.sort_values("agreement").iloc[0].items()}
        if worst["agreement"] < _LOW:
            told = {"share": percent(worst["agreement"]), "case": case_name(worst)}
            line = words["agreement.least"].format(text=line, **told)
        lines.append(line)
    return "\n".join(lines)


def _short(engine: str) -> str:
    """The engine of "torch on some-machine"."""
    return engine.split(" on ", 1)[0]
