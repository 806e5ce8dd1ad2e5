import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.errors import ResultsError
from results.read import read
from results.schema import ALWAYS, COLUMNS, NAMES, SCHEMA_VERSION
from results.store import HEADER, Store

ROOT = Path(__file__).parents[2]


def row(row_id: str = "0123456789ab", **cells: object) -> dict[str, object]:
    examples = {"text": "text", "int": 7}
    required = {column.name: examples[column.kind] for column in COLUMNS if column.required}
    return required | {"schema_version": SCHEMA_VERSION, "provenance": "measured", "row_id": row_id} | cells


def cells_of(path: Path) -> list[dict[str, str]]:
    """Read by Python's own CSV reader: an independent witness."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


def test_a_new_store_is_a_valid_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    Store(path)
    assert path.read_bytes() == HEADER
    assert list(read(path)) == list(NAMES)
    assert len(read(path)) == 0


printable = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]))


@given(
    text=st.none() | printable,
    integer=st.none() | st.integers(-(2**63), 2**63 - 1),
    number=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    document=st.none() | st.dictionaries(printable, printable | st.integers(0, 9) | st.lists(st.none())),
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    text: str | None,
    integer: int | None,
    number: float | None,
    document: dict[str, object] | None,
) -> None:
    path = tmp_path_factory.mktemp("round") / "trip.csv"
    Store(path).append(row(error=text, ram_bytes=2**40, n_params=integer, load_s=number, engine_settings=document))
    (witness,) = cells_of(path)
    assert witness["error"] == ("'" * bool(re.match("'*[=+@-]", text or "")) + (text or ""))
    assert witness["n_params"] == ("" if integer is None else str(integer))
    assert witness["load_s"] == "" if number is None else float(witness["load_s"]) == number
    assert witness["engine_settings"] == "" if document is None else json.loads(witness["engine_settings"]) == document

    rows = read(path)
    wanted = {"error": text or None, "n_params": integer, "load_s": number, "ram_bytes": 2**40}
    for name, value in wanted.items():
        assert rows[name].isna()[0] if value is None else rows[name][0] == value


def test_a_row_is_one_line_whatever_a_message_holds(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    Store(path).append(row(error='cut\r\nhere,\x00 "quoted"\u2028end \udcff'))
    assert path.read_bytes().count(b"\n") == 2
    assert read(path)["error"][0] == 'cut  here,  "quoted" end ?'


def test_what_a_spreadsheet_would_compute_is_text_to_it_and_unchanged_to_us(tmp_path: Path) -> None:
    path = tmp_path / "formula.csv"
    danger = ["=1+1", "+1", "-1", "@SUM(A1)", "'=1+1", "''-1"]
    store = Store(path)
    for i, text in enumerate([*danger, "it's", "'quoted'", "2.13.0+cpu"]):
        store.append(row(f"{i:012x}", machine=text))
    written = [cells["machine"] for cells in cells_of(path)]
    assert written == [*(f"'{text}" for text in danger), "it's", "'quoted'", "2.13.0+cpu"]
    assert read(path)["machine"].tolist() == [*danger, "it's", "'quoted'", "2.13.0+cpu"]


def test_no_home_directory_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/srv/people/ada"))
    path = tmp_path / "home.csv"
    message = "no /srv/people/ada/a.gguf, /home/grace/b, /Users/alan/c or C:\\Users\\edsger\\d"
    Store(path).append(row(error=message, engine_settings={"file": "/home/grace/b"}, unavailable={"ttft_s": message}))
    (cells,) = cells_of(path)
    assert cells["error"] == "no ~/a.gguf, ~/b, ~/c or ~\\d"
    assert json.loads(cells["engine_settings"]) == {"file": "~/b"}
    assert json.loads(cells["unavailable"]) == {"ttft_s": "no ~/a.gguf, ~/b, ~/c or ~\\d"}


def test_rows_of_other_provenance_know_less(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    known = {column.name for column in COLUMNS if column.required == ALWAYS} - {"provenance"}
    imported = {name: value for name, value in row().items() if name in known} | {"status": "ok"}
    Store(path).append(imported | {"provenance": "imported", "source": "llama-bench"})
    with pytest.raises(ValueError, match="source: never empty"):
        Store(path).append(imported | {"provenance": "published"})
    with pytest.raises(ValueError, match="run_id: never empty"):
        Store(path).append(imported | {"provenance": "measured"})
    assert read(path)["seed"].isna().all()


def test_numbers_that_are_not_finite_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "nan.csv"
    Store(path).append(row(load_s=float("nan"), ttft_s=float("inf"), probe_logits=[1.5, float("-inf"), [float("nan")]]))
    (witness,) = cells_of(path)
    assert (witness["load_s"], witness["ttft_s"], witness["probe_logits"]) == ("", "", "[1.5,null,[null]]")


def test_json_cells_are_compact_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "json.csv"
    Store(path).append(row(engine_settings={"b": 1, "a": {"d": None, "c": True}}))
    assert cells_of(path)[0]["engine_settings"] == '{"a":{"c":true,"d":null},"b":1}'


@pytest.mark.parametrize(
    ("cells", "error"),
    [
        ({"decode_toks": 1.0}, ValueError),  # no such column
        ({"machine": None}, ValueError),
        ({"machine": ""}, ValueError),
        ({"launch": None}, ValueError),
        ({"machine": 5}, TypeError),
        ({"launch": "1"}, TypeError),
        ({"launch": 1.5}, TypeError),
        ({"launch": True}, TypeError),
        ({"load_s": "fast"}, TypeError),
        ({"probe_logits": "[1]"}, TypeError),
        ({"ram_bytes": 2**63}, OverflowError),
    ],
)
def test_a_caller_s_fault_is_raised_and_writes_nothing(
    tmp_path: Path, cells: dict[str, object], error: type[Exception]
) -> None:
    path = tmp_path / "fault.csv"
    store = Store(path)
    with pytest.raises(error):
        store.append(row(**cells))
    assert path.read_bytes() == HEADER


AWKWARD = ['say "hi", then\n stop', "é, 漢\r\n", "plain", "", '"']


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "rows.csv"
    for i, text in enumerate(AWKWARD):
        Store(path).append(row(f"{i:012x}", machine=f"m{text}", error=text, engine_settings={"text": text}))
    return path.read_bytes()


@given(fraction=st.floats(0, 1), from_end=st.integers(0, 40))
@settings(max_examples=80, deadline=None)
def test_a_file_cut_anywhere_is_repaired_to_its_complete_rows(
    tmp_path_factory: pytest.TempPathFactory, written: bytes, fraction: float, from_end: int
) -> None:
    line = written.splitlines(keepends=True)
    ends = [len(b"".join(line[:n])) for n in range(1, len(line) + 1)]
    # Half of the cuts close to the end of a line, where the decisions are.
    cut = int(fraction * len(written)) if from_end > 20 else max(0, ends[int(fraction * (len(ends) - 1))] - from_end)
    whole = [end for end in ends[1:] if end - 1 <= cut]  # only the newline may be missing

    path = tmp_path_factory.mktemp("cut") / "rows.csv"
    path.write_bytes(written[:cut])
    store = Store(path)
    assert path.read_bytes() == (written[: whole[-1]] if whole else HEADER)
    store.append(row("ffffffffffff"))
    assert read(path)["row_id"].tolist() == [f"{i:012x}" for i in range(len(whole))] + ["ffffffffffff"]


def test_a_line_torn_by_another_writer_is_repaired_by_the_next_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    store = Store(path)
    store.append(row("000000000000"))
    with path.open("ab") as file:
        file.write(b'1,"half a r')
    store.append(row("111111111111"))
    assert [cells["row_id"] for cells in cells_of(path)] == ["000000000000", "111111111111"]


WRITER = """
import json, sys
from results.store import Store
print("ready", flush=True)
store, n, row = Store(sys.argv[1]), int(sys.argv[2]), json.load(sys.stdin)
for i in range(n):
    store.append(row | {"row_id": row["machine"] + f"{i:011x}"})
