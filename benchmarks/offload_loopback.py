"""Is a split model's step the sum of its memories' times? A second tier on loopback, no GPU needed.

    python benchmarks/offload_loopback.py [-ngl 0,2,4,6,8,10,-1] [-n 32] [-r 3] [--launches 3]

`tokenroof serve-tier` lends this machine's own memory and one thread; the run computes its own layers with two. The
launches of all points take turns, so a drift of the machine harms every point alike. The speeds of both memories and
the time of handing over come from the two ends and the first split; the points between are predicted from them.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from harness.options import Options
from harness.plan import make_plan
from harness.runner import run
from harness.workload import parse_ints
from reports.offload import offload_text, sweep_of
from reports.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENROOF = Path(sys.executable).with_name("tokenroof")
AIM = 0.10
# 0.44 B parameters, 0.87 GB: large beside any cache and beside what a message over loopback costs. A short context
# keeps the probe short.
MODEL = PRESETS["llama-2-7b"] | {
    "num_hidden_layers": 12,
    "hidden_size": 1536,
    "intermediate_size": 5632,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "vocab_size": 8192,
    "max_position_embeddings": 512,
}


def main() -> None:
    """Print the table of the sweep, and whether every point is within the aim."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-ngl", default="0,2,4,6,8,10,-1")
    parser.add_argument("-n", type=int, default=32)
    parser.add_argument("-r", type=int, default=3)
    parser.add_argument("--launches", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tier(n_threads=1) as endpoint:
        model = Path(folder) / "loopback"
        synthesise(MODEL, model)
        options = Options(
            models=(str(model),),
            n_prompt=(16,),
            n_gen=(asked.n,),
            backends=("llama.cpp",),
            n_gpu_layers=parse_ints(asked.ngl, flag="-ngl", least=-1),
            rpc=(endpoint,),
            n_threads=(2,),
            repetitions=asked.r,
            launches=asked.launches,
            output=Path(folder) / "sweep.csv",
        )
        rows = run(make_plan(options))
    for reason in rows.loc[rows["status"] == "failed", "error"].unique():
        print("failed:", reason)
    print(offload_text(rows, words("en")))
    errors = [abs(point.error) for point in sweep_of(rows).between]
    print(f"{sum(error <= AIM for error in errors)} of {len(errors)} predicted points within {AIM:.0%}")


@contextlib.contextmanager
def tier(n_threads: int) -> Iterator[str]:
    """The endpoint of a server on a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(TOKENROOF), "serve-tier", "--bind", endpoint, "-t", str(n_threads), "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            if not server.stdout or "serving" not in server.stdout.readline():
                raise SystemExit("the tier did not start; its reason is above")
            yield endpoint
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
