"""How far right engines' logits lie apart: the floors behind `verified` (results/verify.py).

Every engine scores the probe on the same weights in a worker of its own, as in a run. The distances between them are
what rounding makes; a format's floor in results/verify.py is the largest seen here, rounded up.

    python benchmarks/verification_floors.py gpt2 qwen3-0.6b llama-3.2-1b --formats f32,f16,bf16
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from side_by_side import worker_events

from backends.base import LoadRequest
from backends.registry import BACKENDS
from harness.machine.hardware import physical_cores
from harness.models.artifacts import prepare
from harness.models.source import resolve
from results.schema import PROBE_PLACES as PLACES


def logits(backend: str, model: str, weights: str) -> np.ndarray:
    """The probe's logits from one engine on the CPU, with a KV cache in the weights' format."""
    artifact = prepare(resolve(model), BACKENDS[backend].artifact, weights)
    request = LoadRequest(
        artifact.path, weights, "cpu", n_threads=physical_cores(), kv_k_format=weights, kv_v_format=weights
    )
    (probe,) = (event["logits"] for event in worker_events(backend, request) if event["event"] == "probe")
    return np.array(probe)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative L2, over the larger norm."""
    return float(np.linalg.norm(one - other) / max(np.linalg.norm(one), np.linalg.norm(other)))


def main() -> None:
    """Print one line a model, format and pair of engines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--formats", default="f32,f16,bf16")
    parser.add_argument("--backends", default="torch,llama.cpp")
    arguments = parser.parse_args()
    print(f"{'model':16} {'format':6} {'engines':22} {'near':>9} {'far':>9}")
    for model, weights in itertools.product(arguments.models, arguments.formats.split(",")):
        scored = {backend: logits(backend, model, weights) for backend in arguments.backends.split(",")}
        for (one, a), (other, b) in itertools.combinations(scored.items(), 2):
            near = distance(a[:PLACES], b[:PLACES])
            both_far = len(a) == len(b) > PLACES
            far = f"{distance(a[PLACES:], b[PLACES:]):.2g}" if both_far else "-"
            print(f"{model:16} {weights:6} {one + ' ' + other:22} {near:9.2g} {far:>9}", flush=True)


if __name__ == "__main__":
    main()
