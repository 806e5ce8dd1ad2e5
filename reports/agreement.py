"""Did the engines answer the same tokens while they were timed? One line under the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.case import case_name

if TYPE_CHECKING:
    import pandas as pd

_LOW = 0.9


def agreement_text(agreement: pd.DataFrame) -> str:
    """One line on each pair of engines, the worst of its cases told apart; empty where no engines met.

    Args:
        agreement: as `results.verify.argmax_agreement` gives it.
    """
    lines = []
    for (one, other), cases in agreement.groupby(["engine_a", "engine_b"], sort=False):
        compared = cases["ids"].sum()
        share = (cases["agreement"] * cases["ids"]).sum() / compared
        line = f"same tokens while timed: {_short(str(one))} and {_short(str(other))} {share:.0%} of {compared}"
        worst = {str(name): value for name, value in cases.sort_values("agreement").iloc[0].items()}
        if worst["agreement"] < _LOW:
            case = case_name(worst)
            line += (
                f", least {worst['agreement']:.0%} in {case} (random weights leave near ties, which rounding decides)"
            )
        lines.append(line)
    return "\n".join(lines)


def _short(engine: str) -> str:
    """The engine of "torch on some-machine"."""
    return engine.split(" on ", 1)[0]
