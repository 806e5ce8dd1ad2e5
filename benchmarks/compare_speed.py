"""How long `tokenroof compare` takes for two files of 100 000 rows, stage by stage, and how much memory.

    python benchmarks/compare_speed.py [rows]

The rows are made up: eight models on three engines of four machines, 50 cases, three launches of seven repetitions, and
rates that vary by 1 % between launches and 0.5 % within. In the second file every machine is 5 % faster.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.machine.memory import HostPeak
from reports.comparison import render
from results.compare.compare import compare
from results.compare.sides import Side
from results.read import read
from results.schema import COLUMNS, NAMES, SCHEMA_VERSION

_LAUNCHES, _REPETITIONS = 3, 7
_LAUNCH_SD, _REPETITION_SD = 0.01, 0.005
_LINE = ["machine", "backend", "model", "n_depth", "n_prompt", "batch"]
_MACHINES, _BACKENDS, _MODELS = range(4), ("torch", "mlx", "llama.cpp"), range(8)
_DEPTHS, _PROMPTS, _BATCHES = (0, 1024, 4096, 16384, 32768), (64, 128, 256, 512, 1024), (1, 4)
_FILLERS = {"text": "any", "int": 1, "float": 1.0, "json": "{}"}


def _write(path: Path, n_rows: int, speed: float) -> None:
    random = np.random.default_rng(int(1000 * speed))
    per_line = _LAUNCHES * _REPETITIONS
    lines = list(itertools.product(_MACHINES, _BACKENDS, _MODELS, _DEPTHS, _PROMPTS, _BATCHES))
    rows = pd.DataFrame(lines[: -(-n_rows // per_line)], columns=_LINE)
    rows = rows.loc[rows.index.repeat(per_line)].reset_index(drop=True)
    number = rows.index.to_numpy()
    launch = number // _REPETITIONS
    noise = random.normal(0, _LAUNCH_SD, launch[-1] + 1)[launch] + random.normal(0, _REPETITION_SD, len(rows))
    model, depth, prompt = rows["model"].astype(str), rows["n_depth"], rows["n_prompt"]
    asked = {"device": "auto", "flash_attn": "auto", "kv_k_format": "auto", "n_threads": 2, "weights": "bf16"}
    cells: dict[str, Any] = {
        column.name: _FILLERS[column.kind] for column in COLUMNS if column.required and column.name not in rows
    }
    cells |= {
        "schema_version": SCHEMA_VERSION,
        "started_at": "2026-11-30T12:00:00+00:00",
        "provenance": "measured",
        "machine": "machine " + rows["machine"].astype(str),
        "engine_settings": [json.dumps({"asked": asked, "build": int(i) // per_line % 1000}) for i in number],
        "model": "model-" + model,
        "architecture": "llama",
        "weights_id": "weights of " + model,
        "weight_format": "bf16",
        "n_gen": 128,
        "decode_start": depth + prompt,
        "tokens_sha256": "tokens of " + depth.astype(str) + " and " + prompt.astype(str),
        "launch": 1 + launch % _LAUNCHES,
        "repetition": 1 + number % _REPETITIONS,
        "status": "ok",
        "decode_tok_s": speed * 1e5 / (1000 + depth) * np.exp(noise),
        "probe_logits": json.dumps([float(i) for i in range(1, 33)]),
        "row_id": [f"{i:012x}" for i in number],
    }
    rows.assign(**cells).reindex(columns=list(NAMES))[:n_rows].to_csv(path, index=False)


def main() -> None:
    """Print the seconds of each stage and of all, those of the CPU among them, and how far the memory grew."""
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as scratch:
        base, new = Path(scratch) / "base.csv", Path(scratch) / "new.csv"
        with ProcessPoolExecutor(1) as other:  # whose memory is not counted
            list(other.map(_write, (base, new), (n_rows, n_rows), (1.0, 1.05)))
        peak = HostPeak()
        before_bytes, cpu_start, start = peak.bytes(), time.process_time(), time.perf_counter()
        sides = [Side(path.name, read(path)) for path in (base, new)]
        have_read = time.perf_counter()
        result = compare(sides)
        compared = time.perf_counter()
        text = render(result, "csv")
        end, cpu_s = time.perf_counter(), time.process_time() - cpu_start
    print(f"read {have_read - start:.2f} s, compare {compared - have_read:.2f} s, write {end - compared:.2f} s")
    print(f"all {end - start:.2f} s, {cpu_s:.2f} s of CPU")
    print(f"2 × {n_rows} rows in {len(result.pairs)} pairs, {len(text) / 1e6:.1f} MB of CSV")
    print(f"memory {(peak.bytes() - before_bytes) / 1e6:.0f} MB above the start")


if __name__ == "__main__":
    main()
