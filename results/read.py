"""Reading a result file as a pandas table."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa

from results.arrow import plain
from results.formats import load, place
from results.validate import validate


def read(path: Path | str) -> pd.DataFrame:
    """All rows of a result file, of whichever schema version, in the current one.

    Integers are pandas' nullable `Int64`, floats `float64`, everything else text; JSON cells stay text. An
    empty cell is missing (`isna()`). Columns that this version does not know are kept, as text.

    Raises:
        ResultsError: the file cannot be read, is no result file, or has a broken line, which is named.
    """
    return _rows(load(Path(path))[0])


def read_valid(path: Path | str) -> pd.DataFrame:
    """The same, of a file in which every cell holds what its column allows.

    Raises:
        ResultsError: as `read`, or a cell does not; its line and column are named.
    """
    path = Path(path)
    table, _ = load(path)
    validate(table, str(path), partial(place, path))
    return _rows(table)


def _rows(table: pa.Table) -> pd.DataFrame:
    rows: pd.DataFrame = plain(table).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    # A tool that says nothing of a KV cache has one.
    return rows.fillna({"kv_cache": "on"})
