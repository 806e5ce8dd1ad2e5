"""No row is dropped in silence: each is in one of four tables."""

from typing import Any

import pandas as pd
import pytest

from reports.gather import gather, with_published
from results.errors import ResultsError
from results.importers.published import published_rows
from results.schema import names_of


def test_each_row_is_in_one_table(gathered: Any, make_row: Any) -> None:
    rows = [
        make_row(),
        make_row(status="failed", error="out of memory"),
        make_row(comparable="no", comparable_why="llama is the name of 2 architectures"),
        make_row(provenance="published", source="https://example.org"),
        make_row(decode_tok_s=float("inf")),
        make_row(machine=""),
    ]
    found = gathered(*rows)
    ids = [table["row_id"].tolist() for table in (found.own, found.incomparable, found.published, found.faulty)]
    assert ids == [[r["row_id"] for r in some] for some in (rows[:2], rows[2:3], rows[3:4], rows[4:])]
    assert found.faulty["fault"].tolist() == [
        "line 6, column decode_tok_s: inf is above 1e+08",
        "line 7, column machine: is empty",
    ]


def test_engines_of_several_files_are_judged_together(write_rows: Any, make_row: Any) -> None:
    probe = {"probe_logits": [3.0, 4.0, *[0.0] * 14], "probe_nll": 1.0}
    files = [write_rows(make_row(backend=b, machine=b, **probe), name=f"{b}.csv") for b in ("torch", "mlx")]
    assert gather(files).own["verified"].tolist() == ["yes", "yes"]
    assert gather(files[:1]).own["verified"].isna().all()


def test_the_same_row_in_two_files_must_be_merged(write_rows: Any, make_row: Any) -> None:
    same = make_row()
    files = [write_rows(same, name="a.csv"), write_rows(same, make_row(), name="b.csv")]
    with pytest.raises(ResultsError, match=r"the same rows twice; .*tokenroof merge"):
        gather(files)


def test_files_of_several_schemas_must_be_merged(write_rows: Any, make_row: Any) -> None:
    new = write_rows(make_row(), name="new.csv")
    table = pd.read_csv(write_rows(make_row(schema_version=1), name="old.csv"), dtype=str)
    table[list(names_of(1))].to_csv(new.with_name("old.csv"), index=False)
    assert len(gather([new.with_name("old.csv")]).own) == 1
    with pytest.raises(ResultsError, match="several schema versions"):
        gather([new, new.with_name("old.csv")])


def test_published_rates_join_those_of_the_file_once(gathered: Any, make_row: Any) -> None:
    rows = published_rows()
    once = with_published(gathered(make_row()), rows)
    assert len(once.published) == len({row["row_id"] for row in rows})
    assert len(once.own) == 1
    assert len(with_published(once, rows).published) == len(once.published)
