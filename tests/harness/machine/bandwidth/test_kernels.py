"""A kernel that left bytes out would look fast. Each result is held against plain Python's or numpy's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.torch import bandwidth as torch_bandwidth
from harness.machine.bandwidth.host import NUMPY_KERNELS

HOST_KERNELS = NUMPY_KERNELS | torch_bandwidth.HOST_KERNELS


def _xor(words: np.ndarray) -> int:
    result = 0
    for word in words.view(np.int64).tolist():
        result ^= word
    return result


EXPECTED: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy xor int64": _xor,
    "numpy max int32": lambda words: max(words.view(np.int32).tolist()),
    "torch max int32": lambda words: max(words.view(np.int32).tolist()),
    "torch dot of halves": lambda words: np.dot(*words.astype(np.float64).reshape(2, -1)),
}


@pytest.mark.parametrize("name", HOST_KERNELS)
@given(lines=st.integers(1, 3000), passes=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_a_host_kernel_reads_all_words_in_every_pass(name: str, lines: int, passes: int, seed: int) -> None:
    words = np.random.default_rng(seed).standard_normal(16 * lines, dtype=np.float32)  # whole cache lines
    result = HOST_KERNELS[name](words, passes)()
    assert len(result) == passes
    assert np.allclose(result, EXPECTED[name](words), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", HOST_KERNELS)
@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 8190, 8191])
def test_a_host_kernel_notices_any_word(name: str, position: int) -> None:
    words = np.ones(8192, dtype=np.float32)
    before = HOST_KERNELS[name](words, 1)()[0]
    words[position] = 2.0
    assert HOST_KERNELS[name](words, 1)()[0] != before
