"""CSV, JSON lines and Parquet hold the same rows, and say clearly what they do not hold."""

import csv
import errno
import json
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.errors import ResultsError
from results.formats import write
from results.read import read
from results.schema import NAMES, SCHEMA_VERSION

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2-mini.csv"
ENDINGS = [".csv", ".jsonl", ".parquet"]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return read(EXAMPLE)


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_come_back_as_they_were(rows: pd.DataFrame, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows{ending}"
    write(rows, path)
    pd.testing.assert_frame_equal(read(path), rows)
    write(rows.iloc[:0], path)
    assert len(read(path)) == 0
    assert list(tmp_path.glob("*.tmp")) == []


text = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1)
danger = st.sampled_from(["=", "+", "-", "@", "'"])


@pytest.mark.parametrize("ending", ENDINGS)
@given(
    label=text | st.builds(str.__add__, danger, text),
    n_params=st.none() | st.integers(0, 2**63 - 1),
    rate=st.none() | st.floats(0, 1e8),
    document=st.none() | st.dictionaries(text, text | st.integers() | st.none() | st.lists(st.booleans())),
    extra=st.none() | text,
)
@settings(max_examples=40, deadline=None)
def test_any_values_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    rows: pd.DataFrame,
    ending: str,
    label: str,
    n_params: int | None,
    rate: float | None,
    document: dict[str, object] | None,
    extra: str | None,
) -> None:
    path = tmp_path_factory.mktemp("any") / f"rows{ending}"
    given = {
        "machine": label,
        "n_params": n_params,
        "decode_tok_s": rate,
        "engine_settings": document,
        "my note": extra,
    }
    cells = pd.DataFrame([given | {"row_id": "0123456789ab"}], dtype=object)
    write(pd.concat([rows.head(1).drop(columns=list(cells), errors="ignore"), cells], axis=1), path)
    (row,) = read(path).to_dict("records")
    for name in ("machine", "n_params", "decode_tok_s"):
        assert pd.isna(row[name]) if given[name] is None else row[name] == given[name]
    assert pd.isna(row["engine_settings"]) if document is None else json.loads(row["engine_settings"]) == document
    assert pd.isna(row.get("my note")) if extra is None else row["my note"] == extra


def test_a_spreadsheet_finds_no_formula_in_a_csv_and_the_other_formats_hold_the_text(
    rows: pd.DataFrame, tmp_path: Path
) -> None:
    label = "=HYPERLINK(1)"
    for ending in ENDINGS:
        write(rows.assign(**{"machine": label, "=note": "-1"}), tmp_path / f"rows{ending}")
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        for cell in [cell for line in csv.reader(file, strict=True) for cell in line]:
            assert not cell.startswith(("=", "+", "@", "\t", "\r"))
            assert not cell.startswith("-") or cell == "-1", "a number, which n_gpu_layers is"
    assert pq.read_table(tmp_path / "rows.parquet")["machine"].to_pylist() == [label] * len(rows)
    assert json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])["machine"] == label
    for ending in ENDINGS:
        assert read(tmp_path / f"rows{ending}")["=note"].tolist() == ["-1"] * len(rows)


