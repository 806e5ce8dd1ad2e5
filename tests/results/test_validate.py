import numpy as np
import pyarrow as pa
import pytest

from results.arrow import aligned, in_order, schema_of
from results.errors import ResultsError
from results.schema import COLUMNS, NAMES, SCHEMA_VERSION
from results.validate import first_faults, validate

HASH = "0123456789abcdef" * 4
GOOD = {
    "schema_version": SCHEMA_VERSION, "run_id": "r", "launch": 1, "started_at": "2026-11-30T12:06:24.596+00:00",
    "provenance": "measured", "machine": "spark", "os": "Linux", "cpu": "Grace", "ram_bytes": 2**37, "backend": "torch",
    "n_gpu_layers": -1, "model": "llama", "n_depth": 0, "n_prompt": 512, "n_gen": 128, "batch": 1, "kv_cache": "on",
    "repetition": 1, "seed": 0, "tokens_sha256": HASH, "status": "ok", "ttft_s": 0.5, "decode_tok_s": 30.0,
    "temp_c_max": -5.0, "probe_logits": f"[1.5,null,7{',0.5' * 13}]", "engine_settings": "{}", "row_id": "0123456789ab",
}  # fmt: skip


def table(*rows: dict[str, object]) -> pa.Table:
    """As a file's reader makes it, from rows that may hold anything of the right type."""
    return aligned(pa.Table.from_pylist(list(rows), schema=schema_of(NAMES)), in_order(NAMES)).combine_chunks()


def fault(**cells: object) -> str:
    """What is said of a good row with these cells; nothing where it is still good."""
    found = first_faults(table(GOOD | cells), np.zeros(1, np.int64))
    return str(found[0]) if found else ""


def test_a_good_row_has_no_fault() -> None:
    assert fault() == ""
    assert set(GOOD) <= set(NAMES)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"machine": None}, "column machine: is empty"),
        ({"seed": None}, "column seed: is empty"),
        ({"launch": 0}, "column launch: 0 is below 1"),
        ({"n_gpu_layers": -2}, "column n_gpu_layers: -2 is below -1"),
        ({"ttft_s": -0.001}, "column ttft_s: -0.001 is below 0"),
        ({"ttft_s": 90_000.0}, "column ttft_s: 90000.0 is above 86400"),
        ({"decode_tok_s": float("inf")}, "column decode_tok_s: inf is above 1e.08"),
        ({"mbu": float("inf")}, "column mbu: inf is no finite number"),
        ({"mbu": float("nan")}, "column mbu: nan is no finite number"),
        ({"cpu_busy_other_pct": 101.0}, "column cpu_busy_other_pct: 101.0 is above 100"),
        ({"status": "OK"}, "column status: 'OK' is not ok or failed"),
        ({"comparable": "yes"}, "column comparable: 'yes' is not no"),
        ({"provenance": "guessed"}, "column provenance: 'guessed' is not measured or imported or published"),
        ({"tokens_sha256": HASH[:-1]}, "column tokens_sha256: .* does not match"),
        ({"tokens_sha256": HASH + "0"}, "column tokens_sha256: .* does not match"),
        ({"started_at": "30.11.2026 12:06"}, "column started_at: '30.11.2026 12:06' does not match"),
        ({"started_at": "2026-11-30T12:06:24+01:00"}, "column started_at"),
        ({"row_id": "0123456789AB"}, "column row_id"),
        ({"engine_settings": "{'a': 1}"}, "column engine_settings: .* is no JSON object$"),
        ({"engine_settings": "7"}, "column engine_settings: '7' is no JSON object$"),
        ({"engine_settings": "[]"}, r"column engine_settings: '\[\]' is no JSON object$"),
        ({"tiers": "{}"}, "column tiers: '{}' is no JSON list$"),
        ({"probe_logits": "[NaN]"}, "column probe_logits"),
        ({"probe_logits": "[" * 100_000}, "column probe_logits"),
    ],
)
def test_a_cell_that_its_column_does_not_allow_is_named(cells: dict[str, object], said: str) -> None:
    with pytest.raises(ResultsError, match=said):
        validate(table(GOOD | cells), "a.csv", lambda row: f"line {row + 2}")
    assert "\n" not in fault(**cells)


@pytest.mark.parametrize("logit", ['"1.5"', "true", "[1.5]", "{}", "NaN", "Infinity", "1e999", "9" * 400, "1.5, 1.5"])
def test_a_probe_is_a_list_of_16_or_32_finite_numbers(logit: str) -> None:
    for rest in (15, 31):
        assert fault(probe_logits=f"[null{', 1.5' * rest}]") == ""
        assert "is no JSON list of 16 or 32 numbers" in fault(probe_logits=f"[{logit}{', 1.5' * rest}]")
    assert fault(probe_logits="[]")


@pytest.mark.parametrize("provenance", ["imported", "published"])
def test_what_others_do_not_tell_may_be_empty_in_their_rows(provenance: str) -> None:
    unknown = dict.fromkeys(("run_id", "launch", "started_at", "os", "cpu", "ram_bytes", "repetition", "seed"))
    assert fault(**unknown, provenance=provenance, source="llama-bench b9999") == ""
    assert fault(**unknown, provenance=provenance) == "column source: is empty"
    assert fault(**unknown, provenance=provenance, source="s", n_gen=None) == "column n_gen: is empty"


def test_the_first_fault_of_each_part_is_found_by_row() -> None:
    rows = [GOOD, GOOD | {"status": "?"}, GOOD | {"launch": -1}, GOOD, GOOD | {"batch": 0}, GOOD | {"machine": None}]
    found = first_faults(table(*rows), np.array([5, 5, 5, 6, 7, 7]))
    assert {part: (fault.row, fault.column) for part, fault in found.items()} == {5: (1, "status"), 7: (4, "batch")}


def test_the_place_of_the_fault_is_said() -> None:
    rows = table(GOOD, GOOD, GOOD | {"launch": 0})
    with pytest.raises(ResultsError, match=r"^a\.csv: line 4, column launch: 0 is below 1$"):
        validate(rows, "a.csv", lambda row: f"line {row + 2}")


def test_text_that_no_row_uses_is_not_judged() -> None:
    both = table(GOOD, GOOD | {"status": "?"})
    assert first_faults(both.slice(0, 1).combine_chunks(), np.zeros(1, np.int64)) == {}


def test_columns_of_every_kind_are_judged() -> None:
    strange = {"text": "", "int": -(2**62), "float": float("nan"), "json": "?"}
    for column in COLUMNS:
        judged = column.pattern or column.least is not None or column.kind in ("json", "float")
        assert bool(fault(**{column.name: strange[column.kind]})) == bool(judged), column.name
