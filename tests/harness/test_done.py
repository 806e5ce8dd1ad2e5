"""Which run goes on, and which failures it has not made good, of rows in a file's order."""

import pandas as pd

from harness.done import NOTHING, answered_for, last_run

ROWS = pd.DataFrame(
    [
        ("first", 1, "ok", "a"),
        ("last", 1, "ok", "a"),
        ("last", 1, "failed", "b"),
        ("last", 2, "ok", "a"),
        ("last", 3, "failed", "a"),
    ],
    columns=["run_id", "launch", "status", "case"],
)


def test_the_last_run_is_told_with_its_good_rows_and_its_highest_launch() -> None:
    done = last_run(ROWS, lambda rows: rows["case"])
    assert (done.run_id, done.last_launch, dict(done.rows)) == ("last", 3, {"a": 2})
    assert last_run(ROWS.head(0), lambda rows: rows["case"]) == NOTHING


def test_a_failure_is_answered_for_until_its_case_is_complete() -> None:
    last = ROWS[ROWS["run_id"] == "last"]
    assert answered_for(last, last["case"].tolist(), 2)["case"].tolist() == ["a", "b", "a"]
    assert answered_for(last, last["case"].tolist(), 3)["case"].tolist() == ["a", "b", "a", "a"]
