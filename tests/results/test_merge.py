"""Merging: what is kept, what is refused to be called the same, and what each broken file costs."""

import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results import lines
from results.errors import ResultsError
from results.formats import write
from results.merge import merge
from results.merge.ahead import ahead
from results.read import read
from results.schema import SCHEMA_VERSION
from results.verify import VERDICT, verify

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
GIB = 2**30
HASH = {name: f"{ord(name):064x}" for name in "abcxyz"}
IDS = (f"{i:012x}" for i in count())
PROBE = [3.0, 4.0, *[0.0] * 14]


def row(machine: str = "box", backend: str = "torch", **cells: object) -> dict[str, object]:
    """A measured row, with the run named after machine and backend."""
    return {
        "run_id": f"{machine} {backend}", "launch": 1, "started_at": "2026-11-30T12:00:00Z", "provenance": "measured",
        "machine": machine, "os": "Linux", "cpu": "AMD EPYC", "ram_bytes": 64 * GIB, "device": "cuda:0",
        "device_name": "RTX 5090", "device_memory_bytes": 32 * GIB, "backend": backend, "model": "llama",
        "architecture": "llama", "weights_id": "w", "weight_format": "bf16", "kv_k_format": "bf16",
        "kv_v_format": "bf16", "n_depth": 0, "n_prompt": 512, "n_gen": 128, "batch": 1, "kv_cache": "on",
        "repetition": 1, "seed": 1, "tokens_sha256": HASH["a"], "status": "ok", "decode_tok_s": 30.0, "probe_nll": 12.0,
        "probe_logits": json.dumps(PROBE), "row_id": next(IDS),
    } | cells  # fmt: skip


def file(path: Path, *rows: dict[str, object]) -> Path:
    write(pd.DataFrame(rows), path)
    return path


def reasons(path: Path) -> list[str]:
    rows = read(path)
    assert ((rows["comparable"] == "no") == rows["comparable_why"].notna()).all()
    return rows["comparable_why"].fillna("").tolist()


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_rows_of_all_formats_come_together_in_order(tmp_path: Path, ending: str) -> None:
    first, second, third = row(), row("mac", "mlx"), row("mac", "llama.cpp", note="hot")
    files = [
        file(tmp_path / "b.csv", first), file(tmp_path / "a.parquet", second), file(tmp_path / "c.jsonl", first, third)
    ]  # fmt: skip
    output = tmp_path / f"all{ending}"
    merged = merge(files, output)
    rows = read(output)
    assert rows["row_id"].tolist() == [first["row_id"], second["row_id"], third["row_id"]]
    assert rows["note"].fillna("-").tolist() == ["-", "-", "hot"]
    assert (merged.n_rows, merged.n_kept, merged.n_marked, merged.left_out) == (4, 3, 0, [])
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".lock"} == {
        *(f.name for f in files),
        output.name,
    }


def test_verdicts_are_those_that_verify_gives_to_all_rows_together(tmp_path: Path) -> None:
    wrong = json.dumps([4.0, 3.0, *[0.0] * 14])  # relative L2 0.28, far over bf16's 0.072
    files = [
        file(tmp_path / "a.csv", row(), row("box", "mlx", probe_logits=wrong)),
        file(tmp_path / "b.csv", row("mac", "mlx"), row("mac", "mlx", probe_logits=None, status="failed")),
    ]
    merged = merge(files, tmp_path / "all.csv")
    rows = read(tmp_path / "all.csv")
    assert rows["verified"].fillna("-").tolist() == ["yes", "no", "yes", "-"]
    assert rows["verified_with"].fillna("-").tolist() == ["mlx on mac", "-", "torch on box", "-"]
    assert (merged.verdicts["yes"], merged.verdicts["no"], merged.verdicts[None]) == (2, 1, 1)
    assert verify(rows)[VERDICT].fillna("-").equals(rows[VERDICT].fillna("-"))


