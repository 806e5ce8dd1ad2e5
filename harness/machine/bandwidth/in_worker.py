"""The measurement itself, as it runs in a worker process.

A process of its own, because it imports an engine, sets that engine's threads and needs gigabytes.
"""

from __future__ import annotations

import importlib
import time
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from backends.base import BackendError
from backends.registry import BACKENDS
from harness.machine.bandwidth.accelerator import AcceleratorMemory
from harness.machine.bandwidth.curve import Measured, Rate
from harness.machine.bandwidth.host import NUMPY_KERNELS, HostMemory
from harness.machine.bandwidth.matrix import matrix_rate
from harness.machine.bandwidth.sweep import sweep, working_sets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backends.bandwidth import Multiply
    from harness.machine.bandwidth.curve import Curve
    from harness.machine.bandwidth.sweep import Progress

    Multiplier = Callable[[str, str, int, int], Multiply]

FORMATS = ("f32", "f16", "bf16")
_OF_AN_ACCELERATOR = ("free_bytes", "readers", "multiplier")


def measure(
    backend: str | None,
    device: str,
    n_threads: int,
    budget_s: float,
    progress: Progress,
    most_bytes: int | None = None,
    rpc: Sequence[str] = (),
) -> Measured:
    """Measure one device.

    Args:
        backend: the engine to measure with; None for what numpy can do on the host without any.
        device: "cpu", or an accelerator's id in that engine.
        n_threads: threads that read and multiply on the host.
        budget_s: seconds for all of it, the engine's import included; a slow machine may need more.
        progress: told what is measured, and what share of the curve's time has passed.
        most_bytes: largest working set; None for what the free memory allows.
        rpc: endpoints of the servers through which the engine reaches the device, if it is another machine's.

    Raises:
        BackendError: the engine cannot read this device's memory, or there is too little of it.
    """
    deadline = time.perf_counter() + budget_s
    engine = _engine(backend, device, tuple(rpc))
    multiplier = engine.multiplier if engine else _numpy_multiplier
    progress("matrix products", 0.0)
    first, unavailable = _matrix_rates(multiplier, device, n_threads)
    if device == "cpu":
        curve = _host_curve(engine, n_threads, deadline, progress, most_bytes)
    else:
        curve = _accelerator_curve(engine, device, deadline, progress, most_bytes)
    progress("matrix products", 1.0)
    # Once more, seconds later: a disturbance that spoils all samples of one rate would become a ceiling. What is
    # measured anew in each run has no time for it.
    second = first if rpc else _matrix_rates(multiplier, device, n_threads)[0]
    matrix = {name: Rate(rate.samples + second[name].samples) for name, rate in first.items() if name in second}
    return Measured(curve, matrix, datetime.now(UTC).isoformat(timespec="seconds"), unavailable)


def _engine(backend: str | None, device: str, rpc: tuple[str, ...]) -> Any:
    """The engine's module for this; None where the host has to do with numpy."""
    if backend is None:
        return None
    try:
        engine = importlib.import_module(f"{BACKENDS[backend].module}.bandwidth")
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        if device == "cpu":
            return None
        raise BackendError(f"{backend} cannot read the memory of {device}: {error}") from error
    if not rpc:
        return engine
    return SimpleNamespace(**{name: partial(getattr(engine, name), rpc=rpc) for name in _OF_AN_ACCELERATOR})


def _host_curve(engine: Any, n_threads: int, deadline: float, progress: Progress, most_bytes: int | None) -> Curve:
    kernels = NUMPY_KERNELS | (engine.HOST_KERNELS if engine else {})
    sizes = _sizes(psutil.virtual_memory().available, most_bytes)
    with closing(HostMemory(kernels, n_threads, sizes[-1])) as memory:
        return sweep(memory, sizes, deadline, progress)


def _accelerator_curve(engine: Any, device: str, deadline: float, progress: Progress, most_bytes: int | None) -> Curve:
    sizes = _sizes(engine.free_bytes(device), most_bytes)
    readers = engine.readers(device, sizes[-1])
    if not readers:
        raise BackendError(f"no kernel reads the memory of {device}")
    return sweep(AcceleratorMemory(readers), sizes, deadline, progress)


def _sizes(free_bytes: int, most_bytes: int | None) -> list[int]:
    try:
        sizes = working_sets(free_bytes)
    except ValueError as error:
        raise BackendError(str(error)) from error
    return [size for size in sizes if most_bytes is None or size <= most_bytes]


def _matrix_rates(multiplier: Multiplier, device: str, n_threads: int) -> tuple[dict[str, Rate], dict[str, str]]:
    """By weight format: the rate, or why there is none."""
    rates: dict[str, Rate] = {}
    unavailable: dict[str, str] = {}
    for name in FORMATS:
        try:
            rates[name] = matrix_rate(lambda n, name=name: multiplier(device, name, n, n_threads))  # type: ignore[misc]
        except BackendError as error:
            unavailable[name] = str(error)
    return rates, unavailable


def _numpy_multiplier(device: str, weight_format: str, n: int, n_threads: int) -> Multiply:  # noqa: ARG001
    """On as many threads as numpy's BLAS takes: all of them."""
    if weight_format != "f32":
        raise BackendError(f"numpy multiplies f32 matrices, not {weight_format}; torch would (pip install torch)")
    a, b = np.random.default_rng(0).standard_normal((2, n, n), dtype=np.float32)

    def multiply(passes: int) -> None:
        for _ in range(passes):
            np.matmul(a, b)

    return multiply
