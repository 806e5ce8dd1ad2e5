import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.errors import ResultsError
from results.samples import SCHEMA, append_sample, fold, read_samples

ROOT = Path(__file__).parents[2]


def sample(row_id: str, **values: object) -> dict[str, object]:
    workload = {"n_depth": 0, "n_prompt": 4, "n_gen": 3, "batch": 2, "launch": 1, "repetition": 1}
    names = {"row_id": row_id, "run_id": "run", "backend": "torch", "model": "gpt2-mini"}
    measured = {"ttft_s": 0.1, "itl_s": [0.01, 1 / 3], "argmax": [5, 6, 7, 8, 9, 10]}
    return names | workload | measured | values


def journal(output: Path) -> Path:
    return output.parent / "out.csv.samples.jsonl"


def parquet(output: Path) -> Path:
    return output.parent / "out.csv.samples.parquet"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.csv"


def test_samples_are_the_same_before_and_after_folding(output: Path) -> None:
    append_sample(output, sample("a"))
    append_sample(output, sample("b", ttft_s=None, itl_s=[], argmax=[]))
    journaled = read_samples(output)
    fold(output)
    folded = read_samples(output)
    for samples in (journaled, folded):
        assert list(samples) == SCHEMA.names
        assert samples["row_id"].tolist() == ["a", "b"]
        assert samples["itl_s"][0].tolist() == [0.01, 1 / 3]
        assert samples["argmax"][0].tolist() == [5, 6, 7, 8, 9, 10]
        assert samples["ttft_s"].isna().tolist() == [False, True]
        assert len(samples["itl_s"][1]) == 0
    assert not journal(output).exists()
    assert pq.read_table(parquet(output)).num_rows == 2


def test_later_runs_are_added(output: Path) -> None:
    for row_id in "abc":
        append_sample(output, sample(row_id))
        fold(output)
    append_sample(output, sample("d"))
    assert read_samples(output)["row_id"].tolist() == ["a", "b", "c", "d"]
    assert pq.read_table(parquet(output))["row_id"].to_pylist() == ["a", "b", "c"]


def test_folding_nothing_makes_nothing(output: Path) -> None:
    fold(output)
    assert not parquet(output).exists()
    assert len(read_samples(output)) == 0
    assert list(read_samples(output)) == SCHEMA.names


def test_a_crash_between_parquet_and_journal_counts_nothing_twice(output: Path) -> None:
    append_sample(output, sample("a"))
    append_sample(output, sample("b"))
    left_behind = journal(output).read_bytes()
    fold(output)
    journal(output).write_bytes(left_behind)  # as if the process had died before it removed the journal
    append_sample(output, sample("c"))
    assert read_samples(output)["row_id"].tolist() == ["a", "b", "c"]
    fold(output)
    assert pq.read_table(parquet(output))["row_id"].to_pylist() == ["a", "b", "c"]


@given(cut=st.integers(1, 10_000))
@settings(max_examples=50, deadline=None)
def test_a_journal_cut_anywhere_gives_its_complete_samples(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    output = tmp_path_factory.mktemp("cut") / "out.csv"
    lines = [json.dumps(sample(row_id)) + "\n" for row_id in "abc"]
    data = "".join(lines).encode()
    cut %= len(data) + 1
    whole = [
        row_id for row_id, end in zip("abc", (len(lines[0]) * n for n in (1, 2, 3)), strict=True) if end - 1 <= cut
    ]
    journal(output).write_bytes(data[:cut])
    assert read_samples(output)["row_id"].tolist() == whole
    append_sample(output, sample("d"))
    fold(output)
    assert read_samples(output)["row_id"].tolist() == [*whole, "d"]


APPENDER = """
import itertools, json, sys
from results.samples import append_sample
sample = json.loads(sys.argv[2])
for i in itertools.count():
    append_sample(sys.argv[1], sample | {"row_id": str(i), "itl_s": [0.001 * i] * 500})
    print(i, flush=True)
"""


def test_nothing_that_was_appended_is_lost_when_the_process_is_killed(output: Path) -> None:
    command = [sys.executable, "-c", APPENDER, str(output), json.dumps(sample("x"))]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(20)]
    process.kill()
    said += [int(line) for line in process.stdout.read().splitlines()]
    assert process.wait() in (-signal.SIGKILL, 1) if sys.platform != "win32" else process.wait() != 0
    process.stdout.close()
    fold(output)
    samples = read_samples(output)
    count = len(samples)
    assert count - len(said) in (0, 1)  # the last one may have been written and not told
    assert samples["row_id"].tolist() == [str(i) for i in range(count)]
    assert all(itl.tolist() == [0.001 * i] * 500 for i, itl in enumerate(samples["itl_s"]))


FOLDER = """
import sys
from results.samples import fold
for _ in range(30):
    fold(sys.argv[1])
"""


def test_folding_while_another_process_appends_loses_nothing(output: Path) -> None:
    folder = subprocess.Popen([sys.executable, "-c", FOLDER, str(output)], cwd=ROOT)
    for i in range(60):
        append_sample(output, sample(str(i)))
        assert len(read_samples(output)) == i + 1
    assert folder.wait() == 0
    fold(output)
    assert pq.read_table(parquet(output))["row_id"].to_pylist() == [str(i) for i in range(60)]


def test_a_caller_s_fault_is_raised_and_writes_nothing(output: Path) -> None:
    faults = [{"extra": 1}, {"launch": "first"}, {"itl_s": ["x"]}, {"itl_s": [float("nan")]}]
    for fault in faults:
        with pytest.raises((ValueError, TypeError)):
            append_sample(output, sample("a", **fault))
    with pytest.raises(ValueError, match="a sample has the columns"):
        append_sample(output, {"row_id": "a"})
    assert not journal(output).exists()


def test_files_of_another_kind_are_refused_and_left_alone(output: Path) -> None:
    parquet(output).write_text("not parquet")
    append_sample(output, sample("a"))
    for use in (fold, read_samples):
        with pytest.raises(ResultsError, match="not a file of samples"):
            use(output)
    assert parquet(output).read_text() == "not parquet"
    assert journal(output).exists()
    parquet(output).unlink()
    journal(output).write_text("no json\n" + json.dumps(sample("a")) + "\n")
    with pytest.raises(ResultsError, match="not a journal of samples"):
        fold(output)
    with pytest.raises(ResultsError, match="there is no folder"):
        append_sample(output.parent / "absent" / "out.csv", sample("a"))