def test_duplicates_are_dropped_only_where_every_cell_is_equal(tmp_path: Path) -> None:
    one = row()
    edited = one | {"decode_tok_s": 300.0}
    a, b = file(tmp_path / "a.csv", one, one), file(tmp_path / "b.csv", edited)
    merged = merge([a, b], tmp_path / "all.csv")
    assert (merged.n_kept, merged.n_marked) == (2, 2)
    assert set(reasons(tmp_path / "all.csv")) == {"another row has its row_id and says something else"}
    assert re.search("2 rows share a row_id", merged.conflicts[0])
    swapped = file(tmp_path / "c.csv", one | {"row_id": "aaaaaaaaaaaa", "kv_k_format": None})
    other = file(tmp_path / "d.csv", one | {"row_id": "aaaaaaaaaaaa", "kv_v_format": None})
    assert merge([swapped, other], tmp_path / "two.csv").n_kept == 2, "equal cells in other columns are other rows"


def test_a_merged_file_can_be_merged_into(tmp_path: Path) -> None:
    a, b, c = (file(tmp_path / f"{name}.csv", row(name), row(name, "mlx")) for name in "abc")
    every = tmp_path / "all.csv"
    merge([a, b], every)
    with pytest.raises(ResultsError, match="is there already"):
        merge([b, c], every)
    merged = merge([a, b, every, c], every)
    assert (merged.n_rows, merged.n_kept) == (10, 6), "verdicts of before make no difference"
    merge([a, b, c], tmp_path / "at once.csv")
    assert every.read_bytes() == (tmp_path / "at once.csv").read_bytes()
    assert set(read(every)["verified_with"]) >= {"mlx on a, mlx on b, mlx on c and 2 more"}


def test_of_two_merges_into_one_new_file_the_second_is_refused(tmp_path: Path) -> None:
    a, b, output = file(tmp_path / "a.csv", row()), file(tmp_path / "b.csv", row("mac")), tmp_path / "all.csv"
    with ThreadPoolExecutor() as pool, lines.locked(output):
        waiting = pool.submit(merge, [a], output)
        output.write_bytes(b.read_bytes())
    with pytest.raises(ResultsError, match="is there already"):
        waiting.result()
    assert output.read_bytes() == b.read_bytes()


def test_a_merge_that_was_killed_leaves_the_output_as_it_was_and_nothing_piles_up(tmp_path: Path) -> None:
    parts = [file(tmp_path / f"{i}.csv", *(row(f"m{i}", note="x" * i) for _ in range(50))) for i in range(4)]
    output = file(tmp_path / "all.csv", row())
    before, listed = output.read_bytes(), set(tmp_path.iterdir())
    code = (
        "import os, sys; from pathlib import Path; from results.merge import merge\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"  # in the middle of writing
        "merge([Path(name) for name in sys.argv[1:]], Path(sys.argv[1]))"
    )
    left: list[set[Path]] = []
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", code, output, *parts], cwd=ROOT, check=False, timeout=120)
        assert killed.returncode not in (0, 1, 2)
        assert output.read_bytes() == before
        left.append(set(tmp_path.iterdir()) - listed)
    assert left[0] == left[1]
    assert merge([output, *parts], output).n_kept == 201
    assert set(tmp_path.iterdir()) == listed


