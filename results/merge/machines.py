"""Is one label one machine? Told by what its rows say of the hardware."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import pandas as pd

from results.merge.conflicts import Conflict

COLUMNS = [
    "machine", "run_id", "provenance", "backend", "device", "cpu", "ram_bytes", "device_name", "device_memory_bytes",
]  # fmt: skip

# The kernel and the driver keep a share for themselves that changes with their versions.
_SAME_SIZE = 0.03

Row = dict[Hashable, Any]
Hardware = dict[tuple[str, ...], str | int]
"""What is known of a machine, by who says it and of what: other tools and engines name things in their own way."""


@dataclass(frozen=True)
class Label:
    """A label that several machines bear.

    Attributes:
        name: the label.
        conflict: what to say of it, and its facts.
        runs: of the first machine, the second, …; None stands for rows without a run.
    """

    name: str
    conflict: Conflict
    runs: list[set[str | None]]

    @property
    def is_separable(self) -> bool:
        """Whether each run is of one machine, so that labels of their own can be given by run."""
        return len(set.union(*self.runs)) == sum(map(len, self.runs))

    def new_names(self, taken: set[str]) -> list[str]:
        """A label for each machine: the first keeps its own, the others get a number that makes none of the `taken`."""
        numbered = (f"{self.name}-{number}" for number in count(2))
        free = (name for name in numbered if name not in taken)
        return [self.name, *islice(free, len(self.runs) - 1)]


def ambiguous(facts: pd.DataFrame) -> list[Label]:
    """The labels under which one thing is said to be two, of distinct `COLUMNS` with the `file` that says each first.

    The rows of a run are of one machine, and runs are of one machine, as long as nothing contradicts it.
    """
    said: dict[str, dict[str | None, list[Row]]] = {}
    for row in facts.reset_index().to_dict("records"):
        run = row["run_id"] if isinstance(row["run_id"], str) else None
        said.setdefault(str(row["machine"]), {}).setdefault(run, []).append(row)
    return [label for name, by_run in said.items() if len((label := _label(name, by_run)).runs) > 1]


def _label(name: str, by_run: dict[str | None, list[Row]]) -> Label:
    """All machines that bear a label, which may be one."""
    machines: list[Hardware] = []
    runs: list[set[str | None]] = []
    files: list[int] = []
    for run, rows in by_run.items():
        told: list[Hardware] = []
        for row in rows:
            _join(_hardware(row), told)
        for hardware in told:
            number = _join(hardware, machines)
            if number == len(runs):
                runs.append(set())
                files.append(rows[0]["file"])
            runs[number].add(run)
    reason = f"{len(machines)} machines are called {name}: {_difference(*machines[:2])}" if machines[1:] else ""
    index = [row["index"] for rows in by_run.values() for row in rows]
    return Label(name, Conflict(reason, index, files), runs)


def _join(hardware: Hardware, machines: list[Hardware]) -> int:
    """Add what is known to the first machine that it does not contradict, or to the list; its number there."""
    for number, machine in enumerate(machines):
        if not _difference(machine, hardware):
            machines[number] = hardware | machine
            return number
    machines.append(hardware)
    return len(machines) - 1


def _hardware(row: Row) -> Hardware:
    said_by = (row["provenance"],)
    # Imported rows may name no device; two cards of different names are then two devices.
    device = row["device"] if isinstance(row["device"], str) else row["device_name"]
    of_device = (*said_by, row["backend"], str(device))
    keys = {"cpu": said_by, "ram_bytes": said_by, "device_name": of_device, "device_memory_bytes": of_device}
    return {(*key, name): row[name] for name, key in keys.items() if not pd.isna(row[name])}


def _difference(a: Hardware, b: Hardware) -> str:
    """What the first contradiction is; nothing where there is none."""
    for key in a:
        if key in b and not _same(a[key], b[key]):
            return f"{key[-1]} is {_shown(a[key])} and {_shown(b[key])}"
    return ""


def _same(a: str | int, b: str | int) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return abs(a - b) <= _SAME_SIZE * max(a, b)


def _shown(value: str | int) -> str:
    return value if isinstance(value, str) else f"{value / 2**30:.1f} GiB"
