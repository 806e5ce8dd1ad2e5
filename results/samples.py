"""Every interval of every repetition, in a side file of the results: `<output>.samples.parquet`.

Parquet cannot be appended to, so each repetition first goes to a journal, `<output>.samples.jsonl`, one line
each, on disk before the next is measured; `fold` moves the journal into the Parquet file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from results import lines
from results.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

SCHEMA = pa.schema(
    [
        ("row_id", pa.string()),  # the row of the result file
        ("run_id", pa.string()),
        ("backend", pa.string()),
        ("model", pa.string()),
        ("n_depth", pa.int64()),
        ("n_prompt", pa.int64()),
        ("n_gen", pa.int64()),
        ("batch", pa.int64()),
        ("launch", pa.int64()),
        ("repetition", pa.int64()),
        ("ttft_s", pa.float64()),
        ("itl_s", pa.list_(pa.float64())),  # seconds, in order; one interval for all sequences of a batch
        ("argmax", pa.list_(pa.int32())),  # step-major: step s, sequence b is item s * batch + b
    ]
)


def append_sample(output: Path | str, sample: Mapping[str, object]) -> None:
    """Write one repetition to the journal and force it to disk.

    Args:
        output: the result file that the samples belong to.
        sample: a value for each name of `SCHEMA`; `ttft_s` may be None (decode only).

    Raises:
        ResultsError: it could not be written; earlier samples are intact.
        ValueError, TypeError: a fault of the caller: names or types differ from `SCHEMA`.
    """
    if sample.keys() != set(SCHEMA.names):
        raise ValueError(f"a sample has the columns {SCHEMA.names}, not {list(sample)}")
    record = pa.Table.from_pylist([sample], schema=SCHEMA).to_pylist()[0]
    line = json.dumps(record, allow_nan=False) + "\n"
    output = Path(output)
    with lines.locked(output), _journal(output).open("a+b", buffering=0) as file:
        lines.mend(file, _is_record)
        lines.append(file, line.encode())


def fold(output: Path | str) -> None:
    """Move the journal into the Parquet file.

    A sample is in one of the two at any moment, and in both only between the Parquet file's replacement and
    the journal's removal: its row_id then keeps it from being counted twice.

    Raises:
        ResultsError: one of the files cannot be read or written; both are then as they were.
    """
    output = Path(output)
    with lines.locked(output):
        if not _journal(output).exists():
            return
        _replace(_parquet(output), _read(output))
        _journal(output).unlink()


def read_samples(output: Path | str) -> pd.DataFrame:
    """All samples of a result file, folded or not, with the columns of `SCHEMA`; empty where there are none.

    Raises:
        ResultsError: a file cannot be read or is none of ours.
    """
    samples: pd.DataFrame = _read(Path(output)).to_pandas()
    return samples


def _journal(output: Path) -> Path:
    return output.with_name(f"{output.name}.samples.jsonl")


def _parquet(output: Path) -> Path:
    return output.with_name(f"{output.name}.samples.parquet")


def _read(output: Path) -> pa.Table:
    # The journal first: a fold in between only moves its samples to where they are looked for next.
    journal = _read_journal(_journal(output))
    folded = _read_parquet(_parquet(output))
    seen = set(folded["row_id"].to_pylist())
    fresh = {record["row_id"]: record for record in journal if record["row_id"] not in seen}
    return pa.concat_tables([folded, pa.Table.from_pylist(list(fresh.values()), schema=SCHEMA)])


def _read_journal(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror or error}") from error
    *whole, last = data.split(b"\n")
    if _is_record(last):
        whole.append(last)
    try:
        return [json.loads(line) for line in whole]
    except ValueError as error:
        raise ResultsError(f"{path}: not a journal of samples ({error}); move it away") from error


def _is_record(line: bytes) -> bool:
    """Whether a line is complete: no prefix of a JSON object is itself JSON."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> pa.Table:
    if not path.exists():
        return SCHEMA.empty_table()
    try:
        return parquet.read_table(path).select(SCHEMA.names).cast(SCHEMA)
    except (OSError, KeyError, pa.ArrowException) as error:
        fault = str(error).partition("\n")[0]
        raise ResultsError(f"{path}: not a file of samples ({fault}); move it away") from error


def _replace(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            parquet.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
