import time

import pytest
from torch.backends import mkldnn

from backends.torch.linear import linear_products, prefers_onednn


@pytest.mark.parametrize("onednn", [True, False])
def test_a_product_is_chosen_for_the_block_alone(onednn: bool) -> None:
    before = mkldnn.enabled
    with linear_products(onednn=onednn):
        assert mkldnn.enabled == onednn
    assert mkldnn.enabled == before
    with pytest.raises(ValueError, match="in the block"), linear_products(onednn=onednn):
        raise ValueError("in the block")
    assert mkldnn.enabled == before


@pytest.mark.parametrize(
    ("onednn_s", "own_s", "onednn"),
    [(0.02, 0.01, False), (0.01, 0.02, True), (0.0200, 0.0195, True)],
    ids=["own is faster", "onednn is faster", "too close to tell"],
)
def test_the_clearly_faster_product_is_taken(onednn_s: float, own_s: float, onednn: bool) -> None:
    def step() -> None:
        end = time.perf_counter() + (onednn_s if mkldnn.enabled else own_s)
        while time.perf_counter() < end:
            pass

    assert prefers_onednn(step) == onednn
