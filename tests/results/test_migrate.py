"""Files of older schemas, as tokenroof wrote them: `data/` holds the first two rows of a real run in each."""

import csv
from pathlib import Path

import pytest

from results.errors import ResultsError
from results.merge import merge
from results.read import read
from results.schema import NAMES, SCHEMA_VERSION, names_of
from results.store import Store
from results.verify import verify

DATA = Path(__file__).parent / "data"
OLD = DATA / "schema-1.csv"


def cells_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


def test_an_old_file_is_read_as_one_of_today() -> None:
    rows = read(OLD)
    assert list(rows) == list(NAMES)
    assert rows["schema_version"].tolist() == [SCHEMA_VERSION] * 2
    assert rows["provenance"].tolist() == ["measured", "measured"]
    assert rows["kv_cache"].tolist() == ["on", "on"]
    fresh = set(NAMES) - set(names_of(1)) - {"provenance", "kv_cache"}
    assert {"source", "mbu", "decode_ceiling_tok_s", "comparable", "energy_j", "verified"} <= fresh
    assert rows[list(fresh)].isna().all(axis=None)
    for cells, row in zip(cells_of(OLD), rows.to_dict("records"), strict=True):
        for name in ("run_id", "machine", "backend", "engine_settings", "probe_logits", "row_id"):
            assert row[name] == cells[name]
        assert row["ram_bytes"] == int(cells["ram_bytes"])
        assert row["decode_tok_s"] == float(cells["decode_tok_s"])
    assert verify(rows)["verified"].tolist() == ["yes", "yes"], "torch and MLX of that run agreed"


def test_a_row_of_version_2_had_a_kv_cache_and_keeps_its_ceiling() -> None:
    cells = cells_of(DATA / "schema-2.csv")
    assert list(cells[0]) == list(names_of(2))
    rows = read(DATA / "schema-2.csv")
    assert list(rows) == list(NAMES)
    assert rows["schema_version"].tolist() == [SCHEMA_VERSION] * 2
    assert rows["kv_cache"].tolist() == ["on", "on"]
    fresh = set(NAMES) - set(names_of(2)) - {"kv_cache"}
    assert {"tiers", "kv_kept_tokens", "kv_quality_kl", "weight_bits", "prompt_file", "experts_hit"} <= fresh
    assert rows[list(fresh)].isna().all(axis=None)
    assert rows["mbu"].tolist() == [float(row["mbu"]) for row in cells]
    for name in ("run_id", "machine", "engine_settings", "conditions", "probe_logits", "row_id"):
        assert rows[name].tolist() == [row[name] for row in cells]


def test_an_old_file_without_rows_is_known_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(",".join(names_of(1)) + "\n")
    assert list(read(path)) == list(NAMES)


def test_a_column_of_its_own_that_today_s_schema_also_has_is_kept_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    (first, _) = cells_of(OLD)
    names = [*names_of(1)[:-1], "source", "note", "row_id"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerow(first | {"source": "the attic", "note": "hot day"})
    (row,) = read(path).to_dict("records")
    assert (row["source_v1"], row["note"]) == ("the attic", "hot day")
    assert row["source"] != row["source"], "missing"


def test_nothing_is_appended_to_an_old_file_and_the_command_that_migrates_it_works(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(OLD.read_bytes())
    with pytest.raises(ResultsError, match="of schema 1") as caught:
        Store(path)
    assert path.read_bytes() == OLD.read_bytes()
    command = str(caught.value).partition("tokenroof ")[2].split()
    assert command == ["merge", str(path), "-o", str(tmp_path / f"rows-v{SCHEMA_VERSION}.csv")]
    merge([path], Path(command[3]))
    Store(command[3])
    assert read(command[3])["row_id"].tolist() == read(path)["row_id"].tolist()


@pytest.mark.parametrize(("version", "said"), [(str(SCHEMA_VERSION + 1), "update tokenroof"), ("0", "does not exist")])
def test_versions_that_are_not_known_are_refused(tmp_path: Path, version: str, said: str) -> None:
    path = tmp_path / "strange.csv"
    path.write_text(OLD.read_text(encoding="utf-8").replace("\n1,", f"\n{version},"), encoding="utf-8")
    with pytest.raises(ResultsError, match=said):
        read(path)


def test_a_row_of_another_version_inside_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    lines = OLD.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:2], "2" + lines[2][1:], ""]), encoding="utf-8")
    with pytest.raises(ResultsError, match="line 3, column schema_version: 2 among rows of schema 1"):
        read(path)