@given(places=st.lists(st.integers(0, 3), min_size=1, max_size=12), order=st.permutations(range(4)))
@settings(max_examples=12, deadline=None)
def test_files_hold_each_row_once_however_rows_are_spread_over_files(
    tmp_path_factory: pytest.TempPathFactory, places: list[int], order: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("spread")
    rows = [row(f"m{place}", "torch", launch=i + 1) for i, place in enumerate(places)]
    files = [
        file(folder / f"{n}.csv", *part)
        for n in order
        if (part := [r for r, p in zip(rows, places, strict=True) if p == n])
    ]
    again = [*files, files[0]]
    merged = merge(again, folder / "all.csv")
    assert merged.n_kept == len(rows)
    expected = [row_id for path in files for row_id in read(path)["row_id"]]
    assert read(folder / "all.csv")["row_id"].tolist() == expected
    merge([folder / "all.csv"], folder / "twice.csv")
    assert (folder / "twice.csv").read_bytes() == (folder / "all.csv").read_bytes()


class TestMachines:
    """One label, two machines."""

    def test_two_cards_of_one_name_with_24_and_32_gb(self, tmp_path: Path) -> None:
        laptop = row(run_id="r2", device_memory_bytes=24 * GIB)
        a, b = file(tmp_path / "a.csv", row(), row("mac")), file(tmp_path / "b.csv", laptop)
        merged = merge([a, b], tmp_path / "all.csv")
        said = "2 machines are called box: device_memory_bytes is 32.0 GiB and 24.0 GiB"
        assert reasons(tmp_path / "all.csv") == [said, "", said]
        assert merged.conflicts == [f"{said} (in {a}, {b}); --suffix tells them apart"]
        with pytest.raises(ResultsError, match="2 machines are called box"):
            merge([a, b], tmp_path / "strict.csv", strict=True)
        assert not (tmp_path / "strict.csv").exists()

    def test_a_suffix_tells_whole_runs_apart(self, tmp_path: Path) -> None:
        cpu = {"device": "cpu", "device_name": "AMD EPYC", "device_memory_bytes": 64 * GIB}
        a = file(tmp_path / "a.csv", row(run_id="r1"), row(run_id="r1", **cpu))
        b = file(tmp_path / "b.csv", row(run_id="r2", **cpu), row(run_id="r2", device_memory_bytes=24 * GIB))
        c = file(tmp_path / "c.csv", row(run_id="r3", cpu="Apple M5"))
        merged = merge([a, b, c], tmp_path / "all.csv", suffix=True)
        assert read(tmp_path / "all.csv")["machine"].tolist() == ["box", "box", "box-2", "box-2", "box-3"]
        assert merged.renamed == {"box": ["box", "box-2", "box-3"]}
        assert reasons(tmp_path / "all.csv") == [""] * 5
        rows = read(tmp_path / "all.csv")
        assert rows["verified"].tolist() == ["yes"] * 5, "torch on box-2 is another engine than torch on box"

    def test_a_suffix_makes_no_label_that_is_taken(self, tmp_path: Path) -> None:
        a = file(tmp_path / "a.csv", row(), row("box-2"), row(run_id="r2", cpu="Apple M5"))
        assert merge([a], tmp_path / "all.csv", suffix=True).renamed == {"box": ["box", "box-3"]}
        assert read(tmp_path / "all.csv")["machine"].tolist() == ["box", "box-2", "box-3"]

    @pytest.mark.parametrize(
        "same",
        [
            {"ram_bytes": 63 * GIB},  # a kernel's share
            {"device": "cuda:1", "device_memory_bytes": 24 * GIB},  # two cards in one machine
            {"backend": "mlx", "device_name": "NVIDIA GeForce RTX 5090"},  # engines name cards in their own way
            {"provenance": "imported", "source": "llama-bench", "cpu": "AMD EPYC 9B14"},
            {"device": None, "device_name": None, "device_memory_bytes": None, "status": "failed"},
        ],
    )
    def test_one_machine_may_say_this(self, tmp_path: Path, same: dict[str, object]) -> None:
        a, b = file(tmp_path / "a.csv", row()), file(tmp_path / "b.csv", row(run_id="r2", **same))
        assert merge([a, b], tmp_path / "all.csv").conflicts == []

    def test_one_run_on_two_machines_cannot_be_told_apart_by_a_suffix(self, tmp_path: Path) -> None:
        a = file(tmp_path / "a.csv", row(run_id="r"), row(run_id="r", cpu="Apple M5"))
        merged = merge([a], tmp_path / "all.csv", suffix=True)
        assert merged.renamed == {}
        assert merged.conflicts[0].endswith("give each a --machine of its own")
        assert reasons(tmp_path / "all.csv") == ["2 machines are called box: cpu is AMD EPYC and Apple M5"] * 2


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"tokens_sha256": HASH["b"]}, "llama p512 n128 d0 b1 seed 1 was given 2 different token streams"),
        ({"architecture": "qwen3"}, "llama is the name of 2 architectures"),
        # bf16: 3 · 0.024 / √63 = 0.00907 of 12 is 0.109
        ({"probe_nll": 12.12}, "llama bf16 has 2 values of probe_nll that rounding does not explain"),
    ],
)
def test_one_name_for_two_things(tmp_path: Path, other: dict[str, object], said: str) -> None:
    a, b = file(tmp_path / "a.csv", row()), file(tmp_path / "b.csv", row("mac", "mlx", **other))
    merged = merge([a, b], tmp_path / "all.csv")
    assert all(reason.startswith(said) for reason in reasons(tmp_path / "all.csv")), (
        "nobody knows which of two is right"
    )
    assert merged.conflicts[0].startswith(said)
    assert f"(in {a}, {b})" in merged.conflicts[0]
    c = file(tmp_path / "c.csv", row("spark", "llama.cpp"))
    merge([a, b, c], tmp_path / "three.csv")
    assert [bool(reason) for reason in reasons(tmp_path / "three.csv")] == [False, True, False], "two against one"
    with pytest.raises(ResultsError, match=said):
        merge([a, b], tmp_path / "strict.csv", strict=True)


def test_two_texts_of_one_name(tmp_path: Path) -> None:
    texts = [row(machine, prompt_file="alice.txt", tokens_sha256=HASH[machine[0]]) for machine in ("a", "b")]
    files = [file(tmp_path / f"{i}.csv", text) for i, text in enumerate(texts)]
    said = "llama p512 n128 d0 b1 of alice.txt seed 1 was given 2 different token streams"
    assert merge(files, tmp_path / "all.csv").conflicts[0].startswith(said)


@pytest.mark.parametrize(
    "other",
    [
        {"tokens_sha256": HASH["b"], "n_gen": 64},
        {"tokens_sha256": HASH["b"], "seed": 2},
        {"tokens_sha256": HASH["b"], "prompt_file": "alice.txt"},
        {"tokens_sha256": None},
        {"architecture": "llama2", "provenance": "imported", "source": "llama-bench"},
        {"probe_nll": 12.1},
        {"probe_nll": 13.0, "weight_format": "f32"},
        {"probe_nll": 13.0, "weight_format": "q4_k"},
        {"probe_nll": None},
    ],
)
def test_these_are_no_conflicts(tmp_path: Path, other: dict[str, object]) -> None:
    a, b = file(tmp_path / "a.csv", row()), file(tmp_path / "b.csv", row("mac", "mlx", **other))
    assert merge([a, b], tmp_path / "all.csv").conflicts == []


def test_several_reasons_stand_in_one_cell(tmp_path: Path) -> None:
    a = file(tmp_path / "a.csv", row())
    b = file(tmp_path / "b.csv", row("mac", architecture="qwen3", tokens_sha256=HASH["b"]))
    merge([a, b], tmp_path / "all.csv")
    assert reasons(tmp_path / "all.csv")[0].count("; ") == 1


def test_a_reason_names_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "ada lovelace"
    folder.mkdir()
    files = [file(folder / f"{name}.csv", row(name, architecture=name)) for name in "ab"]
    merge(files, tmp_path / "all.csv")
    assert "ada" not in (tmp_path / "all.csv").read_text()


class TestBrokenFiles:
    """A broken file costs itself."""

    @pytest.fixture
    def good(self, tmp_path: Path) -> Path:
        return file(tmp_path / "good.csv", row(), row("mac"))

    def broken(self, good: Path, old: str, new: str) -> Path:
        path = good.with_name("broken.csv")
        path.write_text(
            "\n".join(re.sub(old, new, line) if i == 2 else line for i, line in enumerate(good.read_text().split("\n")))
        )
        return path

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('"ok"', '"fine"', r"line 3, column status: 'fine' is not ok or failed or skipped"),
            (",512,", ",many,", r"line 3, column n_prompt: .*'many'"),
            (",512,", ",-512,", r"line 3, column n_prompt: -512 is below 0"),
            ('"$', "", r"the last line was cut short|line 3"),
            (f"^{SCHEMA_VERSION},", "1,", rf"line 3, column schema_version: 1 among rows of schema {SCHEMA_VERSION}"),
        ],
    )
    def test_it_names_its_line_and_column(self, tmp_path: Path, good: Path, old: str, new: str, said: str) -> None:
        broken = self.broken(good, old, new)
        merged = merge([broken, good, tmp_path / "absent.csv"], tmp_path / "all.csv")
        assert (merged.n_rows, merged.n_kept) == (2, 2)
        assert re.search(said, merged.left_out[0])
        assert merged.left_out[0].startswith(str(broken))
        assert merged.left_out[1] == f"{tmp_path / 'absent.csv'}: No such file or directory"
        with pytest.raises(ResultsError, match=said):
            merge([broken, good], tmp_path / "strict.csv", strict=True)
        with pytest.raises(ResultsError, match=said):
            merge([broken], tmp_path / "alone.csv")
        assert not (tmp_path / "strict.csv").exists()

    def test_an_odd_probe_costs_its_file_and_not_the_merge(self, tmp_path: Path, good: Path) -> None:
        broken = self.broken(good, r"\[3\.0,", '[""3.0"",')
        merged = merge([broken, good], tmp_path / "all.csv")
        assert (merged.n_kept, len(merged.left_out)) == (2, 1)
        assert re.search(r"broken\.csv: line 3, column probe_logits: .* is no JSON list", merged.left_out[0])

    def test_the_line_is_right_in_every_file_of_many(self, tmp_path: Path, good: Path) -> None:
        files = [good, self.broken(good, '"ok"', '"fine"')]
        merged = merge([files[0], files[0], files[1], files[0]], tmp_path / "all.csv")
        assert merged.n_rows == 6
        assert "broken.csv: line 3, column status" in merged.left_out[0]

    def test_a_broken_output_is_not_written_over(self, tmp_path: Path, good: Path) -> None:
        broken = self.broken(good, '"ok"', '"fine"')
        before = broken.read_bytes()
        with pytest.raises(ResultsError, match="would lose the file"):
            merge([good, broken], broken)
        assert broken.read_bytes() == before


