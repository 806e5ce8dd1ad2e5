"""How long work should take, roughly, before anything ran: for the plan, the progress bar and the hang timeout.

Rates come from a quick measurement of this host, or from the device catalog. They are never put in a row.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.experts import BUDGET_S, counts
from harness.machine.catalog import AmbiguousDeviceError, match
from harness.machine.hardware import physical_cores
from harness.prediction.hardware import from_device
from harness.prediction.prefill import prefill_flops_s
from harness.probe import FAR_BUDGET_S, FAR_FROM, FAR_PIECE, FAR_TOKENS
from harness.roofline.traffic import kv_bytes_per_token, prefill_flops, streamed_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.roofline.architecture import Architecture
    from harness.workload import Case

_START_S = 5.0  # a process that imports a large library
_LOAD_BYTES_S = 1e9
_KV_ELEMENT_BYTES = 2
_DECODE_SHARE = 0.6  # of the vendor's bandwidth
_LAUNCH_OVERHEAD_S = 1e-3  # Python and kernel launches of a decode step


@dataclass(frozen=True)
class Rates:
    """What one device is assumed to do: bytes read a second, and FLOP a second in matrix products."""

    bytes_s: float
    flops_s: float


# One that the catalog lacks; the real one corrects the estimate as soon as rows come in.
ACCELERATOR = Rates(bytes_s=5e11, flops_s=5e13)
# Seen on a 2-core Linux machine: MLX's CPU backend streams about 3 GB/s there, and computes as slowly.
MLX_CPU = Rates(bytes_s=3e9, flops_s=2e10)


def accelerator_rates(name: str, memory_bytes: int | None) -> Rates:
    """What the device of this name is expected to do, by the catalog and published rates; nominal if it is unknown."""
    try:
        device = match(name, memory_bytes=memory_bytes)
    except AmbiguousDeviceError:
        device = None
    if device is None or device.bandwidth_bytes_s is None:
        return ACCELERATOR
    hardware = from_device(device)
    return Rates(_DECODE_SHARE * hardware.bandwidth_bytes_s, prefill_flops_s(hardware, is_moe=False).mid)


def host_rates() -> Rates:
    """Measure this host for a fraction of a second: parallel reads, and a float32 matrix product."""
    data = np.ones(2**25, dtype=np.int64)  # 256 MiB, past most caches
    square = np.ones((1024, 1024), dtype=np.float32)
    n_threads = physical_cores()
    parts = np.array_split(data, n_threads)
    with ThreadPoolExecutor(n_threads) as pool:  # numpy's reductions release the interpreter lock
        read_s = _fastest(lambda: list(pool.map(np.bitwise_xor.reduce, parts)))
    return Rates(data.nbytes / read_s, 2 * 1024**3 / _fastest(lambda: square @ square))


def _fastest(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


@dataclass(frozen=True)
class WorkEstimate:
    """Seconds that one worker is expected to need for each of its parts."""

    load_s: float
    probe_s: float
    case_s: dict[Case, float]
    fill_s: dict[Case, float]

    def launch_s(self, cases: dict[Case, int]) -> float:
        """One launch: load, probe, and for each case its depth, a warm-up and the repetitions."""
        return (
            self.load_s
            + self.probe_s
            + sum(self.fill_s[case] + (1 + repetitions) * self.case_s[case] for case, repetitions in cases.items())
        )


def estimate(
    architecture: Architecture, element_bytes: float, weight_bytes: int, cases: tuple[Case, ...], rates: Rates
) -> WorkEstimate:
    """Estimate one model on one device.

    Args:
        architecture: the model's shape.
        element_bytes: bytes of a weight, on average.
        weight_bytes: bytes to load.
        cases: the work.
        rates: the device's.
    """
    streamed = streamed_parameters(architecture) * element_bytes
    kv_token = kv_bytes_per_token(architecture, _KV_ELEMENT_BYTES)

    def prefill_s(n_prompt: int, n_depth: int, batch: int) -> float:
        if not n_prompt:
            return 0.0
        return max(prefill_flops(architecture, n_prompt, n_depth, batch) / rates.flops_s, streamed / rates.bytes_s)

    def case_s(case: Case) -> float:
        if case.kv_cache == "off":
            prefixes = range(max(case.n_prompt, 1), max(case.n_prompt, 1) + case.n_outputs)
            return sum(prefill_s(n, 0, case.batch) + _LAUNCH_OVERHEAD_S for n in prefixes)
        mean_context = case.decode_start + case.n_steps / 2
        step_s = (streamed + case.batch * mean_context * kv_token) / rates.bytes_s + _LAUNCH_OVERHEAD_S
        # The earlier text, whose prefix is reused, is as long as the prompt and is filled in again each time.
        prefills = 2 if case.kv_cache == "prefix" else 1
        return prefills * prefill_s(case.n_prompt, case.n_depth, case.batch) + case.n_steps * step_s

    def fill_s(case: Case) -> float:
        """To the depth; without a cache, what its answers are compared with; of a mixture, its experts are counted."""
        depth_s = prefill_s(case.decode_start if case.kv_cache == "off" else case.n_depth, 0, case.batch)
        if not (architecture.is_mixture and counts(case)):
            return depth_s
        return depth_s + min(depth_s, BUDGET_S) + case_s(case)

    far_s = prefill_s(FAR_FROM + FAR_TOKENS, 0, 1)
    return WorkEstimate(
        load_s=_START_S + weight_bytes / _LOAD_BYTES_S,
        # A machine that would take too long for the far part sees it in its first piece.
        probe_s=far_s if far_s <= FAR_BUDGET_S else far_s * FAR_PIECE / FAR_FROM,
        case_s={case: case_s(case) for case in cases},
        fill_s={case: fill_s(case) for case in cases},
    )
