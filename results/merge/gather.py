"""The first pass of a merge: rows go to the disk, and what must be known of all of them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from results.merge import machines
from results.merge.conflicts import RULES
from results.merge.facts import Facts, cell_hashes, row_hashes
from results.schema import NAMES
from results.verify import PROBE, VERDICT

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from results.merge.facts import Hashes

    Flags = NDArray[np.bool_]

COMPUTED = ["comparable", "comparable_why", *VERDICT]  # by a merge, from all rows that meet in it


class Rows:
    """All rows of a merge, table by table.

    Attributes:
        machines: what rows say of their hardware.
        ruled: what they say that is under each of `RULES`.
        probes: what their verdicts follow from.
        extra: columns that the schema does not know.
    """

    def __init__(self, folder: Path) -> None:
        self.machines = Facts(machines.COLUMNS)
        self.ruled = [Facts(rule.columns) for rule in RULES]
        self.probes = Facts(PROBE)
        self.extra: list[str] = []
        self._folder = folder
        self._ids: list[Hashes] = []
        self._contents: list[Hashes] = []

    def add(self, table: pa.Table, file: NDArray[np.int64]) -> None:
        """Take in a table, whose rows are from the files of these numbers."""
        cells = cell_hashes(table)
        for facts in (self.machines, *self.ruled, self.probes):
            facts.add(table, cells, file)
        compressed = pa.ipc.IpcWriteOptions(compression="lz4")  # a seventh of the size here, and quicker than the disk
        with pa.ipc.new_file(self._path(len(self)), table.schema, options=compressed) as spill:
            spill.write_table(table)
        self._ids.append(cells["row_id"])
        self._contents.append(row_hashes(cells, cells.keys() - set(COMPUTED)))
        self.extra += [name for name in table.column_names if name not in {*NAMES, *self.extra}]

    def __len__(self) -> int:
        """How many tables were added."""
        return len(self._ids)

    def table(self, number: int) -> pa.Table:
        """A table as it was added."""
        with pa.OSFile(self._path(number)) as file:
            return pa.ipc.open_file(file).read_all()

    def repeated(self) -> tuple[list[Flags], list[Flags]]:
        """Of each table: which rows are exact duplicates of earlier ones; which share a row_id with a different row.

        What a merge computes may differ between duplicates.
        """
        rows = pd.DataFrame({"id": np.concatenate(self._ids), "content": np.concatenate(self._contents)})
        duplicate = rows.duplicated().to_numpy()
        clashing = rows["id"].isin(rows["id"][~duplicate & rows["id"].duplicated().to_numpy()]).to_numpy()
        ends = np.cumsum([len(ids) for ids in self._ids])[:-1]
        return np.split(duplicate, ends), np.split(clashing, ends)

    def _path(self, number: int) -> str:
        return str(self._folder / f"{number}.arrow")
