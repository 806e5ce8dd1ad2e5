"""No text makes an importer fail: it gives rows that can be written, or one clear error."""

import string
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.ceilings.imported import complete
from results.errors import ResultsError
from results.formats import write
from results.importers import import_text

SAMPLES = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "data").iterdir())]
FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHUNK = st.one_of(
    st.text(max_size=12),
    st.text(string.digits + ".-+eE", max_size=24),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(['"', "{", "}", "[", "]", "|", ",", "\n", "null", "true", "1" * 400, "NaN", "1e308", "@ d9", "±"]),
)


def check(text: str, folder: Path) -> None:
    fault = ""
    try:
        imported = import_text(text, "any.txt")
    except ResultsError as error:
        fault = str(error)
    if fault:
        assert fault.startswith("any.txt")
        assert "\n" not in fault
        return
    rows = complete(imported.rows, "any.txt", machine="box", model="some")
    assert not any("\x1b" in str(row) or "<script" in str(row) for row in rows)
    if rows:
        write(pd.DataFrame(rows, dtype=object), folder / "rows.jsonl")


@FEW
@given(text=st.text())
def test_arbitrary_text(text: str, tmp_path: Path):
    check(text, tmp_path)


@FEW
@given(data=st.data())
def test_real_text_with_pieces_cut_out_and_put_in(data: st.DataObject, tmp_path: Path):
    text = data.draw(st.sampled_from(SAMPLES))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 40))
        text = text[:start] + data.draw(CHUNK) + text[end:]
    check(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"avg_ts": 1, "n_prompt": 1, "n_gen": 0, "model_type": ' + "[" * 50_000,
        '{"avg_ts": [1], "n_prompt": {"a": 1}, "n_gen": null, "model_type": []}',
        '{"avg_ts": 1e400, "n_prompt": 5, "n_gen": 0, "model_type": "x"}',
        '{"avg_ts": 1, "n_prompt": ' + "9" * 4000 + ', "n_gen": 0, "model_type": "x"}',
        '{"avg_ts": 1, "n_prompt": 2147483647, "n_gen": 0, "n_depth": 2147483647, "model_type": "llama 8B F16", '
        '"model_size": 16060522496, "model_n_params": 8030261248}',
        '{"benchmarks": [{"concurrency": 1, "pp_throughput": {"mean": "x"}}], "latency_mode": 5}',
        '{"benchmarks": [7], "latency_mode": 5}',
        "Prompt: " + "9" * 5000 + " tokens, 1.0 tokens-per-sec\nGeneration: 2 tokens, 1.2.3 tokens-per-sec",
        "| a | 99 GiB | 99 B | CUDA | 1 | tg" + "9" * 5000 + " | 1 |",
        "\n " * 100_000,  # minutes in a scan that is quadratic, as the next ones
        '{"a": "\n' * 50_000,
        '{"a": [1,\n' * 20_000,
    ],
)
def test_absurd_text(text: str, tmp_path: Path):
    check(text, tmp_path)
