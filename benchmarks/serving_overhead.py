"""What a server adds to a token: served decode beside the same engine in process, on the same model and threads.

    python benchmarks/serving_overhead.py llama.cpp
    python benchmarks/serving_overhead.py mlx

Two synthetic models of one vocabulary take turns in the server and in process (A B A B). The small one computes next
to nothing, so its difference is the server's own cost of a token: sampling over the vocabulary, the text, JSON, the
socket. The large one takes 60 ms a token or more: its difference may be no more than that cost, and its decode rate
within 5 % of the one in process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from side_by_side import Rates
from side_by_side import run_ours as run_in_process

from backends.base import LoadRequest
from harness.models.gguf_export import export
from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from harness.workload import Case
from results.read import read

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENROOF = Path(sys.executable).with_name("tokenroof")
AIM_LARGE_MS, AIM_RATIO = 60.0, 0.95
START_S = 300


def main() -> None:
    """Print a table of both models, and what was reached."""
    asked = _arguments()
    shapes = {"small": (1, 128), "large": (asked.layers, asked.width)}
    times_ms: dict[str, dict[str, list[float]]] = {name: {"served": [], "in process": []} for name in shapes}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        sides = {}
        for name, (layers, width) in shapes.items():
            model = _model(Path(folder) / name, asked.engine, layers, width)
            base_url = servers.enter_context(_server(asked.engine, model, asked.threads))
            sides[name] = _Sides(asked, model, base_url, Path(folder))
        for number in range(asked.rounds):
            for name, side in sides.items():
                times_ms[name]["served"] += side.served()
                times_ms[name]["in process"] += side.in_process()
            print(f"round {number + 1} of {asked.rounds} done", flush=True)
    _tell(times_ms)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="a server's decode beside its engine's in process")
    parser.add_argument("engine", choices=["llama.cpp", "mlx"])
    parser.add_argument("--layers", type=int, default=12, help="of the large model")
    parser.add_argument("--width", type=int, default=2048, help="of the large model")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--gen", type=int, default=64)
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _model(directory: Path, engine: str, layers: int, width: int) -> Path:
    config = PRESETS["llama-2-7b"] | {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_attention_heads": width // 64,
        "num_key_value_heads": width // 64,
        "vocab_size": 32000,
        "max_position_embeddings": 512,
    }
    synthesise(config, directory)
    if engine == "mlx":
        return directory
    export(directory, directory.with_suffix(".gguf"), "bf16")
    return directory.with_suffix(".gguf")


class _Sides:
    """Milliseconds a token of each repetition, served and in process."""

    def __init__(self, asked: argparse.Namespace, model: Path, base_url: str, folder: Path) -> None:
        self._asked, self._model, self._base_url, self._folder = asked, model, base_url, folder
        self._case = Case(n_depth=0, n_prompt=64, n_gen=asked.gen)

    def served(self) -> list[float]:
        output = self._folder / f"{time.monotonic_ns()}.csv"
        served_name = "served" if self._asked.engine == "llama.cpp" else "default_model"
        endpoint = ["--backend", "openai", "--base-url", self._base_url, "--artifact", f"openai={served_name}"]
        case = ["-m", str(self._model), "-p", "64", "-n", str(self._asked.gen), "-r", str(self._asked.repetitions)]
        command = [str(TOKENROOF), "run", *endpoint, *case, "-o", str(output)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return [1e3 / rate for rate in read(output)["decode_tok_s"]]

    def in_process(self) -> list[float]:
        rates = Rates()
        request = LoadRequest(self._model, weight_format=None, n_threads=self._asked.threads, device="cpu")
        run_in_process(self._asked.engine, request, self._case, self._asked.repetitions, rates)
        return [1e3 / rate for rate in rates.decode]


@contextlib.contextmanager
def _server(engine: str, model: Path, threads: int) -> Iterator[str]:
    """The base URL of the engine's own server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command: list[Any] = [sys.executable, "-m"]
    if engine == "llama.cpp":
        command += ["llama_cpp.server", "--model", model, "--model_alias", "served", "--n_ctx", "512"]
        command += ["--n_threads", str(threads), "--n_threads_batch", str(threads), "--logits_all", "false"]
    else:
        command += ["mlx_lm", "server", "--model", model]
    quiet = subprocess.DEVNULL
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen([*command, "--port", port], stdout=quiet, stderr=quiet, env=environment) as server:
        try:
            _wait_for(server, int(port))
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.2)
    raise SystemExit("the server did not start")


def _tell(times_ms: dict[str, dict[str, list[float]]]) -> None:
    added: dict[str, float] = {}
    print(f"{'median ms a token':18}{'served':>10}{'in process':>12}{'added':>9}{'rate':>8}")
    for name, sides in times_ms.items():
        served, in_process = (statistics.median(sides[side]) for side in ("served", "in process"))
        added[name] = served - in_process
        print(f"{name:18}{served:10.2f}{in_process:12.2f}{added[name]:9.2f}{in_process / served:8.3f}")
    large = statistics.median(times_ms["large"]["in process"])
    ratio = large / statistics.median(times_ms["large"]["served"])
    print(
        "added to the large model no more than to the small one:", "yes" if added["large"] <= added["small"] else "NO"
    )
    if large < AIM_LARGE_MS:
        print(f"the large model takes {large:.0f} ms a token, less than {AIM_LARGE_MS:g}: give it more --layers")
    else:
        print(f"decode rate within 5 %: {'yes' if ratio >= AIM_RATIO else 'NO'}")


if __name__ == "__main__":
    main()
