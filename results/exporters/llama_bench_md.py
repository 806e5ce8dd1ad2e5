"""llama-bench's own table, to paste into an issue: `model | size | params | backend | ngl | test | t/s`.

A row of ours holds what llama-bench tests apart: its prefill is their `pp`, its decode their `tg` from the depth where
our decode starts (llama-bench's `-d 512 -n 128` is our `-p 512 -n 128`). The rate is the mean of the repetitions and ±
their standard deviation, as there; a mean of which only the mean is known has none. Settings have a column where they
differ under one backend.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from results.importers.llama_bench_labels import join_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

Row = dict[str, Any]

# Heading, and the width that llama-bench gives it: below 0 is to the left.
_COLUMNS = {
    "model": -30, "size": 10, "params": 10, "backend": -10, "ngl": 3, "threads": 7, "n_cpu_moe": 10, "n_batch": 7,
    "n_ubatch": 8, "type_k": 6, "type_v": 6, "fa": 4, "test": 15, "t/s": 20,
}  # fmt: skip
_WHERE_TOLD = ("ngl", "threads")
_WHERE_DIFFERENT = ("n_cpu_moe", "n_batch", "n_ubatch", "type_k", "type_v", "fa")


@dataclass
class _Line:
    """One line of the table, its rate still in repetitions."""

    cells: dict[str, str]
    rates: list[float] = field(default_factory=list)
    is_mean: bool = False

    def rate(self) -> str:
        mean = statistics.fmean(self.rates)
        if self.is_mean:
            return f"{mean:.2f}"
        spread = statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0
        return f"{mean:.2f} ± {spread:.2f}"


def llama_bench_md(rows: pd.DataFrame) -> str:
    """The tables, one a machine, each under its name.

    Failed rows and those of several sequences, which llama-bench does not test, are left out.

    Args:
        rows: as `results.read.read` gives them.
    """
    tables: dict[str, dict[tuple[str, ...], _Line]] = {}
    for record in rows.astype(object).where(rows.notna(), None).to_dict("records"):
        row: Row = {str(name): value for name, value in record.items()}
        if row["status"] == "ok" and row["batch"] == 1:
            _collect(tables.setdefault(row["machine"], {}), row)
    return "\n\n".join(f"{machine}\n\n{_table(list(lines.values()))}" for machine, lines in tables.items() if lines)


def _collect(lines: dict[tuple[str, ...], _Line], row: Row) -> None:
    # What else another tool told of a row is not shown, but rows that differ in it have no common mean.
    rest = row["engine_mode"] if row["provenance"] == "measured" else row["engine_settings"]
    for column, test in _tests(row):
        cells = _cells(row) | {"test": test}
        line = lines.setdefault((*cells.values(), row["provenance"], str(rest)), _Line(cells))
        line.rates.append(row[column])
        line.is_mean |= str(_json(row["derived"]).get(column, "")).startswith("mean of the repetitions")


def _tests(row: Row) -> Iterator[tuple[str, str]]:
    """Rate column and llama-bench's name of the test."""
    if row["prefill_tok_s"] is not None and row["n_prompt"]:
        yield "prefill_tok_s", f"pp{row['n_prompt']}" + _at(row["n_depth"])
    if row["decode_tok_s"] is not None and row["n_gen"]:
        yield "decode_tok_s", f"tg{row['n_gen']}" + _at(row["decode_start"] or 0)


def _at(depth: int) -> str:
    return f" @ d{depth}" if depth else ""


def _cells(row: Row) -> dict[str, str]:
    on_cpu = row["device"] == "cpu"
    settings = _json(row["engine_settings"])
    settings |= settings.get("asked", {})
    told = {name: settings.get(name) for name in ("n_cpu_moe", "n_batch", "n_ubatch")}
    told |= {"type_k": row["kv_k_format"], "type_v": row["kv_v_format"], "fa": row["flash_attn"]}
    return {
        "model": join_label(row["model"], row["weight_format"]),
        "size": _size(row["weight_bytes"]),
        "params": _params(row["n_params"]),
        "backend": _backend(row),
        "ngl": "" if on_cpu or row["n_gpu_layers"] is None else str(row["n_gpu_layers"]),
        "threads": str(row["n_threads"]) if on_cpu and row["n_threads"] else "",
        **{name: "" if value is None else str(value) for name, value in told.items()},
    }


def _backend(row: Row) -> str:
    """llama.cpp's own name of its backend; another engine's name and device."""
    if backends := _json(row["engine_settings"]).get("backends"):
        return str(backends)
    device = (row["device"] or "").rstrip("0123456789").rstrip(":").upper()
    return device or row["backend"] if row["backend"] == "llama.cpp" else f"{row['backend']} {device}".strip()


def _size(n_bytes: int | None) -> str:
    if n_bytes is None:
        return ""
    return f"{n_bytes / 2**20:.2f} MiB" if n_bytes < 2**30 else f"{n_bytes / 2**30:.2f} GiB"


def _params(n_params: int | None) -> str:
    if n_params is None:
        return ""
    return f"{n_params / 1e6:.2f} M" if n_params < 1e9 else f"{n_params / 1e9:.2f} B"


def _json(cell: str | None) -> dict[str, Any]:
    value = json.loads(cell) if cell else {}
    return value if isinstance(value, dict) else {}


def _table(lines: list[_Line]) -> str:
    shown = [line.cells | {"t/s": line.rate()} for line in lines]
    values = {name: {cells[name] for cells in shown} for name in _COLUMNS}
    hidden = {name for name in _WHERE_TOLD if values[name] == {""}}
    hidden |= {name for name in _WHERE_DIFFERENT if not _differs(name, shown)}
    columns = [name for name in _COLUMNS if name not in hidden]
    rule = {name: "-" * (abs(_COLUMNS[name]) - 1) + (":" if _COLUMNS[name] > 0 else "-") for name in columns}
    return "\n".join(_line(cells, columns) for cells in ({name: name for name in columns}, rule, *shown))


def _differs(name: str, shown: list[dict[str, str]]) -> bool:
    """Whether a setting has several values under one backend; two engines always differ in some."""
    values: dict[str, set[str]] = {}
    for cells in shown:
        values.setdefault(cells["backend"], set()).add(cells[name])
    return any(len(found) > 1 for found in values.values())


def _line(cells: dict[str, str], columns: list[str]) -> str:
    padded = (
        cells[name].replace("|", r"\|").rjust(_COLUMNS[name])
        if _COLUMNS[name] > 0
        else cells[name].replace("|", r"\|").ljust(-_COLUMNS[name])
        for name in columns
    )
    return "| " + " | ".join(padded) + " |"
