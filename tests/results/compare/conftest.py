import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from results.schema import COLUMNS

RUNS = Path(__file__).with_name("gpt2_mini_threads.parquet")
IDS = itertools.count()
DTYPES = {"int": "Int64", "float": "float64", "text": "object", "json": "object"}
CELLS = {
    "run_id": "run", "provenance": "measured", "machine": "spark", "os": "Linux", "cpu": "a CPU", "ram_bytes": 8,
    "backend": "llama.cpp", "backend_version": "1", "engine_mode": "llama_decode", "device": "cpu", "n_threads": 2,
    "engine_settings": {"asked": {"n_threads": 2}}, "model": "llama", "architecture": "llama", "weights_id": "w",
    "weight_format": "bf16", "kv_k_format": "f16", "kv_v_format": "f16", "n_depth": 0, "n_prompt": 512, "n_gen": 128,
    "decode_start": 512, "batch": 1, "kv_cache": "on", "tokens_sha256": "t", "status": "ok", "probe_logits": [1.0] * 16,
}  # fmt: skip


def table(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rows as `results.read.read` gives them."""
    types = {column.name: DTYPES[column.kind] for column in COLUMNS}
    return pd.DataFrame(rows).reindex(columns=list(types)).astype(types)


def rows_of(*launches: list[float], **cells: object) -> pd.DataFrame:
    """Rows with these decode rates, a list a launch."""
    given = {
        name: json.dumps(cell) if isinstance(cell, dict | list) else cell for name, cell in (CELLS | cells).items()
    }
    return table(
        [
            {**given, "launch": i, "repetition": k, "decode_tok_s": rate, "row_id": f"{next(IDS):012x}"}
            for i, launch in enumerate(launches, 1)
            for k, rate in enumerate(launch, 1)
        ]
    )


@pytest.fixture(scope="session")
def make() -> Callable[..., pd.DataFrame]:
    return rows_of


@pytest.fixture
def run() -> Callable[[str], pd.DataFrame]:
    """Measured rows of gpt2-mini through llama.cpp: "2 threads", "2 threads again" or "1 thread".

    Twenty launches of five repetitions each (eight with one thread), taken in turn on a virtual machine of 2 cores
    whose speed changed by a third while nothing else ran.
    """
    measured = pd.read_parquet(RUNS)
    return lambda name: table(measured[measured["run"] == name].to_dict("records"))
