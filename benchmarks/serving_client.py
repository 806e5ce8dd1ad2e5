"""Does the client's own work limit what it measures? It measures a server of known speed, at up to 200 streams.

    python benchmarks/serving_client.py [--concurrency 1,50,200] [--ttft 1.0] [--itl 0.05] [-n 64] [-r 3]

The server of tests/serving runs in a process of its own, sends each token at its due time, and logs when it did. Both
sides read the same clock. So each row is set beside the speed that was asked of the server and beside the server's log.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.options import Options
from harness.progress import Reporter
from harness.serving.plan import make_plan
from harness.serving.runner import run
from harness.workload import parse_ints

if TYPE_CHECKING:
    import pandas as pd

SERVER = Path(__file__).parents[1] / "tests" / "serving" / "fake_server.py"
AIM = 0.02
PROMPT = 64


def main() -> None:
    """Print a table and whether every figure is within the aim."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--concurrency", default="1,50,200")
    parser.add_argument("--ttft", type=float, default=1.0, help="seconds")
    parser.add_argument("--itl", type=float, default=0.05, help="seconds")
    parser.add_argument("-n", type=int, default=64, help="tokens")
    parser.add_argument("-r", type=int, default=3, help="rounds")
    args = parser.parse_args()
    worst = 0.0
    groups = [f"{what}: asked    sent  client     off" for what in ("TTFT ms", "ITL ms")]
    print("streams", *groups, "tok/s: asked  client     off", sep="  ")
    with subprocess.Popen([sys.executable, SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            root = f"http://127.0.0.1:{int(server.stdout.readline())}"
            for streams in parse_ints(args.concurrency, flag="--concurrency", least=1):
                worst = max(worst, _compare(root, streams, args))
        finally:
            server.terminate()
    print(f"worst {worst:.2%} off what was asked, aim {AIM:.0%}: {'ok' if worst <= AIM else 'missed'}")


def _compare(root: str, streams: int, args: argparse.Namespace) -> float:
    name = _call(f"{root}/behaviours", {"ttft_s": args.ttft, "itl_s": args.itl})
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            models=("fake-model",), n_prompt=(PROMPT,), n_gen=(args.n,), batch=(streams,), repetitions=args.r,
            backends=("openai",), base_url=f"{root}/{name}/v1", machine="loopback", output=Path(folder) / "rows.csv",
        )  # fmt: skip
        rows = run(make_plan(options), Reporter())
    assert (rows["status"] == "ok").all(), rows["error"].tolist()
    log = _call(f"{root}/{name}/log")["requests"]
    sent = [each for each in log if each["body"]["max_tokens"] == args.n][-streams * args.r :]
    ttft_s = float(np.median([(each["sends"][0][0] - each["arrived_ns"]) / 1e9 for each in sent]))
    itl_s = float(np.median(np.concatenate([np.diff([ns for ns, _ in each["sends"]]) for each in sent]))) / 1e9
    found = [_median(rows, column) for column in ("ttft_client_s", "itl_p50_s", "decode_tok_s")]
    asked = [args.ttft, args.itl, streams / args.itl]
    off = [abs(one / other - 1) for one, other in zip(found, asked, strict=True)]
    print(
        f"{streams:7}"
        f"  {1e3 * asked[0]:14.1f}{1e3 * ttft_s:8.1f}{1e3 * found[0]:8.1f}{off[0]:8.2%}"
        f"  {1e3 * asked[1]:13.2f}{1e3 * itl_s:8.2f}{1e3 * found[1]:8.2f}{off[1]:8.2%}"
        f"  {asked[2]:12.1f}{found[2]:8.1f}{off[2]:8.2%}"
    )
    return float(max(off))


def _median(rows: pd.DataFrame, column: str) -> float:
    return float(rows[column].median())


def _call(url: str, body: object = None) -> Any:  # JSON
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data) as answer:  # noqa: S310  # loopback
        return json.load(answer)


if __name__ == "__main__":
    main()
