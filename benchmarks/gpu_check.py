"""The CUDA path of the torch backend, checked in one go on a machine that has a GPU. Needs torch and transformers.

    python benchmarks/gpu_check.py                              # made for under 4 minutes on an H200; not yet run
    python benchmarks/gpu_check.py --device cpu --model tiny    # the same steps, small enough for any CPU

1. The backend's conformance suite on the device, with a tiny model that goes through a file.
2. The device's read bandwidth: the best of several kernels that only read.
3. A random Llama 3.1 8B, made on the device: TTFT and decode rate of each mode, and of transformers' own compiled
   `generate` with a static cache.

Effective GB/s is what a decode step must read (streamed weights, and the KV cache up to the context) times the rate.
The aims: at depth 0 at least 85 % of the read bandwidth, and at no depth slower than `generate`. Exit code 1 when
one is missed, or could not be measured in time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent.parent))

from vs_transformers_generate import SHAPES, build, generate_times, session_times, tokens_per_second

from backends import torch as torch_backend
from backends.base import BackendError, LoadRequest
from backends.conformance import run as run_conformance
from backends.torch.devices import choose_device
from backends.torch.session import TorchSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Ids

TINY = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 257,
    "max_position_embeddings": 8192,
}
LLAMA_3_1_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
MODELS: dict[str, dict[str, Any]] = {"llama-3.1-8b": LLAMA_3_1_8B, "llama-3.2-1b": SHAPES["1b"], "tiny": TINY}
LEAST_SHARE = 0.85


@dataclass(frozen=True)
class Measured:
    """One line of the table. TTFT is that of the prompt alone, so `generate`, which reads the depth too, has none."""

    mode: str
    depth: int
    ttft_s: float | None
    decode_tok_s: float
    bytes_per_token: float

    @property
    def gb_per_s(self) -> float:
        """Effective bandwidth, in 10⁹ bytes a second."""
        return self.bytes_per_token * self.decode_tok_s / 1e9


def conforms(device: torch.device) -> bool:
    """Every clause of the contract, on a model that was saved to a file and loaded; float32, so that 1e-3 is strict."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        build(TINY, torch.device("cpu")).save_pretrained(folder)
        request = LoadRequest(Path(folder), "f32", device=str(device), n_threads=torch.get_num_threads())
        results = run_conformance(lambda: torch_backend.load(request), tolerance=1e-3)
    failed = [result for result in results if not result.ok]
    for result in failed:
        print(f"  {result.name}: {result.detail}")
    print(f"conformance: {len(results) - len(failed)} of {len(results)} clauses hold on {device}")
    return not failed


