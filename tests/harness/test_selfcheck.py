"""The check that an engine's timed decode is its own prefill's work, on simulated engines that are right and wrong."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import BackendError, LoadRequest
from backends.simulated import Options, SimulatedSession
from harness import measure
from harness.selfcheck import check_answers, expected_logits
from harness.workload import Case, token_stream

CASES = [Case(0, 16, 8), Case(0, 16, 64), Case(40, 16, 8), Case(40, 0, 8), Case(0, 0, 8), Case(0, 16, 2)]
CASES += [Case(0, 16, 8, kv_cache="off"), Case(0, 0, 8, kv_cache="off"), Case(0, 16, 1, kv_cache="off")]
CASES += [Case(40, 16, 8, kv_cache="prefix"), Case(0, 16, 8, kv_cache="prefix"), Case(40, 16, 0, kv_cache="prefix")]
CASES += [Case(case.n_depth, case.n_prompt, case.n_gen, 3, case.kv_cache) for case in CASES]


class AnswersAnotherToken(SimulatedSession):
    def decode(self, tokens):
        for ids in super().decode(tokens):
            yield (ids + 1) % self.vocab_size


class ForgetsTheDepth(SimulatedSession):
    """Its decode attends over nothing but its own tokens."""

    def decode(self, tokens):
        used, self._used = self._used, 0
        kept = self._states.copy()
        yield from super().decode(tokens)
        self._states[:, used : used + tokens.shape[1]] = self._states[:, : tokens.shape[1]]
        self._states[:, :used] = kept[:, :used]
        self._used = used + tokens.shape[1]


class MixesUpSequences(SimulatedSession):
    def decode(self, tokens):
        for ids in super().decode(tokens):
            yield ids[::-1].copy()


class GoesWrongAfterTheFirstStep(SimulatedSession):
    def decode(self, tokens):
        for step, ids in enumerate(super().decode(tokens)):
            yield ids if step == 0 else np.zeros_like(ids)


class CannotCut(SimulatedSession):
    """Like a cache with a sliding window: what was kept is nothing, and the depth is filled anew."""

    def reset(self, keep_tokens=0):
        return super().reset(0)


def _repeat(kind: type[SimulatedSession], case: Case) -> tuple[SimulatedSession, NDArray, NDArray]:
    session = kind(LoadRequest(Path("none"), "bf16"), Options(ttft_s=0.0, itl_s=0.0))
    tokens = token_stream(case.context_tokens, case.batch, session.vocab_size, 1)
    session.allocate(case.context_tokens, case.batch, kv_cache=case.kv_cache != "off")
    measure.fill(session, case, tokens)
    return session, tokens, measure.repeat(session, case, tokens).ids


class RecomputesTheShorterPrefix(SimulatedSession):
    """Each answer is the one before it."""

    def recompute(self, tokens, first):
        return super().recompute(np.roll(tokens, 1, axis=1), first)


class KeepsTheOtherText(SimulatedSession):
    """Says that it cut its cache back, and goes on after the text that was there."""

    def reset(self, keep_tokens=0):
        self._states[:, keep_tokens - 1 : keep_tokens] = self._states[:, -1:]
        return super().reset(keep_tokens)


@pytest.mark.parametrize("kind", [SimulatedSession, CannotCut])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_engine_that_is_right_passes(kind: type[SimulatedSession], case: Case) -> None:
    session, tokens, ids = _repeat(kind, case)
    _check(session, case, tokens, ids)
    measure.fill(session, case, tokens)
    assert (measure.repeat(session, case, tokens).ids == ids).all(), "the session can go on"


@pytest.mark.parametrize("case", [case for case in CASES if case.kv_cache == "on"], ids=str)
def test_a_decode_that_answers_another_token_is_refused(case: Case) -> None:
    with pytest.raises(BackendError, match=r"contradicts its own prefill.*standard deviations"):
        _check(*_arguments(AnswersAnotherToken, case))


@pytest.mark.parametrize("case", [Case(0, 16, 8), Case(40, 16, 8), Case(40, 0, 8, batch=2)], ids=str)
def test_a_decode_that_forgets_its_context_is_refused(case: Case) -> None:
    with pytest.raises(BackendError, match="contradicts its own prefill"):
        _check(*_arguments(ForgetsTheDepth, case))


def test_a_decode_that_mixes_up_sequences_is_refused() -> None:
    _check(*_arguments(MixesUpSequences, Case(0, 16, 8, batch=1)))
    with pytest.raises(BackendError, match=r"of sequence [12] answered"):
        _check(*_arguments(MixesUpSequences, Case(0, 16, 8, batch=2)))


@pytest.mark.parametrize("case", [case for case in CASES if case.kv_cache == "off"], ids=str)
def test_other_answers_without_a_cache_are_refused(case: Case) -> None:
    with pytest.raises(BackendError, match="decode without a KV cache contradicts its own prefill"):
        _check(*_arguments(RecomputesTheShorterPrefix, case))


def test_a_prefix_that_is_not_the_texts_own_is_refused() -> None:
    case = Case(40, 16, 8, kv_cache="prefix")
    with pytest.raises(BackendError, match="use of a cached prefix contradicts its own prefill: step "):
        _check(*_arguments(KeepsTheOtherText, case))


def test_a_decode_that_goes_wrong_later_is_refused() -> None:
    _check(*_arguments(GoesWrongAfterTheFirstStep, Case(0, 16, 2)))  # its only step is right
    with pytest.raises(BackendError, match=r"step ([2-9]|1\d) of sequence"):
        _check(*_arguments(GoesWrongAfterTheFirstStep, Case(0, 16, 32)))


@pytest.mark.parametrize("case", [Case(0, 16, 0), Case(0, 16, 1)], ids=str)
def test_without_a_decode_step_there_is_nothing_to_check(case: Case) -> None:
    _check(*_arguments(AnswersAnotherToken, case))


def test_rounding_may_turn_a_near_tie() -> None:
    case = Case(8, 16, 8, batch=2)
    session, tokens, ids = _repeat(SimulatedSession, case)
    session.reset(case.decode_start)
    logits = session.logits(tokens[:, case.decode_start : case.decode_start + case.n_steps])
    ranked = logits.argsort(axis=2)
    # 512 logits uniform in [0, 1): the second best lies about 1/512 below the best, the median half a unit, and a
    # standard deviation is 1/sqrt(12).
    near, far = ranked[:, :, -2], ranked[:, :, 256]
    _check(session, case, tokens, np.concatenate([ids[:, :1], near], axis=1).astype(np.int32))
    with pytest.raises(BackendError, match=r"token 1\.\d standard deviations below the best"):
        _check(session, case, tokens, np.concatenate([ids[:, :1], far], axis=1).astype(np.int32))


def _check(session: SimulatedSession, case: Case, tokens: NDArray[np.int32], ids: NDArray[np.int32]) -> None:
    """As the worker does."""
    if case.kv_cache == "off":
        session.allocate(case.context_tokens, case.batch)
    check_answers(case, ids, expected_logits(session, case, tokens))


def _arguments(
    kind: type[SimulatedSession], case: Case
) -> tuple[SimulatedSession, Case, NDArray[np.int32], NDArray[np.int32]]:
    session, tokens, ids = _repeat(kind, case)
    return session, case, tokens, ids
