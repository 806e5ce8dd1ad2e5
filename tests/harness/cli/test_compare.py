"""`tokenroof compare`: files in, verdicts and exit codes out."""

import csv
import json
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from results.store import Store

Compare = Callable[..., Any]
IDS = count()
CELLS: dict[str, object] = {
    "run_id": "0123456789ab", "started_at": "2026-11-30T12:00:00.000+00:00",
    "provenance": "measured", "machine": "spark", "os": "Linux", "cpu": "a CPU", "ram_bytes": 10**9,
    "backend": "llama.cpp", "backend_version": "0.3.36", "n_threads": 2, "engine_settings": {"asked": {"n_threads": 2}},
    "model": "gpt2-mini", "weights_id": 64 * "a", "weight_format": "bf16", "n_depth": 0, "n_prompt": 128, "n_gen": 64,
    "decode_start": 128, "batch": 1, "kv_cache": "on", "seed": 1, "tokens_sha256": 64 * "b", "status": "ok",
}  # fmt: skip


def write(path: Path, *rates: float, **cells: object) -> Path:
    """Append a launch of three repetitions for each rate."""
    store = Store(path)
    for launch, rate in enumerate(rates, 1):
        for repetition in (1, 2, 3):
            store.append(
                CELLS
                | {"launch": launch, "repetition": repetition, "row_id": f"{next(IDS):012x}"}
                | {"decode_tok_s": rate + repetition / 100}
                | cells
            )
    return path


@pytest.fixture
def compare(command: Compare) -> Compare:
    return partial(command, "compare")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write(tmp_path / "base.csv", 100.0, 100.4, 99.6)


def test_a_slowdown_fails_where_it_is_asked_to(base: Path, tmp_path: Path, compare: Compare) -> None:
    new = write(tmp_path / "new.csv", 90.0, 90.4, 89.6, backend_version="0.3.40")
    plain = compare(base, new)
    assert plain.returncode == 0, plain.stderr
    assert "backend_version 0.3.36 → 0.3.40" in plain.stdout
    assert "0.900" in plain.stdout
    assert "slower" in plain.stdout
    assert compare(base, new, "--fail-below", "15").returncode == 0
    failed = compare(base, new, "--fail-below", "5")
    assert failed.returncode == 1
    assert failed.stderr == "tokenroof: slower by more than 5 %: 1 of 1 case\n"
    assert compare(new, base, "--fail-below", "5").returncode == 0, "faster is no failure"
    assert compare(base, new, "--min-effect", "15", "--fail-below", "5").returncode == 0, "no verdict, no failure"


def test_programs_read_one_document(base: Path, tmp_path: Path, compare: Compare) -> None:
    new = write(tmp_path / "new.csv", 100.1, 100.3, 99.7)
    write(new, 50.0, n_gen=32)
    document = json.loads(compare(base, new, "--format", "json").stdout)
    assert [pair["verdict"] for pair in document["pairs"]] == ["no significant difference"]
    assert [line["why"] for line in document["left_out"]] == ["the nearest differs in n_gen 64 → 32"]
    rows = list(csv.DictReader(compare(base, new, "--format", "csv").stdout.splitlines()))
    assert [row["verdict"] for row in rows] == ["no significant difference", "not paired"]


def test_values_of_a_column_within_one_file(base: Path, compare: Compare) -> None:
    write(base, 50.0, 50.1, 50.2, engine_settings={"asked": {"n_threads": 1}}, n_threads=1)
    result = compare(base, "--by", "n_threads", "--format", "json")
    pair = json.loads(result.stdout)["pairs"][0]
    assert (pair["base_side"], pair["new_side"], pair["verdict"]) == ("2", "1", "slower")
    other = compare(base, "--by", "n_threads", "--base", "1", "--format", "json")
    assert json.loads(other.stdout)["pairs"][0]["verdict"] == "faster"


def test_where_nothing_pairs_the_reason_is_the_error(base: Path, tmp_path: Path, compare: Compare) -> None:
    new = write(tmp_path / "new.csv", 100.0, weights_id=64 * "c")
    result = compare(base, new)
    assert result.returncode == 2
    assert "not paired, 2 cases: the nearest differs in weights_id" in result.stdout
    assert ": base.csv: gpt2-mini" in " ".join(result.stdout.split())
    assert result.stderr.startswith("tokenroof: no case of base.csv can be compared: the nearest differs in weights_id")


def test_a_faulty_file_is_named_with_its_line(base: Path, tmp_path: Path, compare: Compare) -> None:
    broken = tmp_path / "broken.csv"
    lines = base.read_text().splitlines()
    lines[2] = lines[2].replace("measured", "guessed")
    broken.write_text("\n".join(lines) + "\n")
    result = compare(base, broken)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"tokenroof: {broken}: line 3, column provenance: 'guessed' is not measured or imported or published\n"
    )


def test_a_file_that_a_spreadsheet_saved_with_semicolons_says_so(base: Path, tmp_path: Path, compare: Compare) -> None:
    for sign, name in ((";", "semicolons"), ("\t", "tabs")):
        saved = tmp_path / f"{name}.csv"
        saved.write_text(base.read_text().replace(",", sign))
        result = compare(base, saved)
        assert result.returncode == 2
        assert f"its cells are separated by {name}; save it anew, separated by commas" in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "two files are needed, and there is 1; or --by COLUMN"),
        (["--by", "machin"], "--by machin: nothing to compare by"),
        (["--by", "machine"], "--by machine: two values are needed, and there is spark"),
        (["--by", "machine", "--base", "mac"], "two values are needed"),
        (["other.csv", "--base", "2"], "--base 2: names a value of --by COLUMN"),
        (["--metric", "tok_s"], "tok_s"),
        (["no-such.csv"], "no-such.csv"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    base: Path, arguments: list[str], message: str, compare: Compare
) -> None:
    result = compare(base, *arguments)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr
