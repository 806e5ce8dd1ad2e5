"""What an output file holds of an earlier run of a suite, so that --resume neither repeats nor skips it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.quantise.artifact import known_weights_id
from harness.workload import Case, cases_of_rows
from results.read import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from harness.work import Work

_LAYERS = "n_gpu_layers"
_ALL = -1

# Engine, model, settings without the layers off the host, case.
_Request = tuple[str, str, str, Case]


class _Row(NamedTuple):
    """What a resumed run asks of a row."""

    name: str
    status: str
    layers: int  # that were asked to be off the host
    weights_id: str | None


@dataclass(frozen=True)
class Earlier:
    """The last run of a suite on a machine.

    Attributes:
        run_id: its name; None where there is no such run.
        rows: of each request, in the file's order.
    """

    run_id: str | None = None
    rows: Mapping[_Request, Sequence[_Row]] = field(default_factory=dict)

    def measured(self, work: Work, case: Case) -> tuple[str, ...]:
        """The names of the good rows of a case.

        Where the user leaves the layers to the suite, which finds their number by loading, any number is the suite's.
        """
        asked = work.settings.n_gpu_layers
        return tuple(row.name for row in self._good(work, case) if asked in (row.layers, _ALL))

    def layers(self, work: Work, cases: Iterable[Case]) -> int | None:
        """Those off the host, where not all of them fit there with some of the cases, and loading has told how many."""
        rows = [row for case in cases for row in self._good(work, case)]
        return next((row.layers for row in rows if row.layers != _ALL), None)

    def skipped(self, work: Work, case: Case) -> str | None:
        """The name of the row that says that a case was skipped; None where there is none."""
        asked = work.settings.n_gpu_layers
        names = [row.name for row in self._of(work, case) if row.status == "skipped" and row.layers == asked]
        return names[-1] if names else None

    def _good(self, work: Work, case: Case) -> list[_Row]:
        """The rows that measured a case with the weights that the work would have now, as far as they are known."""
        weights_id = known_weights_id(work)
        good = [row for row in self._of(work, case) if row.status == "ok"]
        return [row for row in good if weights_id in (None, row.weights_id)]

    def _of(self, work: Work, case: Case) -> Sequence[_Row]:
        return self.rows.get((work.backend, work.source.name, _text(work.settings.asked()), case), ())


def earlier_run(output: Path, suite: str, machine: str) -> Earlier:
    """Look for it in a file.

    Args:
        output: a result file; it need not exist.
        suite: its label.
        machine: its label.

    Raises:
        ResultsError: the file cannot be read.
    """
    return earlier_in(read(output), suite, machine) if output.exists() else Earlier()


def earlier_in(rows: pd.DataFrame, suite: str, machine: str) -> Earlier:
    """Look for it among all rows of a file."""
    rows = rows[(rows["suite"] == suite) & (rows["machine"] == machine)]
    if rows.empty:
        return Earlier()
    run_id = str(rows["run_id"].iloc[-1])
    found: dict[_Request, list[_Row]] = {}
    rows = rows[rows["run_id"] == run_id]
    for row, case in zip(rows.to_dict("records"), cases_of_rows(rows), strict=True):
        asked = json.loads(row["engine_settings"])["asked"]
        request = (row["backend"], row["model"], _text(asked), case)
        told = _Row(row["row_id"], row["status"], asked[_LAYERS], row["weights_id"])
        found.setdefault(request, []).append(told)
    return Earlier(run_id, found)


def _text(asked: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in asked.items() if name != _LAYERS}, sort_keys=True)