"""


@pytest.mark.parametrize(("names", "n_rows", "words"), [("abcdef", 40, 2), ("abcd", 12, 2000)])
def test_processes_appending_at_once_lose_and_mix_nothing(tmp_path: Path, names: str, n_rows: int, words: int) -> None:
    path = tmp_path / "rows.csv"
    command = [sys.executable, "-c", WRITER, str(path), str(n_rows)]
    writers = [subprocess.Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) for _ in names]
    for writer in writers:  # they begin together, when all have imported what they need
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for name, writer in zip(names, writers, strict=True):
        assert writer.stdin is not None
        writer.stdin.write(json.dumps(row(machine=name, error=f"{name}, " * words)))
        writer.stdin.close()
    assert [writer.wait() for writer in writers] == [0] * len(names)
    cells = cells_of(path)
    assert {cell["row_id"] for cell in cells} == {f"{name}{i:011x}" for name in names for i in range(n_rows)}
    assert len(cells) == len(names) * n_rows
    assert all(cell["error"] == f"{cell['machine']}, " * words for cell in cells)


HOLDER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_row_waits_for_whoever_holds_the_file_and_says_when_it_gave_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv"
    store = Store(path)
    monkeypatch.setattr("results.lines.LOCK_WAIT_S", 0.1)
    command = [sys.executable, "-c", HOLDER, f"{path}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ResultsError, match="another process has kept"):
            store.append(row())
        holder.communicate()
    assert path.read_bytes() == HEADER
    store.append(row())
    assert len(read(path)) == 1


FILLER = """
import json, resource, sys
from results.errors import ResultsError
from results.store import Store
path, limit, rows = sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
store = Store(path)
for row in rows:
    try:
        store.append(row)
    except ResultsError as error:
        print(error)
