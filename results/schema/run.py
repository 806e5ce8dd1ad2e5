"""Columns on the run, the machine and the outcome of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.schema.kinds import group, integer, json_object, text
from results.schema.provenance import ALWAYS, FOREIGN, MEASURED, PROVENANCES

if TYPE_CHECKING:
    from results.schema.column import Column

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"

RUN_COLUMNS: list[Column] = group(
    "run",
    integer("schema_version", "version of this list of columns", ALWAYS, least=1),
    text("run_id", "one call of `tokenroof run`; a resumed run keeps it", (MEASURED,)),
    integer(
        "launch", "which start of a worker process, from 1: rates vary most between launches", (MEASURED,), least=1
    ),
    text("suite", "name and version of the fixed list of cases that it belongs to: standard-1", since=4),
    text("started_at", "when the repetition began, UTC, ISO 8601", (MEASURED,), pattern=_TIME),
    text(
        "provenance",
        "measured (by tokenroof), imported (from another tool's output) or published",
        ALWAYS,
        pattern="|".join(PROVENANCES),
        since=2,
    ),
    text("source", "where a row that is not measured comes from: the tool, or an address", FOREIGN, since=2),
    json_object(
        "derived", "column -> how it follows from what the source says, where it does not say it itself", since=2
    ),
)

MACHINE_COLUMNS: list[Column] = group(
    "machine",
    text("machine", "the machine's label, from --machine or its hardware", ALWAYS),
    text("os", "operating system, its version, and the processor's instruction set; of a server elsewhere: empty"),
    text("cpu", "the processor's product name; of a server elsewhere: empty"),
    integer("ram_bytes", "physical memory; of a server elsewhere: empty"),
    text("device_name", "product name of the device that ran the model"),
    integer("device_memory_bytes", "its memory: VRAM, or physical memory for a CPU"),
)

OUTCOME_COLUMNS: list[Column] = group(
    "outcome",
    text("status", "ok, failed, or skipped: of a suite, not tried", ALWAYS, pattern="ok|failed|skipped"),
    text("error", "why it failed or was skipped, for people"),
    json_object("unavailable", "column -> why its cell is empty"),
    text("comparable", "no: a merge found that the row must not be set beside the others", pattern="no", since=2),
    text("comparable_why", "why it must not", since=2),
)
