"""Decode rates that others published, with their sources, in one comparable definition.

`published.csv` holds every rate that was found, the unusable ones too: `used` says no and `why_not` says why. Its first
columns are as published; from `n_gen` on they are worked out, and `note` says how. `streamed_bytes` and `kv_bytes` are
what one decode step reads at the run's mean context: weights without a looked-up input embedding and without idle
experts; keys and values in 16 bits, and the states of recurrent layers. `pp_attention_flops` are a prompt token's
FLOPs of attention, the mean over the prompt, where that is known to be long; elsewhere they are left out, 1 % at the
usual 512 tokens. `pp_why_not` says why a row's prefill rate is not used although its decode rate is.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from results.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEFINITIONS = ("N over N intervals", "N tokens over N-1 intervals", "not stated", "whole run incl. prefill")


@dataclass(frozen=True)
class PublishedRate:
    """One published measurement, batch 1."""

    device_id: str  # of the device catalog
    engine: str
    model: str
    quant: str
    decode_tok_s: float  # N tokens over N intervals
    prefill_tok_s: float | None
    prefill_attention_flops: int  # a prompt token, the mean over the prompt; 0: not known or small
    n_layers: int
    is_moe: bool
    active_params: int  # that a decode step reads, LM head included
    head_params: int  # of them in the LM head, which a prefill needs for one position only
    streamed_bytes: int  # of weights, a step
    kv_bytes: int  # of KV cache and recurrent state, a step
    source: str

    @property
    def step_bytes(self) -> int:
        """Bytes that one decode step reads."""
        return self.streamed_bytes + self.kv_bytes


def load_published() -> tuple[PublishedRate, ...]:
    """The usable rows of the published rates that come with tokenroof.

    Raises:
        ResultsError: the file is damaged.
    """
    text = resources.files("results").joinpath("published.csv").read_text(encoding="utf-8")
    return read_published(text.splitlines())


def read_published(lines: Iterable[str]) -> tuple[PublishedRate, ...]:
    """The rows that are `used`, from the lines of a CSV with the columns of `published.csv`.

    Raises:
        ResultsError: a cell is missing or holds what it cannot mean; the message names line and column.
    """
    reader = csv.DictReader(lines, strict=True)
    rates = []
    try:
        for row in reader:
            cells = _Cells(row, reader.line_num)
            if cells.yes("used"):
                rates.append(_published(cells))
            elif not row.get("why_not"):
                raise cells.error("why_not", "is empty, but the row is not used")
    except csv.Error as error:
        raise ResultsError(f"published.csv, line {reader.line_num}: {error}") from error
    return tuple(rates)


def comparable_rate(tok_s: float, definition: str, n_gen: int | None) -> float:
    """A published rate as N tokens over N intervals.

    Where N tokens were divided by the time of N-1 intervals it is (N-1)/N of what was printed; without N it stays,
    which is under 1 % too much from 100 tokens on. A definition that is not stated stays as well: Ollama counts its
    first token and starts its clock when that is ready, which is N over N-1 with N of several hundred.

    Raises:
        ValueError: the time holds the prefill too, or the definition is none of those known.
    """
    if definition not in _DEFINITIONS:
        raise ValueError(f"{definition!r} is no known definition")
    if definition.startswith("whole run"):
        raise ValueError("a rate over the whole run is no decode rate")
    if definition == "N tokens over N-1 intervals" and n_gen:
        return tok_s * (n_gen - 1) / n_gen
    return tok_s


def _published(cells: _Cells) -> PublishedRate:
    n_gen = cells.whole("n_gen") if cells.row["n_gen"] else None
    try:
        decode_tok_s = comparable_rate(cells.number("tok_s"), cells.text("rate_definition"), n_gen)
    except ValueError as error:
        raise cells.error("rate_definition", str(error)) from error
    return PublishedRate(
        device_id=cells.text("device_id"),
        engine=cells.text("engine"),
        model=cells.text("model"),
        quant=cells.text("quant"),
        decode_tok_s=decode_tok_s,
        prefill_tok_s=cells.number("pp_tok_s") if cells.row["pp_tok_s"] and not cells.row["pp_why_not"] else None,
        prefill_attention_flops=cells.whole("pp_attention_flops") if cells.row["pp_attention_flops"] else 0,
        n_layers=cells.whole("n_layers"),
        is_moe=cells.yes("moe"),
        active_params=cells.whole("active_params"),
        head_params=cells.whole("head_params"),
        streamed_bytes=cells.whole("streamed_bytes"),
        kv_bytes=cells.whole("kv_bytes", least=0),
        source=cells.text("source"),
    )


@dataclass(frozen=True)
class _Cells:
    """One line's cells by column, each checked as it is read."""

    row: dict[str, str]
    line: int

    def text(self, column: str) -> str:
        if not self.row.get(column):
            raise self.error(column, "is empty")
        return self.row[column]

    def yes(self, column: str) -> bool:
        if self.row.get(column) not in {"yes", "no"}:
            raise self.error(column, "is neither yes nor no")
        return self.row[column] == "yes"

    def number(self, column: str) -> float:
        try:
            number = float(self.text(column))
        except ValueError:
            number = 0.0
        if not 0 < number < 1e6:
            raise self.error(column, "is no rate")
        return number

    def whole(self, column: str, *, least: int = 1) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise self.error(column, f"is no whole number from {least} on")
        return int(text)

    def error(self, column: str, what: str) -> ResultsError:
        return ResultsError(f"published.csv, line {self.line}, column {column}: {self.row.get(column)!r} {what}")
