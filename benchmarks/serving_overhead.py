"""What a server adds to a token: served decode beside the same engine in process, on the same model and threads.

    python benchmarks/serving_overhead.py llama.cpp
    python benchmarks/serving_overhead.py mlx

Two synthetic models of one vocabulary take turns in the server and in process (A B A B). The small one computes next
to nothing, so its difference is the server's own cost of a token: sampling over the vocabulary, the text, JSON, the
socket. The large one takes 60 ms a token or more: its difference may be no more than that cost, and its decode rate
within 5 % of the one in process. Each round gives one difference; where the rounds disagree, nothing is concluded.

Leave a core to the server: an OpenMP that spins while it waits (libgomp's default) holds every core that it computes
on, and a server that hands each token to another thread then waits for one. `-t` below the number of cores, or
OMP_WAIT_POLICY=passive.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

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
    rounds: dict[str, list[_Round]] = {name: [] for name in shapes}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        sides = {}
        for name, (layers, width) in shapes.items():
            model = _model(Path(folder) / name, asked.engine, layers, width)
            base_url = servers.enter_context(_server(asked.engine, model, asked.threads))
            sides[name] = _Sides(asked, model, base_url, Path(folder))
        for number in range(asked.rounds):
            for name, side in sides.items():
                rounds[name].append(_Round(median(side.served()), median(side.in_process())))
            print(f"round {number + 1} of {asked.rounds} done", flush=True)
    _tell(rounds)


class _Round(NamedTuple):
    """Median milliseconds a token of one round."""

    served: float
    in_process: float

    @property
    def added(self) -> float:
        return self.served - self.in_process

    @property
    def rate(self) -> float:
        """Of the decode rate in process."""
        return self.in_process / self.served


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


def _tell(rounds: dict[str, list[_Round]]) -> None:
    print(f"{'median ms a token':18}{'served':>10}{'in process':>12}{'added':>9}{'of each round':>16}{'rate':>8}")
    for name, all_rounds in rounds.items():
        served, in_process = (median(side) for side in zip(*all_rounds, strict=True))
        added = [each.added for each in all_rounds]
        span = f"{min(added):.2f} to {max(added):.2f}"
        print(f"{name:18}{served:10.2f}{in_process:12.2f}{median(added):9.2f}{span:>16}{_rate(all_rounds):8.3f}")
    own_cost, added = (sorted(each.added for each in rounds[name]) for name in ("small", "large"))
    verdict = "yes" if added[-1] <= own_cost[0] else "NO" if added[0] > own_cost[-1] else "cannot tell"
    print("added to the large model no more than to the small one:", verdict)
    in_process = median(each.in_process for each in rounds["large"])
    if in_process < AIM_LARGE_MS:
        print(f"the large model takes {in_process:.0f} ms a token, less than {AIM_LARGE_MS:g}: give it more --layers")
    else:
        print(f"decode rate within 5 %: {'yes' if _rate(rounds['large']) >= AIM_RATIO else 'NO'}")


def _rate(rounds: list[_Round]) -> float:
    """Within rounds, since the machine's own speed changes from one to the next."""
    return median(each.rate for each in rounds)


if __name__ == "__main__":
    main()
