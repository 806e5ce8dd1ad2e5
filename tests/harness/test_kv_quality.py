"""What a quantised KV cache costs in quality, by a pencil and on an engine whose answers are known."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backends import simulated
from backends.base import EngineInfo, LoadRequest
from harness import kv_quality
from harness.estimate import Rates
from harness.models.source import resolve
from harness.options import Options
from harness.work import Work, combinations


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _work(**options: object) -> Work:
    (work,) = combinations(Options(**options), [resolve("gpt2-mini")], {"llama.cpp": EngineInfo("1", "CPU")})
    return work


def test_a_divergence_that_a_pencil_gives() -> None:
    # Halves against a quarter and three: 1/2 ln(2) + 1/2 ln(2/3) = ln(2) - ln(3)/2; then equal: 0.
    unquantised = np.log(np.array([[0.5, 0.5], [0.9, 0.1]])).astype(np.float32)
    quantised = np.log(np.array([[0.25, 0.75], [0.9, 0.1]])).astype(np.float32) + 7  # a constant changes nothing
    found = kv_quality.compare(unquantised, quantised)
    assert found.kl == pytest.approx((np.log(2) - np.log(3) / 2) / 2, rel=1e-5)
    assert found.top1 == 0.5


_LOGITS = arrays(np.float32, (3, 5), elements=st.floats(-80, 80, width=32))


@given(_LOGITS, _LOGITS)
def test_a_divergence_is_never_negative_and_none_from_itself(p: np.ndarray, q: np.ndarray) -> None:
    assert kv_quality.compare(p, q).kl >= 0
    assert kv_quality.compare(p, p) == kv_quality.Quality(pytest.approx(0, abs=1e-12), 1.0)


def test_answers_are_those_of_the_probes_last_tokens() -> None:
    session = simulated.load(LoadRequest(Path("none"), None))
    answers = kv_quality.answers(session)
    tokens = kv_quality.token_stream(512, 1, session.vocab_size, kv_quality.PROBE_SEED)
    session.reset(0)
    assert np.array_equal(answers, session.logits(tokens)[0, -64:])


def test_it_is_measured_for_quantised_caches_of_trained_weights_only() -> None:
    assert kv_quality.unmeasured(_work()) == "the KV cache is not quantised"
    assert kv_quality.unmeasured(_work(kv_k_format="f16", kv_v_format="f16")) == "the KV cache is not quantised"
    assert "random" in kv_quality.unmeasured(_work(kv_v_format="q8_0"))


def test_what_a_quantised_cache_is_compared_with_has_no_quantised_cache() -> None:
    request = {
        "kv_k_format": "auto",
        "kv_v_format": "q8_0",
        "engine_options": {"cache": "quantized", "torch_mode": "eager"},
    }
    full = {"kv_k_format": "auto", "kv_v_format": "auto", "engine_options": {"torch_mode": "eager"}}
    assert kv_quality.unquantised(request) == full
    assert request["engine_options"] == {"cache": "quantized", "torch_mode": "eager"}, "the request itself stays"
    static = {"kv_k_format": "auto", "kv_v_format": "auto", "engine_options": {"cache": "static"}}
    assert kv_quality.unquantised(static) == static
