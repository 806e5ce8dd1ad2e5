"""Rows made from another tool's results: what a row of ours says of itself when it was measured elsewhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from results.schema import BY_NAME, COLUMNS, SCHEMA_VERSION

if TYPE_CHECKING:
    from results.importers.source import Source

Row = dict[str, Any]

_MEASURED = tuple(column.name for column in COLUMNS if column.group == "measured")
_INT64 = (-(2**63), 2**63 - 1)
_OF_PROMPT = ("ttft_s", "prefill_tok_s")
_OF_DECODE = ("decode_tok_s", "tpot_s", "itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s")


class Imported:
    """The rows of one text, in its order, and what was left out of them.

    The same text gives the same `run_id` and `row_id` each time, so that a merge finds a text that was imported twice.

    Args:
        source: the text.
        tool: whose it is.
    """

    def __init__(self, source: Source, tool: str) -> None:
        self.rows: list[Row] = []
        self.left_out: list[str] = []
        self.tool = tool
        self._source = source
        self._digest = hashlib.sha256(source.text.encode(errors="replace")).hexdigest()
        self._run = 1

    def next_run(self) -> None:
        """What follows was another call of the tool."""
        self._run += 1

    def add(self, line: int, **columns: Any) -> None:
        """One row; columns that are None stay empty. Without a rate there is none.

        Raises:
            ResultsError: a number that the schema does not allow there.
        """
        for name, value in columns.items():
            if isinstance(value, int | float):
                self._check(line, name, value)
        known = {name: value for name, value in columns.items() if value is not None and value != {}}
        if "prefill_tok_s" not in known and "decode_tok_s" not in known:
            self.leave_out(line, "no rate")
            return
        why = dict.fromkeys(_MEASURED, f"{self.tool} does not tell")
        why |= dict.fromkeys(_OF_PROMPT, "no prompt (-p 0)") if not known["n_prompt"] else {}
        why |= dict.fromkeys(_OF_DECODE, "prefill only (-n 0)") if not known["n_gen"] else {}
        why |= known.get("unavailable", {})
        self.rows.append(
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": self._id(f"run {self._run}"),
                "launch": 1,
                "provenance": "imported",
                "source": self.tool,
                "batch": 1,
                "kv_cache": "on",
                "repetition": 1,
                "status": "ok",
                **known,
                "unavailable": {name: reason for name, reason in why.items() if name not in known},
                "row_id": self._id(f"row {len(self.rows) + 1}"),
            }
        )

    def leave_out(self, line: int, what: str) -> None:
        """Something in the text makes no row, and why."""
        self.left_out.append(f"line {line}: {what}")

    def _check(self, line: int, name: str, value: float) -> None:
        column = BY_NAME[name]
        least = _INT64[0] if column.least is None else column.least
        most = _INT64[1] if column.most is None else column.most
        if not least <= value <= most:
            shown = f"{value:g}" if isinstance(value, float) else str(value)[:30]
            raise self._source.error(line, f"{name} {shown} cannot be: {least:g} to {most:g} can")

    def _id(self, what: str) -> str:
        return hashlib.sha256(f"{self._digest} {what}".encode()).hexdigest()[:12]
