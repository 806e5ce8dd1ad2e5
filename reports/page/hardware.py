"""What a machine is, and in what state it was while it measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from reports.numbers import gigabytes, number
from reports.page.parts import Fact
from reports.page.texts import name

if TYPE_CHECKING:
    import pandas as pd

    from reports.words import Words

_DAY = len("2026-11-30")


def hardware(rows: pd.DataFrame, words: Words) -> list[Fact]:
    """Of one machine's rows; what they do not tell is left out."""
    label = rows["machine"].iloc[0]
    devices = rows[["device_name", "device_memory_bytes"]].dropna(subset=["device_name"]).drop_duplicates()
    named = [
        words["machine.memory_of"].format(name=name(device), memory=gigabytes(None if memory is None else memory))
        for device, memory in devices.astype(object).where(devices.notna(), None).itertuples(index=False)
    ]
    sizes = [words["machine.gb"].format(value=gigabytes(each)) for each in rows["ram_bytes"].dropna().unique()]
    facts = {
        "label": label if name(label) != label else "",
        "os": _several(rows["os"]),
        "cpu": _several(rows["cpu"]),
        "ram": " / ".join(sizes),
        "device": ", ".join(named),
        "spec": _gbs(rows["bandwidth_spec_gbs"], words),
        "measured": _gbs(rows["bandwidth_measured_gbs"], words),
        "from": _several(rows["bandwidth_source"]),
    }
    return [Fact(words[f"machine.{key}"], text) for key, text in facts.items() if text]


def conditions(rows: pd.DataFrame, words: Words) -> list[Fact]:
    """When one machine measured, how warm and how busy it was, and what could not be read."""
    facts = {
        "period": period(rows["started_at"].dropna(), words),
        "temperature": _number(rows["temp_c_max"].max(), words["machine.celsius"]),
        "throttled": _throttled(rows["throttled"].dropna(), words),
        "busy": _busy(rows["cpu_busy_other_pct"].dropna(), words),
        "energy": _energy(rows["energy_j"].dropna(), words),
        "unread": _unread(rows["unavailable"], words),
    }
    return [Fact(words[f"machine.{key}"], text) for key, text in facts.items() if text]


def _several(cells: pd.Series[str]) -> str:
    """One thing, or, where a label stands for several machines, all of them."""
    return " / ".join(cells.dropna().unique())


def _gbs(values: pd.Series[float], words: Words) -> str:
    low, high = values.min(), values.max()
    if number(low) == number(high):
        return _number(low, words["machine.gbs"])
    return words["machine.gbs_range"].format(low=number(low), high=number(high))


def _number(value: float, text: str) -> str:
    return "" if value != value else text.format(value=number(value))  # noqa: PLR0124 (NaN)


def period(times: pd.Series[str], words: Words) -> str:
    """The days from the first to the last of these times; empty where there is none."""
    if times.empty:
        return ""
    first, last = times.min()[:_DAY], times.max()[:_DAY]
    return first if first == last else words["machine.range"].format(first=first, last=last)


def _throttled(told: pd.Series[str], words: Words) -> str:
    if told.empty:
        return ""
    held = told[told != "no"]
    if held.empty:
        return words["machine.never"]
    reasons = ", ".join(held.unique())
    return words["machine.throttled_some"].format(n=len(held), all=len(told), reason=reasons)


def _busy(shares: pd.Series[float], words: Words) -> str:
    if shares.empty:
        return ""
    return words["machine.busy_share"].format(value=number(shares.max()), median=number(shares.median()))


def _energy(joules: pd.Series[float], words: Words) -> str:
    if joules.empty:
        return ""
    return words["machine.joules"].format(value=number(joules.sum()), n=len(joules))


def _unread(cells: pd.Series[str], words: Words) -> str:
    """Columns by the reason why they are empty."""
    columns: dict[str, list[str]] = {}
    for text in cells.dropna().unique():
        document = json.loads(text)
        for column, reason in document.items() if isinstance(document, dict) else ():
            columns.setdefault(str(reason), []).append(column)
    texts = [
        words["machine.unread_why"].format(columns=", ".join(dict.fromkeys(some)), reason=reason)
        for reason, some in columns.items()
    ]
    return "; ".join(texts)