def read_bandwidth(device: torch.device, n_bytes: int) -> float:
    """GB/s of the fastest of several kernels that read `n_bytes` and write next to nothing."""
    columns = 4096
    matrix = torch.ones(n_bytes // 2 // columns, columns, dtype=torch.bfloat16, device=device)
    vector = torch.ones(columns, dtype=torch.bfloat16, device=device)
    words = matrix.view(torch.int32)
    kernels: dict[str, Callable[[], torch.Tensor]] = {
        "sum of float32": lambda: words.view(torch.float32).sum(),
        "maximum of int32": words.amax,
        "row sums of bfloat16": lambda: matrix.sum(1),
        "bfloat16 matrix times vector": lambda: matrix @ vector,
    }
    rates = {name: n_bytes / 1e9 / _fastest(kernel, device) for name, kernel in kernels.items()}
    best = max(rates, key=lambda name: rates[name])
    print(f"read bandwidth: {rates[best]:.0f} GB/s of {n_bytes / 2**30:.2f} GiB ({best})")
    return rates[best]


def _fastest(kernel: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds of one call, the best of ten turns of five calls."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(5):
            kernel()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        times.append((time.perf_counter() - start) / 5)
    return min(times)


def streamed_bytes(model: Any) -> int:
    """Weight bytes of one step: all but an input embedding of its own, of which a step reads one row."""
    total = sum(int(weight.nbytes) for weight in model.parameters())
    looked_up, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return total if looked_up is head else total - int(looked_up.nbytes)


class Check:
    """What is measured with one model, within a budget of time."""

    def __init__(self, model: Any, arguments: argparse.Namespace) -> None:
        self._model = model
        self._device = torch.device(model.device)
        self._prompt: int = arguments.prompt
        self._gen: int = arguments.gen
        self._deadline: float = arguments.begun + arguments.budget
        self._weights = streamed_bytes(model)
        self._kv_per_token = 0.0
        self.measured: list[Measured] = []

    def depth(self, depth: int) -> None:
        """Every mode at one depth, the one with the aim first, and the rest as far as the time allows."""
        graphs = self._device.type == "cuda"
        fixed = self._session("cuda-graph" if graphs else "compiled")
        if self._in_time(f"compiled steps at depth {depth}"):
            fixed.allocate(depth + self._prompt + self._gen, batch=1)
            self._kv_per_token = (fixed.memory().kv_cache_bytes or 0) / fixed.facts().kv_allocated_tokens
            self._measure(fixed, depth)
        if self._in_time(f"generate at depth {depth}"):
            self._measure_generate(depth)
        if graphs and self._in_time(f"compiled without a graph at depth {depth}"):
            fixed.use("compiled")
            self._measure(fixed, depth)
        if self._in_time(f"eager at depth {depth}"):
            eager = self._session("eager")
            eager.allocate(depth + self._prompt + self._gen, batch=1)
            self._measure(eager, depth)

    def _session(self, mode: str) -> TorchSession:
        options = {"torch_mode": mode}
        return TorchSession(self._model, LoadRequest(Path(), None, engine_options=options))

    def _in_time(self, what: str) -> bool:
        in_time: bool = time.perf_counter() < self._deadline
        if not in_time:
            print(f"not measured, the time is up: {what}")
        return in_time

    def _measure(self, session: TorchSession, depth: int) -> None:
        if depth:
            session.prefill(self._tokens(depth))
        runs = []
        for _ in range(4):  # the first warms up
            session.reset(depth)
            runs.append(session_times(session, self._tokens(self._prompt), self._gen))
        ttft = statistics.median(times[1] - times[0] for times in runs[1:])
        self._note(session.facts().engine_mode, depth, ttft, runs[1:])

    def _measure_generate(self, depth: int) -> None:
        prompt = self._tokens(depth + self._prompt)
        runs = [generate_times(self._model, prompt, self._gen) for _ in range(4)]
        self._note("generate", depth, None, runs[1:])

    def _note(self, mode: str, depth: int, ttft_s: float | None, runs: list[list[float]]) -> None:
        rate = statistics.median(tokens_per_second(times[1:]) for times in runs)
        context = depth + self._prompt + self._gen / 2
        self.measured.append(Measured(mode, depth, ttft_s, rate, self._weights + context * self._kv_per_token))

    def _tokens(self, n: int) -> Ids:
        return np.random.default_rng(0).integers(256, size=(1, n)).astype(np.int32)


def print_table(measured: list[Measured], prompt: int, bandwidth: float) -> None:
    """One line a mode and depth."""
    print(f"\n{'mode':<26}{'depth':>7}{'TTFT ms':>10}{'prefill tok/s':>15}{'decode tok/s':>14}{'GB/s':>9}{'% read':>9}")
    for one in measured:
        ttft = "" if one.ttft_s is None else f"{1000 * one.ttft_s:.1f}"
        prefill = "" if one.ttft_s is None else f"{prompt / one.ttft_s:.0f}"
        share = 100 * one.gb_per_s / bandwidth
        print(
            f"{one.mode:<26}{one.depth:>7}{ttft:>10}{prefill:>15}"
            f"{one.decode_tok_s:>14.1f}{one.gb_per_s:>9.1f}{share:>9.1f}"
        )
    print()


def aims_are_met(measured: list[Measured], depths: list[int], bandwidth: float) -> bool:
    """Print each aim with what was measured; False when one is missed or was not measured."""
    met = []
    for depth in depths:
        rates = {one.mode: one for one in measured if one.depth == depth}
        theirs = rates.pop("generate", None)
        ours = max(rates.values(), key=lambda one: one.decode_tok_s, default=None)
        if depth == 0:
            share = None if ours is None else ours.gb_per_s / bandwidth
            met.append(_verdict(f"share of the read bandwidth at depth {depth}", share, LEAST_SHARE))
        ratio = None if ours is None or theirs is None else ours.decode_tok_s / theirs.decode_tok_s
        met.append(_verdict(f"decode rate over generate's at depth {depth}", ratio, 1.0))
    return all(met)


def _verdict(what: str, value: float | None, least: float) -> bool:
    if value is None:
        print(f"FAIL  {what}: not measured")
        return False
    print(f"{'pass' if value >= least else 'FAIL'}  {what}: {value:.3f}, aim {least:.2f}")
    return value >= least


def main() -> int:
    """Everything in the order of the docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cpu, or an accelerator's id such as cuda:0")
    parser.add_argument("--model", default="llama-3.1-8b", choices=list(MODELS))
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 4096])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--read-mib", type=int, default=4096, help="working set of the bandwidth test")
    parser.add_argument("--budget", type=float, default=195, help="seconds after which no other mode is begun")
    parser.set_defaults(begun=time.perf_counter())
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        device = choose_device(arguments.device)
    except BackendError as error:
        print(error)
        return 2
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {device}")

    ok = conforms(device)
    bandwidth = read_bandwidth(device, arguments.read_mib * 2**20)
    check = Check(build(MODELS[arguments.model], device), arguments)
    for depth in arguments.depths:
        check.depth(depth)
    print_table(check.measured, arguments.prompt, bandwidth)
    met = aims_are_met(check.measured, arguments.depths, bandwidth)
    if arguments.model == "tiny":
        print("the aims are for a model that does not fit into a cache: not counted for tiny")
        met = True
    return 0 if ok and met else 1


if __name__ == "__main__":
    sys.exit(main())
