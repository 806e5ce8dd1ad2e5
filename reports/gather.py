"""Result files for a report: the rows that can be set beside each other, and those that cannot, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from results.arrow import plain
from results.cells import compact_json
from results.errors import ResultsError
from results.formats import load, place
from results.schema import PUBLISHED
from results.validate import first_faults
from results.verify import verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Gathered:
    """The rows of a report, each in exactly one of four tables, all with the columns that `results.read.read` gives.

    Attributes:
        own: measured or imported, failed ones too; they may be set beside each other.
        published: from elsewhere, with an address each.
        incomparable: a merge found that they must not be set beside the others; `comparable_why` says why.
        faulty: a cell holds what its column does not allow; the column `fault` says which, and where.
    """

    own: pd.DataFrame
    published: pd.DataFrame
    incomparable: pd.DataFrame
    faulty: pd.DataFrame


def gather(paths: Sequence[Path]) -> Gathered:
    """Read result files and judge their probes together.

    Raises:
        ResultsError: a file cannot be read, or several do not fit together and must be merged first.
    """
    tables, faults, versions = [], [], set()
    for path in paths:
        table, version = load(path)
        found = first_faults(table, np.arange(table.num_rows))
        tables.append(plain(table).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get))
        faults += [f"{place(path, n)}, {found[n]}" if n in found else None for n in range(table.num_rows)]
        versions.add(version)
    rows = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    if len(versions) > 1 or (len(paths) > 1 and rows["row_id"].duplicated().any()):
        if len(versions) > 1:
            told = (
                "are of several schema versions; make a new one of each older one: tokenroof merge OLD.csv -o NEW.csv"
            )
        else:
            told = "hold the same rows twice; put them together first: tokenroof merge FILES -o all.csv"
        raise ResultsError(f"the files {told}")
    return _sorted(rows.assign(fault=pd.Series(faults, rows.index, dtype="str")))


def with_published(gathered: Gathered, rows: list[dict[str, Any]]) -> Gathered:
    """The same with published rows beside those that the files held.

    Args:
        gathered: as `gather` gives them.
        rows: as `results.importers.published.published_rows` gives them.
    """
    like = gathered.published
    cells = [{name: compact_json(c) if isinstance(c, dict) else c for name, c in row.items()} for row in rows]
    more = pd.DataFrame(cells, dtype=object).reindex(columns=like.columns).astype(like.dtypes.to_dict())
    every = pd.concat([like, more], ignore_index=True).drop_duplicates("row_id")
    return replace(gathered, published=every)


def _sorted(rows: pd.DataFrame) -> Gathered:
    faulty = rows["fault"].notna()
    sound = verify(rows[~faulty].drop(columns="fault").reset_index(drop=True))
    published = sound["provenance"] == PUBLISHED
    unlike = ~published & (sound["comparable"] == "no")
    return Gathered(sound[~published & ~unlike], sound[published], sound[unlike], rows[faulty])
