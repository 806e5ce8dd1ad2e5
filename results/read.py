"""Reading a result file as a pandas table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from results.arrow import plain
from results.formats import load


def read(path: Path | str) -> pd.DataFrame:
    """All rows of a result file, of whichever schema version, in the current one.

    Integers are pandas' nullable `Int64`, floats `float64`, everything else text; JSON cells stay text. An
    empty cell is missing (`isna()`). Columns that this version does not know are kept, as text.

    Raises:
        ResultsError: the file cannot be read, is no result file, or has a broken line, which is named.
    """
    table, _ = load(Path(path))
    rows: pd.DataFrame = plain(table).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    # A tool that says nothing of a KV cache has one.
    return rows.fillna({"kv_cache": "on"})
