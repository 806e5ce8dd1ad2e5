"""How long `tokenroof merge` takes for 1 000 000 rows in 1 000 files, and its memory; the aim: under 30 s and 2 GB.

Each file is a machine's, of three engines and launches of four cases with nine repetitions: rows of `examples/` again
and again, with identifiers, times, rates and probes of their own. Making them is not timed.

    python benchmarks/merge_speed.py DIRECTORY
    python benchmarks/merge_speed.py DIRECTORY --files 100 --rows 1000
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from results.formats import write
from results.merge import merge
from results.read import read

if TYPE_CHECKING:
    from numpy.typing import NDArray

AIM_S, AIM_GB = 30, 2
EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt2-mini.csv"
REPETITIONS, CASES = 9, 4  # of a launch
MEASURED = ["ttft_s", "prefill_tok_s", "decode_tok_s", "tpot_s", "itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s"]


def main() -> None:
    """Make the files that are missing, merge them, and print seconds and the process's peak memory."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("directory", type=Path)
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--rows", type=int, default=1000, help="a file")
    chosen = options.parse_args()
    paths = [chosen.directory / f"m{number:04}-{chosen.rows}.csv" for number in range(chosen.files)]
    example = read(EXAMPLE)
    for number, path in enumerate(paths):
        if not path.exists():
            write(machine_rows(example, number, chosen.rows), path)
    output = chosen.directory / "merged.csv"
    output.unlink(missing_ok=True)

    begun = time.perf_counter()
    merged = merge(paths, output)
    seconds = time.perf_counter() - begun
    # Linux counts in KiB, macOS in bytes.
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9

    assert (merged.n_kept, merged.n_marked) == (chosen.files * chosen.rows, 0)
    read_gb = sum(path.stat().st_size for path in paths) / 1e9
    print(
        f"{merged.n_kept} rows, {read_gb:.2f} GB, in {len(paths)} files: {seconds:.1f} s, peak memory {peak_gb:.2f} GB"
    )
    print("verdicts:", dict(merged.verdicts))
    print("reached" if seconds < AIM_S and peak_gb < AIM_GB else "MISSED", f"(aim: {AIM_S} s, {AIM_GB} GB)")


def machine_rows(example: pd.DataFrame, number: int, n_rows: int) -> pd.DataFrame:
    """A machine's rows: the first of each engine in turn, and what differs between real ones made different."""
    generator = np.random.default_rng(number)
    engines = example.drop_duplicates("backend")
    launch = np.arange(n_rows) // (REPETITIONS * CASES)
    rows = engines.iloc[launch % len(engines)].reset_index(drop=True)
    begun = pd.Timestamp("2026-11-30", tz="UTC") + pd.to_timedelta(np.arange(n_rows) * 700, unit="ms")
    cells: dict[str, Any] = {
        "machine": f"machine {number}",
        "run_id": f"{number:012x}",
        "launch": launch + 1,
        "repetition": np.arange(n_rows) % REPETITIONS + 1,
        "started_at": begun.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00"),
        "n_prompt": 64 * (1 + np.arange(n_rows) // REPETITIONS % CASES),
        "tokens_sha256": [f"{1 + i // REPETITIONS % CASES:064x}" for i in range(n_rows)],
        "probe_logits": probes(rows, launch, generator),
        "row_id": [f"{number * n_rows + i:012x}" for i in range(n_rows)],
    }
    noise = generator.normal(1, 0.02, (n_rows, 1))
    return rows.assign(**cells, **(rows[MEASURED] * noise))


def probes(rows: pd.DataFrame, launch: NDArray[np.intp], generator: np.random.Generator) -> list[str]:
    """Each launch's logits, as far off the example's as a GPU's order of summation may move them."""
    of_launch = {}
    for i, which in enumerate(launch.tolist()):
        if which not in of_launch:
            logits = np.array(json.loads(rows["probe_logits"][i])) * (1 + generator.normal(0, 0.001, 16))
            of_launch[which] = json.dumps([float(f"{logit:.6g}") for logit in logits])
    return [of_launch[which] for which in launch.tolist()]


if __name__ == "__main__":
    main()
