"""Rows for reports, made so that what they say is known: 2 GB of weights at 100 GB/s are 20 ms, 50 tok/s at most."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.gather import Gathered, gather
from results.schema import COLUMNS, NAMES, SCHEMA_VERSION

ASKED = {
    "device": "auto",
    "flash_attn": "auto",
    "kv_k_format": "auto",
    "kv_v_format": "auto",
    "n_batch": 0,
    "n_gpu_layers": -1,
    "n_threads": 8,
    "n_ubatch": 0,
    "weights": "bf16",
}
_IDS = (f"{i:012x}" for i in count())


def row(**cells: Any) -> dict[str, Any]:
    """A measured row: 40 tok/s of at most 50, so 25 ms a token, 20 of them for the weights."""
    required = {c.name: {"text": "x", "int": 1}[c.kind] for c in COLUMNS if c.required}
    known = {
        "schema_version": SCHEMA_VERSION,
        "started_at": "2026-11-30T12:00:00+00:00",
        "provenance": "measured",
        "source": None,
        "machine": "spark",
        "cpu": "Grace",
        "backend": "torch",
        "backend_version": "2.13",
        "engine_settings": {"asked": ASKED},
        "model": "llama-3.2-1b",
        "weights_id": "w",
        "weight_format": "bf16",
        "kv_k_format": "bf16",
        "kv_v_format": "bf16",
        "n_depth": 0,
        "n_prompt": 512,
        "n_gen": 128,
        "kv_cache": "on",
        "decode_start": 512,
        "batch": 1,
        "status": "ok",
        "ttft_s": 0.5,
        "prefill_tok_s": 1024.0,
        "decode_tok_s": 40.0,
        "tpot_s": 0.025,
        "peak_host_bytes": 3 * 10**9,
        "streamed_bytes_per_token": 2 * 10**9,
        "kv_read_bytes": 0,
        "bandwidth_measured_gbs": 100.0,
        "bandwidth_source": "catalog",
        "decode_ceiling_tok_s": 50.0,
        "mbu": 0.8,
        "row_id": next(_IDS),
    }
    return required | known | cells


def _text(cell: object) -> object:
    return json.dumps(cell) if isinstance(cell, dict | list) else cell


@pytest.fixture
def make_row() -> Callable[..., dict[str, Any]]:
    return row


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """Writes a CSV as another program might: nothing is checked."""

    def write(*rows: dict[str, Any], name: str = "rows.csv") -> Path:
        table = pd.DataFrame([{k: _text(v) for k, v in cells.items()} for cells in rows], dtype=object)
        table.reindex(columns=list(NAMES)).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return write


@pytest.fixture
def gathered(write_rows: Callable[..., Path]) -> Callable[..., Gathered]:
    return lambda *rows: gather([write_rows(*rows)])
