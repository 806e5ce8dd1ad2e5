"""How far quantised answers move, by a pencil and on an engine whose answers are known."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backends import simulated
from backends.base import BackendError, LoadRequest
from harness.probe import PROBE_SEED
from harness.quality.answers import Quality, answers, compare
from harness.workload import token_stream


def test_a_divergence_that_a_pencil_gives() -> None:
    # Halves against a quarter and three: 1/2 ln(2) + 1/2 ln(2/3) = ln(2) - ln(3)/2; then equal: 0.
    unquantised = np.log(np.array([[0.5, 0.5], [0.9, 0.1]])).astype(np.float32)
    quantised = np.log(np.array([[0.25, 0.75], [0.9, 0.1]])).astype(np.float32) + 7  # a constant changes nothing
    found = compare(unquantised, quantised)
    assert found.kl == pytest.approx((np.log(2) - np.log(3) / 2) / 2, rel=1e-5)
    assert found.top1 == 0.5


_LOGITS = arrays(np.float32, (3, 5), elements=st.floats(-80, 80, width=32))


@given(_LOGITS, _LOGITS)
def test_a_divergence_is_never_negative_and_none_from_itself(p: np.ndarray, q: np.ndarray) -> None:
    assert compare(p, q).kl >= 0
    assert compare(p, p) == Quality(pytest.approx(0, abs=1e-12), 1.0)


def test_answers_are_those_of_the_probes_last_tokens() -> None:
    session = simulated.load(LoadRequest(Path("none"), None))
    found = answers(session)
    tokens = token_stream(512, 1, session.vocab_size, PROBE_SEED)
    session.reset(0)
    assert np.array_equal(found, session.logits(tokens)[0, -64:])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_answers_that_are_no_numbers_are_no_quality(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    session = simulated.load(LoadRequest(Path("none"), None))
    whole = session.logits

    def overflowing(tokens: np.ndarray) -> np.ndarray:
        logits = whole(tokens)
        logits[0, -1, 3] = value
        return logits

    monkeypatch.setattr(session, "logits", overflowing)
    with pytest.raises(BackendError, match="not all finite"):
        answers(session)