def test_json_lines_nest_json_and_leave_out_what_is_empty(rows: pd.DataFrame, tmp_path: Path) -> None:
    write(rows, tmp_path / "rows.jsonl")
    first = json.loads((tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["engine_settings"]["asked"]["weights"] == "bf16"
    assert isinstance(first["probe_logits"], list)
    assert "error" not in first


def test_a_table_made_in_a_notebook_is_written(tmp_path: Path) -> None:
    cells = {
        "provenance": "imported", "source": "llama-bench", "machine": "mac", "backend": "llama.cpp", "model": "qwen",
        "n_depth": 0, "n_prompt": 0, "n_gen": 128, "batch": 1, "kv_cache": "on", "status": "ok",
    }  # fmt: skip
    table = pd.DataFrame(
        [
            cells
            | {"n_threads": 4, "derived": {"decode_tok_s": "tg"}, "row_id": "000000000000", "error": "/home/ada/x"},
            cells | {"n_threads": None, "derived": None, "row_id": "000000000001", "decode_tok_s": float("nan")},
        ]
    )
    write(table, tmp_path / "rows.csv")
    rows = read(tmp_path / "rows.csv")
    assert list(rows) == list(NAMES)
    assert rows["n_threads"].fillna(-1).tolist() == [4, -1], "which pandas had made 4.0"
    assert json.loads(rows["derived"][0]) == {"decode_tok_s": "tg"}
    assert rows["error"][0] == "~/x"
    assert rows["schema_version"].tolist() == [SCHEMA_VERSION] * 2


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_others_wrote_cannot_command_a_terminal_or_break_a_row(
    rows: pd.DataFrame, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"rows{ending}"
    write(rows.assign(model="name", note="own"), path)
    bad = "a\x1b]0;b\x07\x9b31m\x00\r\n\u2028\x7f"
    table = pq.read_table(path).to_pandas() if ending == ".parquet" else None
    if table is not None:
        table.assign(model=bad, note=bad).to_parquet(path)
    else:
        quoted = f'"{bad}"' if ending == ".csv" else json.dumps(bad)
        path.write_text(path.read_text().replace('"name"', quoted).replace('"own"', quoted), newline="")
    found = read(path)
    assert len(found) == len(rows)
    assert set(found["model"]) == set(found["note"]) == {"a ]0;b  31m     "}


@pytest.mark.parametrize(
    ("cells", "error", "said"),
    [
        ({"status": "fine"}, ResultsError, r"row 1, column status: 'fine'"),
        ({"machine": None}, ResultsError, r"row 1, column machine: is empty"),
        ({"n_gen": 1.5}, TypeError, r"n_gen: int expected, not 1\.5"),
        ({"machine": 5}, TypeError, r"machine: text expected"),
    ],
)
def test_rows_that_break_the_schema_are_not_written(
    rows: pd.DataFrame, tmp_path: Path, cells: dict[str, object], error: type[Exception], said: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("before")
    with pytest.raises(error, match=said):
        write(rows.assign(**cells), path)
    assert path.read_text() == "before"


def test_places_that_cannot_be_written_are_a_clear_error(rows: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"end in \.csv, \.jsonl or \.parquet"):
        write(rows, tmp_path / "rows.xlsx")
    with pytest.raises(ResultsError, match="there is no folder"):
        write(rows, tmp_path / "absent" / "rows.csv")
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if not os.access(locked, os.W_OK):  # root writes everywhere
        with pytest.raises(ResultsError, match="Permission denied"):
            write(rows, locked / "rows.csv")
    locked.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_disk_that_fails_in_the_middle_costs_the_old_file_nothing(
    rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = tmp_path / f"rows{ending}"
    path.write_text("before")
    # A system tells an error once, to whoever asks first.
    fsync = Mock(side_effect=[OSError(errno.EIO, "Input/output error"), *[None] * 9])
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ResultsError, match="Input/output error"):
        write(rows, path)
    assert path.read_text() == "before"
    assert list(tmp_path.glob("*.tmp")) == []


GOOD = {"schema_version": SCHEMA_VERSION, "machine": "m"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: "),
        ("7", r"line 2: not a tokenroof result row \(no schema_version\)"),
        ('{"machine": "m"}', "line 2: not a tokenroof result row"),
        (json.dumps(GOOD | {"n_gen": "many"}), "line 2: n_gen: int expected, not 'many'"),
        (json.dumps(GOOD | {"n_gen": 2**64}), "line 2: n_gen: .* too large"),
        (json.dumps(GOOD | {"n_gen": True}), "line 2: n_gen: int expected, not True"),
        ('{"schema_version": 1, "ttft_s": NaN}', "line 2: NaN is not JSON"),
        (
            json.dumps(GOOD | {"schema_version": 1}),
            "line 2, column schema_version: 1 among rows of",
        ),
        ("[" * 100_000, "line 2: "),
    ],
)
def test_a_broken_json_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n")
    with pytest.raises(ResultsError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
@given(content=st.binary(max_size=300) | text.map(str.encode))
@settings(max_examples=60, deadline=None)
def test_arbitrary_content_is_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, ending: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("junk") / f"junk{ending}"
    path.write_bytes(content)
    if not content and ending == ".jsonl":
        assert len(read(path)) == 0
        return
    with pytest.raises(ResultsError) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_parquet_files_of_others_are_refused(rows: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(ResultsError, match="no schema_version"):
        read(path)
    rows.drop(columns="ttft_s").to_parquet(path)
    with pytest.raises(ResultsError, match="first at ttft_s"):
        read(path)
    rows.assign(n_gen="many").to_parquet(path)
    with pytest.raises(ResultsError, match="column n_gen: "):
        read(path)
    rows.assign(schema_version=SCHEMA_VERSION + 1).to_parquet(path)
    with pytest.raises(ResultsError, match="update tokenroof"):
        read(path)
    rows[list(reversed(NAMES))].to_parquet(path)
    pd.testing.assert_frame_equal(read(path), rows)


def test_a_newer_json_line_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "glow": {"a": 1}}) + "\n")
    with pytest.raises(ResultsError, match="update tokenroof"):
        read(path)