"""


def test_a_row_that_does_not_fit_on_the_disk_is_an_error_and_leaves_no_trace(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="Windows has no file size limit to stand for a full disk")
    path = tmp_path / "rows.csv"
    Store(path).append(row("000000000000"))
    one_row = path.stat().st_size - len(HEADER)
    long = row("222222222222", error="x" * 10_000)
    rows = [row("111111111111"), long, row("333333333333"), long]
    result = subprocess.run(
        [sys.executable, "-c", FILLER, str(path), str(len(HEADER) + 3 * one_row + 100)],
        cwd=ROOT,
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith(f"{path}: ")
    assert result.stdout.count("\n") == 2
    # Each long row was cut back at once: the short one between them fits, and nothing of the last one is left.
    assert [cells["row_id"] for cells in cells_of(path)] == ["000000000000", "111111111111", "333333333333"]


def test_columns_that_a_later_tool_added_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    names = [*NAMES[:-1], "ceiling", "row_id"]
    Store(tmp_path / "plain.csv").append(row("000000000000"))
    (cells,) = cells_of(tmp_path / "plain.csv")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerow(cells | {"ceiling": "31.5"})
    Store(path).append(row("111111111111", machine="second"))
    rows = read(path)
    assert rows["ceiling"].fillna("-").tolist() == ["31.5", "-"]
    assert rows["machine"].tolist() == ["text", "second"]
    assert rows["row_id"].tolist() == ["000000000000", "111111111111"]


def header_with(**changes: str) -> str:
    return ",".join(changes.get(name, name) for name in NAMES)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Name,Age\nAda,36\n", "not a tokenroof result file"),
        ("PAR1\x00\x01\x02", "not a tokenroof result file"),
        (header_with(ttft_s="ttft_ms") + "\n", "first at ttft_s"),
        (",".join(reversed(NAMES)) + "\n", "first at schema_version"),
        (",".join([*NAMES, "note"]) + "\n", "first at row_id"),
        (f"schema_version,run_id,more\n{SCHEMA_VERSION + 1},r,x\n", "update tokenroof"),
        (header_with() + f"\n{SCHEMA_VERSION + 1},r", "update tokenroof"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(content, newline="")
    with pytest.raises(ResultsError, match=said) as caught:
        Store(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content.encode()


def test_places_that_cannot_hold_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no folder"):
        Store(tmp_path / "absent" / "rows.csv")
    with pytest.raises(ResultsError, match=r"ends in \.csv"):
        Store(tmp_path / "rows.parquet")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ResultsError, match=r"folder\.csv: "):
        Store(tmp_path / "folder.csv")
    assert not (tmp_path / "absent").exists()
