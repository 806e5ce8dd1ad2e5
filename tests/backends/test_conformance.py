"""The conformance suite bites: for each check, a session that breaks just that clause."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends import conformance
from backends.base import BackendError, Held, LoadRequest
from backends.simulated import Options, SimulatedSession

EXACT = 0.0


class Sound(SimulatedSession):
    def __init__(self):
        request = LoadRequest(Path(), weight_format=None)
        super().__init__(request, Options(ttft_s=0, itl_s=0))


class KnowsRoomBeforeAllocation(Sound):
    def facts(self):
        return replace(super().facts(), kv_allocated_tokens=max(128, self._states.shape[1]))


class LogitsInFloat64(Sound):
    def logits(self, tokens):
        return super().logits(tokens).astype(np.float64)


class LogitsOfTheLastPositionOnly(Sound):
    def logits(self, tokens):
        return super().logits(tokens)[:, -1:]


class LogitsWithNan(Sound):
    def logits(self, tokens):
        logits = super().logits(tokens)
        logits[0, -1, 0] = np.nan
        return logits


class PrefillAnswersForTheFirstPosition(Sound):
    def prefill(self, tokens):
        first = super().prefill(tokens[:, :1])
        if tokens.shape[1] > 1:
            super().prefill(tokens[:, 1:])
        return first


class PrefillInInt64(Sound):
    def prefill(self, tokens):
        return super().prefill(tokens).astype(np.int64)


class PrefillWithAColumn(Sound):
    def prefill(self, tokens):
        return super().prefill(tokens)[:, None]


class DecodeLosesTheLastStep(Sound):
    def decode(self, tokens):
        yield from list(super().decode(tokens))[:-1]


class DecodeIsOneStepLate(Sound):
    def decode(self, tokens):
        answers = list(super().decode(tokens))
        yield from [answers[0], *answers[:-1]]


class DecodeFeedsItsOwnAnswers(Sound):
    def decode(self, tokens):
        token = tokens[:, :1]
        for _ in range(tokens.shape[1]):
            ids = self.prefill(token)
            yield ids
            token = ids[:, None]


class DecodeKeepsOneStepOutOfTheCache(Sound):
    def decode(self, tokens):
        yield from super().decode(tokens)
        self._used -= 1


class RecomputeSkipsTheFirstPrefix(Sound):
    def recompute(self, tokens, first):
        yield from super().recompute(tokens, first + 1)


class RecomputeForgetsAllButTheLastToken(Sound):
    def recompute(self, tokens, first):
        for end in range(first, tokens.shape[1] + 1):
            yield next(super().recompute(tokens[:, end - 1 : end], 1))


class EveryCallStartsAnew(Sound):
    def logits(self, tokens):
        self.reset()
        return super().logits(tokens)


class ForgetsPast256Tokens(Sound):
    """A cache that loses what it holds when it grows by its block of 256 tokens."""

    def _append(self, tokens):
        if self._used < 256 <= self._used + tokens.shape[1] and self._used:
            self._states[:, : self._used] = 0
        return super()._append(tokens)


class ResetIsOffByOne(Sound):
    def reset(self, keep_tokens=0):
        kept = super().reset(keep_tokens)
        self._used += bool(keep_tokens)
        return kept


class ResetKeepsTheOldText(Sound):
    """After a cut, what is written where the old text was is lost."""

    _old = 0

    def reset(self, keep_tokens=0):
        self._old = self._used if keep_tokens else 0
        return super().reset(keep_tokens)

    def _append(self, tokens):
        before, start = self._states.copy(), self._used
        super()._append(tokens)
        kept = slice(start, min(self._old, self._used))
        self._states[:, kept] = before[:, kept]
        return self._states[:, start : self._used]


class ResetClaimsWhatIsNotThere(Sound):
    def reset(self, keep_tokens=0):
        super().reset(keep_tokens)
        return keep_tokens


class ResetKeepsLessButNotNothing(Sound):
    def reset(self, keep_tokens=0):
        return super().reset(keep_tokens // 2)


class ResetKeepsAll(Sound):
    def reset(self, keep_tokens=0):
        return keep_tokens


class SequencesMix(Sound):
    def _append(self, tokens):
        mixed = tokens + tokens.sum(axis=0)  # Alone, a sequence gets another sum than in a batch.
        return super()._append(mixed)


class BatchIsReversed(Sound):
    def prefill(self, tokens):
        return super().prefill(tokens)[::-1]


class AllocateKeepsTheOldCache(Sound):
    def allocate(self, context_tokens, batch, *, kv_cache=True):
        kept = self._states[:1, :3]
        super().allocate(context_tokens, batch, kv_cache=kv_cache)
        if kept.size == 3 and context_tokens:
            self._states[:, :3] = kept
            self._used = 3


class AllocatesLessThanAsked(Sound):
    def facts(self):
        facts = super().facts()
        return replace(facts, kv_allocated_tokens=max(0, facts.kv_allocated_tokens - 1))


class OverflowIsSilent(Sound):
    def _append(self, tokens):
        missing = self._used + tokens.shape[1] - self._states.shape[1]
        if missing > 0:
            self._states = np.pad(self._states, ((0, 0), (0, missing)))
        return super()._append(tokens)


class OverflowIsAnIndexError(Sound):
    def _append(self, tokens):
        try:
            return super()._append(tokens)
        except BackendError:
            raise IndexError from None


class HoldsLessThanItSays(Sound):
    def held(self):
        facts = self.facts()
        return (Held("lm_head.weight", facts.n_params, facts.weight_bytes - 1),)


class NoParameters(Sound):
    def facts(self):
        return replace(super().facts(), n_params=0)


class ThreadsUnknownWithoutReason(Sound):
    def facts(self):
        return replace(super().facts(), n_threads=None)


class GpuWithoutAName(Sound):
    def facts(self):
        return replace(super().facts(), device="cuda:0")


class SettingsHoldAPath(Sound):
    def facts(self):
        return replace(super().facts(), engine_settings={"compiler": {"flags": ["-O3 /opt/include"]}})


class SettingsHoldAWindowsPath(Sound):
    def facts(self):
        return replace(super().facts(), engine_settings={"cache": r"C:\models"})


class SettingsAreNoJson(Sound):
    def facts(self):
        return replace(super().facts(), engine_settings={"dtype": np.float32})


class PeakUnknownWithoutReason(Sound):
    def memory(self):
        return replace(super().memory(), unavailable={})


class CacheOfZeroBytes(Sound):
    def memory(self):
        return replace(super().memory(), kv_cache_bytes=0)


class ExpertsOfEachSequenceApart(Sound):
    def experts_hit(self, tokens, first):
        batch, n = tokens.shape
        return np.full((n - first, 1), 2 * batch)


class CloseRaises(Sound):
    def close(self):
        raise RuntimeError("the device is busy")


BROKEN = {
    KnowsRoomBeforeAllocation: "facts_before_allocation",
    LogitsInFloat64: "logits_are_float32_and_finite",
    LogitsOfTheLastPositionOnly: "logits_are_float32_and_finite",
    LogitsWithNan: "logits_are_float32_and_finite",
    PrefillAnswersForTheFirstPosition: "prefill_returns_the_last_argmax",
    PrefillInInt64: "prefill_returns_the_last_argmax",
    PrefillWithAColumn: "prefill_returns_the_last_argmax",
    DecodeLosesTheLastStep: "decode_returns_each_argmax",
    DecodeIsOneStepLate: "decode_returns_each_argmax",
    DecodeFeedsItsOwnAnswers: "decode_returns_each_argmax",
    DecodeKeepsOneStepOutOfTheCache: "decode_continues_where_it_ended",
    RecomputeSkipsTheFirstPrefix: "recompute_answers_as_cached_decode",
    RecomputeForgetsAllButTheLastToken: "recompute_answers_as_cached_decode",
    EveryCallStartsAnew: "pieces_equal_the_whole",
    ForgetsPast256Tokens: "pieces_equal_the_whole",
    ResetIsOffByOne: "reset_keeps_a_prefix",
    ResetKeepsLessButNotNothing: "reset_keeps_a_prefix",
    ResetKeepsTheOldText: "a_kept_prefix_serves_another_text",
    ResetClaimsWhatIsNotThere: "reset_keeps_no_more_than_there_is",
    ResetKeepsAll: "reset_forgets_everything",
    SequencesMix: "sequences_of_a_batch_do_not_mix",
    BatchIsReversed: "sequences_of_a_batch_do_not_mix",
    AllocateKeepsTheOldCache: "allocate_starts_empty",
    AllocatesLessThanAsked: "allocation_holds_what_was_asked",
    OverflowIsSilent: "overflow_is_an_error",
    OverflowIsAnIndexError: "overflow_is_an_error",
    HoldsLessThanItSays: "facts_are_sane",
    NoParameters: "facts_are_sane",
    ThreadsUnknownWithoutReason: "facts_are_sane",
    GpuWithoutAName: "facts_are_sane",
    SettingsHoldAPath: "facts_are_sane",
    SettingsHoldAWindowsPath: "facts_are_sane",
    SettingsAreNoJson: "facts_are_sane",
    PeakUnknownWithoutReason: "memory_is_sane",
    CacheOfZeroBytes: "memory_is_sane",
    ExpertsOfEachSequenceApart: "experts_are_counted_or_not_told",
    CloseRaises: "closing_raises_nothing",
}


@pytest.mark.parametrize(("broken", "check"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_clause_is_found(broken, check):
    results = {result.name: result for result in conformance.run(broken, tolerance=EXACT)}
    assert not results[check].ok
    assert results[check].detail


def test_every_check_has_a_session_that_fails_it():
    assert {check.__name__ for check in conformance.checks()} == set(BROKEN.values())


def test_a_sound_session_passes_every_check():
    results = conformance.run(Sound, tolerance=EXACT)
    assert [result for result in results if not result.ok] == []
    assert [result.name for result in results] == [check.__name__ for check in conformance.checks()]


def test_assert_conforms_lists_what_failed():
    with pytest.raises(
        AssertionError, match=r"^facts_before_allocation: n_params is 0\nfacts_are_sane: n_params is 0$"
    ):
        conformance.assert_conforms(NoParameters, EXACT)


class ResetCannotCut(Sound):
    def reset(self, keep_tokens=0):
        return super().reset(keep_tokens * 0)


class DecodeReusesItsArray(Sound):
    def decode(self, tokens):
        reused = np.empty(len(tokens), np.int32)
        for ids in super().decode(tokens):
            reused[:] = ids
            yield reused


class RoundsItsRoomUp(Sound):
    def allocate(self, context_tokens, batch, *, kv_cache=True):
        super().allocate(-(-context_tokens // 256) * 256, batch, kv_cache=kv_cache)


class BreaksTiesOtherwise(Sound):
    """Logits of another kernel: off by rounding, so that the id it chose is not their exact argmax."""

    def logits(self, tokens):
        return np.minimum(super().logits(tokens), np.float32(0.99))


@pytest.mark.parametrize("session", [ResetCannotCut, DecodeReusesItsArray, RoundsItsRoomUp])
def test_what_the_contract_allows_passes(session):
    conformance.assert_conforms(session, EXACT)


def test_ties_and_rounding_are_allowed_within_the_tolerance():
    conformance.assert_conforms(BreaksTiesOtherwise, tolerance=0.02)
