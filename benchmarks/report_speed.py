"""How long `tokenroof report` takes, stage by stage, how much memory, and how large the page is.

    python benchmarks/report_speed.py [machines] [rows of each]

Without numbers: ten machines of 1 000 rows, as people merge them, then ten of 20 000. The rows are made up: three
engines, four models, depths and prompts, three launches of three repetitions, rates between 40 and 90 % of their
ceilings. Each report is made in a process of its own, whose peak resident memory is printed.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.machine.memory import HostPeak
from reports.gather import gather
from reports.report import write_report
from results.schema import COLUMNS, MEASURED, NAMES, SCHEMA_VERSION

_AIMS = ((10, 1_000, 15.0), (10, 20_000, 60.0))  # machines, rows of each, seconds
_LAUNCHES = _REPETITIONS = 3
_BACKENDS = ("torch", "mlx", "llama.cpp")
_MODELS = {"qwen3-0.6b": 1.2e9, "llama-3.2-1b": 2.5e9, "llama-3.2-3b": 6.4e9, "llama-3.1-8b": 15e9}
_DEPTHS = (0, 1024, 4096, 16384, 32768)
_KV_TOKEN = 65_536
_ASKED = {
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
_FILLERS = {"text": "any", "int": 1, "float": 1.0, "json": "{}"}


def made_up_rows(n_machines: int, n_rows: int) -> pd.DataFrame:
    """Rows of machines, `n_rows` each, whose rates follow from bytes and bandwidth with some noise."""
    random = np.random.default_rng(1)
    per_line = _LAUNCHES * _REPETITIONS
    n_lines = -(-n_rows // per_line)
    n_prompts = -(-n_lines // (len(_BACKENDS) * len(_MODELS) * len(_DEPTHS)))
    prompts = [128 + 64 * i for i in range(n_prompts)]
    cases = list(itertools.product(prompts, _MODELS, _DEPTHS, _BACKENDS))[:n_lines]
    of_one = pd.DataFrame(cases, columns=["n_prompt", "model", "n_depth", "backend"])
    of_one = of_one.loc[of_one.index.repeat(per_line)][:n_rows]
    rows = pd.concat([of_one.assign(machine=f"machine {i}", gbs=200.0 * (i + 1)) for i in range(n_machines)])
    rows = rows.reset_index(drop=True)
    number = rows.index.to_numpy()
    weights, bandwidth = rows["model"].map(_MODELS), rows.pop("gbs")
    context = rows["n_depth"] + rows["n_prompt"]
    ceiling = bandwidth * 1e9 / (weights + context * _KV_TOKEN)
    mbu = random.uniform(0.4, 0.9, len(rows) // per_line + 1)[number // per_line] * random.normal(1, 0.01, len(rows))
    tpot = 1 / (ceiling * mbu)
    ttft = rows["n_prompt"] * weights / (bandwidth * 1e11)
    logits = {name: json.dumps([*random.normal(size=32).round(4)]) for name in _MODELS}
    cells: dict[str, Any] = {
        column.name: _FILLERS[column.kind] for column in COLUMNS if column.required and column.name not in rows
    }
    cells |= {
        "schema_version": SCHEMA_VERSION,
        "run_id": rows["machine"],
        "started_at": "2026-11-30T12:00:00+00:00",
        "provenance": MEASURED,
        "source": None,
        "ram_bytes": 128 * 10**9,
        "device_name": "GPU of " + rows["machine"],
        "device_memory_bytes": 96 * 10**9,
        "backend_version": "1.0",
        # llama.cpp tells its buffers, which grow with the case; the others' settings are the same for all cases.
        "engine_settings": [
            json.dumps({"asked": _ASKED, "buffers": int(n) if backend == "llama.cpp" else 0})
            for n, backend in zip(context, rows["backend"], strict=True)
        ],
        "weights_id": rows["model"],
        "weight_format": "bf16",
        "weight_bytes": weights.astype(int),
        "kv_k_format": "bf16",
        "kv_v_format": "bf16",
        "n_gen": 128,
        "decode_start": context,
        "batch": 1,
        "kv_cache": "on",
        "launch": 1 + number // _REPETITIONS % _LAUNCHES,
        "repetition": 1 + number % _REPETITIONS,
        "status": "ok",
        "ttft_s": ttft,
        "prefill_tok_s": rows["n_prompt"] / ttft,
        "decode_tok_s": 1 / tpot,
        "tpot_s": tpot,
        "itl_p50_s": tpot,
        "itl_p90_s": 1.1 * tpot,
        "itl_p99_s": 1.4 * tpot,
        "itl_max_s": 2 * tpot,
        "peak_device_bytes": (weights + context * _KV_TOKEN).astype(int),
        "kv_cache_bytes": context * _KV_TOKEN,
        "streamed_bytes_per_token": weights.astype(int),
        "kv_bytes_per_token": _KV_TOKEN,
        "kv_read_bytes": context * _KV_TOKEN,
        "bandwidth_spec_gbs": bandwidth * 1.1,
        "bandwidth_measured_gbs": bandwidth,
        "bandwidth_source": "made up",
        "decode_ceiling_tok_s": ceiling,
        "decode_ceiling_spec_tok_s": ceiling * 1.1,
        "mbu": mbu,
        "prefill_ceiling_tok_s": rows["n_prompt"] / ttft * 1.5,
        "temp_c_max": 60.0,
        "throttled": "no",
        "cpu_busy_other_pct": 1.0,
        "energy_j": 100.0,
        "probe_logits": rows["model"].map(logits),
        "row_id": [f"{i:012x}" for i in number],
    }
    return rows.assign(**cells).reindex(columns=list(NAMES))


def _report(path: Path, aim_s: float) -> None:
    """Make one report and print what it took."""
    start = time.perf_counter()
    gathered = gather([path])
    have_read = time.perf_counter()
    folder = path.with_suffix("")
    write_report(gathered, folder, ("html", "md"), "en")
    end = time.perf_counter()
    page = folder / "index.html"
    print(f"  read and verify {have_read - start:.1f} s, report {end - have_read:.1f} s")
    print(
        f"  all {end - start:.1f} s (aim {aim_s:.0f} s), {time.process_time():.1f} s of processor time, "
        f"peak resident {HostPeak().bytes() / 1e9:.2f} GB, "
        f"page {page.stat().st_size / 1e6:.1f} MB",
        flush=True,
    )


def main() -> None:
    """Print seconds, peak memory and the page's size."""
    asked = tuple(map(int, sys.argv[1:3]))
    aims = [(asked[0], asked[1], 60.0)] if asked else _AIMS
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        for n_machines, n_rows, aim_s in aims:
            path = Path(scratch) / f"{n_machines}-{n_rows}.csv"
            made_up_rows(n_machines, n_rows).to_csv(path, index=False)
            print(f"{n_machines} machines × {n_rows} rows")
            process = processes.Process(target=_report, args=(path, aim_s))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
