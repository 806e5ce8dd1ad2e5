import re
from pathlib import Path

from results.document import document
from results.schema import BY_NAME, COLUMNS, NAMES, PROVENANCES, SCHEMA_VERSION, names_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "columns.md"
# Columns whose float is a ratio, and those whose unit does not end their name.
RATIOS = {"mbu", "mfu", "quality_top1", "kv_quality_top1"}
OTHER_UNITS = {
    "weight_bits": "bit", "probe_nll": "nats", "kv_quality_kl": "nats", "temp_c_max": "°C", "cpu_busy_other_pct": "%",
    "energy_j": "J", "request_rate": "1/s", "quality_kl": "nats", "experts_hit": "experts",
    "experts_hit_expected": "experts",
}  # fmt: skip


def test_the_page_in_docs_is_the_one_that_is_printed() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "tokenroof schema > docs/columns.md"


def test_the_page_is_a_table_with_every_column() -> None:
    lines = [line for line in document().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert [row[0] for row in cells] == [f"`{name}`" for name in NAMES]
    assert {len(row) for row in cells} == {6}
    by_name = {row[0].strip("`"): row for row in cells}
    assert by_name["status"][3:5] == ["ok or failed or skipped", "every row"]
    assert by_name["n_gpu_layers"][3] == "from -1"
    assert by_name["temp_c_max"][2:4] == ["°C", "from -60 to 200"]
    assert by_name["launch"][4] == "measured"
    assert by_name["source"][4] == "imported, published"


def test_names_are_unique_and_end_with_row_id() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[0] == "schema_version"
    assert NAMES[-1] == "row_id", "a torn line shows by its last cell"


def test_every_number_with_a_unit_says_it_in_its_name_and_in_the_table() -> None:
    endings = {"_tok_s": "tok/s", "_s": "s", "_gbs": "GB/s", "_bytes": "B", "_bytes_per_token": "B/token"}
    for column in COLUMNS:
        by_name = [unit for ending, unit in endings.items() if column.name.endswith(ending)]
        if column.kind == "float":
            assert column.unit == OTHER_UNITS.get(column.name, by_name[0] if by_name else ""), column.name
            assert column.unit or column.name in RATIOS
        elif column.kind == "int" and by_name:
            assert column.unit == by_name[-1]
        elif column.kind in ("text", "json"):
            assert column.unit == ""


def test_what_is_required_is_text_or_a_whole_number_of_known_provenance() -> None:
    for column in COLUMNS:
        assert set(column.required) <= set(PROVENANCES)
        assert not column.required or column.kind in ("text", "int")
    always = {column.name for column in COLUMNS if column.required == PROVENANCES}
    assert {"schema_version", "provenance", "machine", "backend", "model", "status", "row_id"} <= always
    assert BY_NAME["seed"].required == ("measured",)


def test_an_older_version_is_known_by_its_columns() -> None:
    with (Path(__file__).parent / "data" / "schema-1.csv").open(encoding="utf-8") as file:
        assert list(names_of(1)) == file.readline().strip().split(",")
    assert names_of(SCHEMA_VERSION) == NAMES