def test_mixed_schema_versions_are_refused_with_the_commands_that_mend_it(tmp_path: Path) -> None:
    files = [tmp_path / "from version 1.csv", tmp_path / "2.csv", file(tmp_path / "new.csv", row())]
    for version, path in enumerate(files[:2], start=1):
        path.write_bytes((DATA / f"schema-{version}.csv").read_bytes())
    for number in (0, 1):
        with pytest.raises(ResultsError, match="migrate first") as caught:
            merge(files, tmp_path / "all.csv")
        migrated = files[number].with_name(f"{files[number].stem}-v{SCHEMA_VERSION}.csv")
        command = shlex.split(str(caught.value).partition("migrate first: ")[2])
        assert command == ["tokenroof", "merge", str(files[number]), "-o", str(migrated)]
        merge([files[number]], migrated)
        files[number] = migrated
    assert merge(files, tmp_path / "all.csv").n_kept == 5
    assert read(tmp_path / "all.csv")["verified"].tolist()[:2] == ["yes", "yes"]


def test_many_small_tables_are_judged_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        file(tmp_path / f"{i}.csv", row(f"m{i % 3}", launch=i + 1), row(f"m{i % 3}", "mlx", **{f"own {i % 2}": "x"}))
        for i in range(9)
    ]
    merge(files, tmp_path / "whole.csv")
    monkeypatch.setattr("results.merge.reading._ROWS", 3)
    monkeypatch.setattr("results.csv_file._SLICE_ROWS", 2)
    merge(files, tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert {"own 0", "own 1"} <= set(read(tmp_path / "whole.csv"))


def test_work_comes_in_order_and_begins_only_a_little_ahead() -> None:
    begun: list[int] = []
    endless = (begun.append(i) or i for i in count())
    assert [future.result() for future in islice(ahead(str, endless), 20)] == [str(i) for i in range(20)]
    assert len(begun) <= 25


def test_a_summary_of_a_merged_file_is_that_of_its_rows(tmp_path: Path) -> None:
    files = [file(tmp_path / "a.csv", row()), file(tmp_path / "b.csv", row("mac"))]
    merge(files, tmp_path / "all.csv")
    together = verify(pd.concat([read(path) for path in files], ignore_index=True))
    merged = read(tmp_path / "all.csv")
    pd.testing.assert_frame_equal(merged.drop(columns=VERDICT), together.drop(columns=VERDICT))
    assert merged[VERDICT].fillna("-").to_dict() == together[VERDICT].fillna("-").to_dict()


def test_output_of_no_known_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"end in \.csv"):
        merge([tmp_path / "absent.csv"], tmp_path / "all.xlsx")
    with pytest.raises(ResultsError, match="there is no folder"):
        merge([tmp_path / "absent.csv"], tmp_path / "absent" / "all.csv")
