"""Which of torch's two matrix products on the CPU a decode step uses: oneDNN's, or torch's own.

A step of one sequence multiplies matrices with a vector, where all that counts is how fast the weights are read.
Neither product reads faster everywhere: on a 2-core AMD EPYC a bf16 model of a billion parameters decoded 15 tokens
a second with torch's own and 10 with oneDNN's, and a small GPT-2, whose matrices lie the other way round, 180 and
260. So both are tried.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.backends import mkldnn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TRIES = 2
_GAIN = 0.9


@contextmanager
def linear_products(*, onednn: bool) -> Iterator[None]:
    """Multiply matrices with oneDNN or without it.

    Not `mkldnn.flags`: it sets flags of Intel GPUs too, and warns where there is none.
    """
    # Torch's stubs give this property the type of what implements it.
    before: Any = mkldnn.enabled
    wanted: Any = onednn
    mkldnn.enabled = wanted
    try:
        yield
    finally:
        mkldnn.enabled = before


def prefers_onednn(step: Callable[[], object]) -> bool:
    """Run a decode step both ways in turn; torch's own product must save a tenth of the time to be taken.

    The first run of each way finds kernels to make and is not counted.
    """
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(1 + _TRIES):
        for onednn, times in seconds.items():
            with linear_products(onednn=onednn):
                started = time.perf_counter()
                step()
                times.append(time.perf_counter() - started)
    # A clear gain, or else the default: a choice that noise decides would differ from launch to launch.
    return min(seconds[False][1:]) > _GAIN * min(seconds[True][1:])
