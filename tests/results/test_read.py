from pathlib import Path

import pandas as pd
import pytest

from results.errors import ResultsError
from results.read import read
from results.schema import COLUMNS, NAMES, SCHEMA_VERSION

EXAMPLES = {"text": "text", "int": "7", "float": "0.5", "json": '"{""a"": 1}"'}


def line(**cells: str) -> str:
    """A full row as another program would write it."""
    row = {column.name: EXAMPLES[column.kind] for column in COLUMNS} | {
        "schema_version": str(SCHEMA_VERSION),
        "row_id": "0123456789ab",
    }
    return ",".join((row | cells).values()) + "\n"


def write(path: Path, *lines: str) -> Path:
    path.write_text(",".join(NAMES) + "\n" + "".join(lines), encoding="utf-8", newline="")
    return path


def test_types_are_those_of_the_schema(tmp_path: Path) -> None:
    rows = read(write(tmp_path / "rows.csv", line(), line(n_params="", load_s="", error="", engine_settings="")))
    for column in COLUMNS:
        if column.kind == "int":
            assert rows[column.name].dtype == pd.Int64Dtype()
        elif column.kind == "float":
            assert rows[column.name].dtype == float
        else:
            assert pd.api.types.is_string_dtype(rows[column.name].dropna())
    assert rows["engine_settings"][0] == '{"a": 1}'
    assert rows.loc[1, ["n_params", "load_s", "error", "engine_settings"]].isna().all()


def test_integers_beside_empty_cells_stay_exact(tmp_path: Path) -> None:
    rows = read(
        write(tmp_path / "rows.csv", line(seed=str(2**62 + 1)), line(n_params=""), line(n_params=str(2**53 + 1)))
    )
    assert rows["seed"][0] == 2**62 + 1
    assert rows["n_params"][2] == 2**53 + 1


@pytest.mark.parametrize("word", ["NA", "null", "nan", "None", "true", "1e5"])
def test_words_stay_words(tmp_path: Path, word: str) -> None:
    assert read(write(tmp_path / "rows.csv", line(machine=word)))["machine"][0] == word


def test_what_spreadsheets_do_to_a_file_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", line(), line(machine="second"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(path)["machine"].tolist() == ["text", "second"]
    path.write_bytes(path.read_bytes().removesuffix(b"\r\n"))
    assert len(read(path)) == 2


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (line(launch="first"), r"line 3, column launch: .*'first'"),
        (line(load_s="1,5"), rf"line 3: Expected {len(NAMES)} columns, got {len(NAMES) + 1}"),
        (f"{SCHEMA_VERSION},r\n", rf"line 3: Expected {len(NAMES)} columns, got 2"),
        (line(ram_bytes=str(2**64)), "line 3, column ram_bytes"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, broken: str, said: str) -> None:
    path = write(tmp_path / "rows.csv", line(), broken, line())
    with pytest.raises(ResultsError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lost", [2, 4, 50])
def test_a_torn_last_line_is_not_taken_for_a_row(tmp_path: Path, lost: int) -> None:
    path = write(tmp_path / "rows.csv", line(), line()[:-lost])
    with pytest.raises(ResultsError, match="last line was cut short"):
        read(path)


def test_files_that_are_not_results(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="No such file"):
        read(tmp_path / "absent.csv")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ResultsError, match="not a tokenroof result file"):
        read(tmp_path / "empty.csv")
    latin = write(tmp_path / "latin.csv", line())
    latin.write_bytes(latin.read_bytes().replace(b"text", b"t\xe9xt"))
    with pytest.raises(ResultsError, match=r"line 2, column run_id: .*UTF8"):
        read(latin)
