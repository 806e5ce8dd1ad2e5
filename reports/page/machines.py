"""Each machine by itself: hardware, engines, conditions, warnings, where its time went, and how to repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.breakdown import breakdown_text
from reports.page.commands import commands
from reports.page.doubts import warnings
from reports.page.engines import engines_table
from reports.page.hardware import conditions, hardware
from reports.page.parts import Machine
from reports.page.texts import name
from reports.serving import users_text
from results.schema import MEASURED

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words


def machines(own: pd.DataFrame, doubts: pd.DataFrame, words: Words) -> list[Machine]:
    """One of each label, in the order in which they are met.

    Args:
        own: the rows that count, failed ones too.
        doubts: as `reports.page.doubts.find_doubts` gives them.
        words: of the page's language.
    """
    return [
        _machine(f"machine-{i}", rows, doubts[doubts["machine"] == label], words)
        for i, (label, rows) in enumerate(own.groupby("machine", sort=False), 1)
    ]


def _machine(machine_id: str, rows: pd.DataFrame, doubts: pd.DataFrame, words: Words) -> Machine:
    elsewhere = rows.loc[rows["provenance"] != MEASURED, "source"].value_counts(sort=False)
    return Machine(
        id=machine_id,
        name=name(rows["machine"].iloc[0]),
        hardware=hardware(rows, words),
        engines=engines_table(rows, machine_id, words),
        conditions=conditions(rows, words),
        warnings=warnings(doubts, words),
        time=[*breakdown_text(rows, words).splitlines(), *users_text(rows, words).splitlines()],
        commands=commands(rows),
        imported=[words["machine.imported"].format(n=n, source=source) for source, n in elsewhere.items()],
    )
