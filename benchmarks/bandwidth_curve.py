"""The host's bandwidth curve and matrix rates as `tokenroof` measures them, and how long that takes.

    python benchmarks/bandwidth_curve.py

Measures anew, in a worker process as a run does, and keeps the result in the cache. Each point is the best of several
kernels; the table shows every kernel, so that one that never wins can be found.
"""

from __future__ import annotations

import time

from harness.machine.bandwidth.measured import host, measured
from harness.machine.hardware import inspect


def _progress(what: str, share: float) -> None:
    print(f"\r{100 * share:3.0f} % {what:<24}", end="", flush=True)


def main() -> None:
    """Print a line for each working set and each weight format."""
    machine = inspect()
    began = time.perf_counter()
    found = measured(machine, host(), _progress, refresh=True)
    seconds = time.perf_counter() - began
    names = list(found.curve.points[0].kernels)
    print(f"\r{machine.cpu}, {machine.physical_cores} cores: best GB/s of each kernel")
    print(f"{'MiB':>6}{'best':>8}{'median':>8}  {'fastest kernel':<20}" + "".join(f"{name:>20}" for name in names))
    for point in found.curve.points:
        rates = "".join(f"{point.kernels[name].best / 1e9:>20.1f}" for name in names)
        print(
            f"{point.working_set_bytes // 2**20:>6}{point.best_bytes_s / 1e9:>8.1f}{point.median_bytes_s / 1e9:>8.1f}"
            f"  {point.kernel:<20}{rates}"
        )
    for weight_format, rate in found.matrix.items():
        print(f"matrix products in {weight_format}: best {rate.best / 1e9:.0f}, median {rate.median / 1e9:.0f} GFLOP/s")
    for weight_format, reason in found.unavailable.items():
        print(f"matrix products in {weight_format}: {reason}")
    rounds = len(found.curve.points[0].kernels[names[0]].samples)
    print(
        f"{'stable' if found.curve.stable else 'not stable'}, {rounds} rounds, {seconds:.1f} s in all (aim: under 20)"
    )


if __name__ == "__main__":
    main()
