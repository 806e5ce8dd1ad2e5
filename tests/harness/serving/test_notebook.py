"""A server measured from a notebook, whose own event loop has the thread that calls."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import harness
from harness.progress import Reporter

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


def _measure(base_url: str, output: Path) -> pd.DataFrame:
    options = harness.Options(
        backends=("openai",),
        base_url=base_url,
        models=("fake-model",),
        n_prompt=(16,),
        n_gen=(8,),
        batch=(1, 2),
        repetitions=1,
        machine="here",
        output=output,
    )
    return harness.run_server(harness.plan_server(options), Reporter())


async def _in_a_cell(base_url: str, output: Path) -> pd.DataFrame:
    return _measure(base_url, output)


@pytest.mark.parametrize("calls", ["a script", "a notebook"])
def test_rows_come_back(fake_server, tmp_path, calls):
    base_url, output = fake_server(itl_s=0.02).base_url, tmp_path / "out.csv"
    rows = _measure(base_url, output) if calls == "a script" else asyncio.run(_in_a_cell(base_url, output))
    assert rows["status"].tolist() == ["ok", "ok"], rows["error"].tolist()
    assert rows["batch"].tolist() == [1, 2]
    # The server sends a token every 20 ms; a busy machine may see them later.
    assert 0 < rows["decode_tok_s"][0] < 1.1 / 0.02


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to oneself")
def test_ctrl_c_ends_a_cell_whose_server_is_silent(fake_server, tmp_path):
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)

    async def cell() -> None:
        # A kernel leaves SIGINT to Python while a cell runs; asyncio.run would take it for itself.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        _measure(fake_server(ttft_s=120.0).base_url, tmp_path / "out.csv")

    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(cell())
    finally:
        signal.signal(signal.SIGINT, usual)
    assert time.monotonic() - began < 60, "it waited for the server, which is silent for two minutes"
