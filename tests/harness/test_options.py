"""What a program asks, which no command line has read before."""

from typing import Any

import pytest

from harness.errors import UserError
from harness.options import Options


def test_one_value_is_a_list_of_one() -> None:
    options = Options(models="gpt2-mini", n_prompt=64, n_gpu_layers=-1)
    assert (options.models, options.n_prompt, options.n_gpu_layers) == (("gpt2-mini",), (64,), (-1,))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"n_prompt": -1}, "n_prompt: -1 is too small, the least is 0"),
        ({"n_gen": (4, -2)}, "n_gen: -2 is too small"),
        ({"batch": 0}, "batch: 0 is too small, the least is 1"),
        ({"n_gpu_layers": -2}, "n_gpu_layers: -2 is too small, the least is -1"),
        ({"n_prompt": "64"}, "n_prompt: '64' is no whole number"),
        ({"n_prompt": (6.4,)}, "n_prompt: 6.4 is no whole number"),
        ({"n_depth": (True,)}, "n_depth: True is no whole number"),
        ({"models": 3}, "models: 3 is no text"),
        ({"backends": ("torch", None)}, "backends: None is no text"),
        ({"n_threads": 2.5}, "n_threads: 2.5 is no list"),
    ],
)
def test_what_cannot_be_asked_is_told(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Options(**asked)
