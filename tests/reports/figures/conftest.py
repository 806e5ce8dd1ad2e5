"""Rows as a report reads them, and what was drawn, read back from its axes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.figures import FIGURES, Drawn, Missing
from reports.words import words
from results.read import read
from results.verify import verify

Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def _tables() -> dict[str, pd.DataFrame]:
    return {}


@pytest.fixture
def table(write_rows: Callable[..., Path], _tables: dict[str, pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """Rows as a report reads them; those that differ in their ids alone are read once for all tests."""

    def of(*rows: dict[str, Any]) -> pd.DataFrame:
        key = repr([cells | {"row_id": None} for cells in rows])
        if key not in _tables:
            _tables[key] = verify(read(write_rows(*rows)))
        return _tables[key].copy()

    return of


@pytest.fixture
def drawn(table: Callable[..., pd.DataFrame]) -> Callable[..., Drawn]:
    def draw(name: str, *rows: dict[str, Any], lang: str = "en") -> Drawn:
        found = FIGURES[name](table(*rows), words(lang))
        assert isinstance(found, Drawn), found
        return found

    return draw


@pytest.fixture
def missing(table: Callable[..., pd.DataFrame]) -> Callable[..., Missing]:
    def draw(name: str, *rows: dict[str, Any]) -> Missing:
        found = FIGURES[name](table(*rows), words("en"))
        assert isinstance(found, Missing)
        return found

    return draw


@pytest.fixture
def every_figure(make_row: Callable[..., dict[str, Any]]) -> Rows:
    """Rows from which each figure can be drawn: two engines, depths, prompt lengths, layers on the GPU, caches."""
    itl = {"itl_p50_s": 0.025, "itl_p90_s": 0.026, "itl_p99_s": 0.03, "itl_max_s": 0.05}
    sizes = {"weight_bytes": 2 * 10**9, "kv_cache_bytes": 10**8, "device_memory_bytes": 16 * 10**9}
    common = itl | sizes | {"bandwidth_spec_gbs": 120.0, "decode_ceiling_spec_tok_s": 60.0}
    return [
        *(
            make_row(**common, backend=engine, n_depth=depth, kv_read_bytes=depth * 32768, launch=launch)
            for engine in ("torch", "llama.cpp")
            for depth in (0, 4096)
            for launch in (1, 2, 3)
        ),
        *(
            make_row(**common, kv_cache=way, n_gen=gen, tpot_s=seconds, decode_tok_s=1 / seconds)
            for gen in (64, 128)
            for way, seconds in (("on", 0.025), ("off", 0.5))
        ),
        *(
            make_row(**common, kv_cache="prefix", n_depth=depth, n_prompt=512 - depth, kv_kept_tokens=depth, n_gen=1)
            for depth in (0, 256)
        ),
        *(
            make_row(**common, n_depth=depth, n_prompt=0, kv_k_format=form, kv_v_format=form, batch=batch)
            | {"kv_allocated_tokens": depth + 256, "kv_bytes_per_token": 32768, "kv_read_bytes": batch * depth * 32768}
            for depth in (256, 512)
            for form in ("bf16", "q8_0")
            for batch in (1, 4)
        ),
        *(
            make_row(**common, backend="llama.cpp", model="trained", weight_format=form, decode_tok_s=30.0 + n)
            | {"quality_kl": kl, "quality_top1": 0.9}
            for n, (form, kl) in enumerate({"bf16": None, "q8_0": 1e-4, "q4_0": 0.03}.items())
        ),
        make_row(**common, n_prompt=128, ttft_s=0.1, prefill_ceiling_tok_s=2048.0),
        *(
            make_row(
                **common,
                backend="llama.cpp",
                model="big",
                gpu_layers_effective=layers,
                n_gpu_layers=layers,
                engine_settings={"asked": {"n_gpu_layers": layers}},
                decode_tok_s=10.0 + layers,
            )
            for layers in (0, 8)
        ),
    ]
