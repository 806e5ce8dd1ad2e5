from pathlib import Path

import numpy as np
import pytest

from backends import simulated
from backends.base import LoadRequest
from harness import measure
from harness.metrics import metrics
from harness.workload import Case, token_stream

CASES = [Case(0, 16, 40), Case(12, 16, 40, batch=3), Case(12, 0, 40), Case(0, 16, 0), Case(0, 16, 1)]
CASES += [Case(0, 16, 40, 2, "off"), Case(0, 0, 40, 1, "off"), Case(0, 16, 1, 1, "off"), Case(0, 16, 0, 1, "off")]
CASES += [Case(12, 16, 40, 2, "prefix"), Case(0, 16, 1, 1, "prefix"), Case(12, 1, 0, 1, "prefix")]


def _session(**options: object) -> simulated.SimulatedSession:
    return simulated.load(LoadRequest(Path("none"), None, engine_options=options))


def _repeat(session: simulated.SimulatedSession, case: Case, seed: int = 1) -> measure.Repetition:
    tokens = token_stream(case.context_tokens, case.batch, session.vocab_size, seed)
    session.allocate(case.context_tokens, case.batch, kv_cache=case.kv_cache != "off")
    measure.fill(session, case, tokens)
    return measure.repeat(session, case, tokens)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_engine_gets_the_streams_tokens_in_order(case: Case) -> None:
    session = _session(ttft_s=0.0, itl_s=0.0)
    ids = _repeat(session, case).ids
    # What the model says after each token of the stream, scored in one piece: the independent order of events.
    tokens = token_stream(case.context_tokens, case.batch, session.vocab_size, 1)
    session.reset(0)
    answers = session.logits(tokens).argmax(axis=2)
    first = case.decode_start - 1 if case.n_prompt else case.decode_start
    outputs = max(case.n_gen, 1 if case.n_prompt else 0)
    assert np.array_equal(ids, answers[:, first : first + outputs])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_intervals_are_as_many_as_the_definition_says(case: Case) -> None:
    sample = _repeat(_session(ttft_s=0.0, itl_s=0.0), case)
    assert len(sample.step_ns) == case.n_steps
    assert (sample.ttft_ns is None) == (case.n_prompt == 0)


def test_a_kept_depth_gives_the_same_answers() -> None:
    case, session = Case(20, 8, 8), _session(ttft_s=0.0, itl_s=0.0)
    tokens = token_stream(case.context_tokens, 1, session.vocab_size, 5)
    session.allocate(case.context_tokens, 1)
    answers = []
    for _ in range(3):
        measure.fill(session, case, tokens)
        answers.append(measure.repeat(session, case, tokens).ids)
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])


@pytest.mark.parametrize("case", [Case(0, 16, 60), Case(4, 0, 60, batch=2)], ids=str)
def test_known_rates_are_recovered_within_one_percent(case: Case) -> None:
    ttft_s, itl_s = 0.050, 0.004
    session = _session(ttft_s=ttft_s, itl_s=itl_s)
    samples = [_repeat(session, case) for _ in range(12)]
    rows = [
        metrics(case, sample.ttft_ns and sample.ttft_ns / 1e9, (sample.step_ns / 1e9).tolist())[0] for sample in samples
    ]
    # Whatever else runs on the machine only adds time, so the fastest repetition is the one to hold to it.
    assert max(row["decode_tok_s"] for row in rows) == pytest.approx(case.batch / itl_s, rel=0.01)
    # The simulated engine makes up for a step that came late, so a disturbed repetition has shorter ones too.
    assert np.median([row["itl_p50_s"] for row in rows]) == pytest.approx(itl_s, rel=0.01)
    if case.n_prompt:
        assert min(row["ttft_s"] for row in rows) == pytest.approx(ttft_s, rel=0.01)
        assert max(row["prefill_tok_s"] for row in rows) == pytest.approx(16 / ttft_s, rel=0.01)


class Recording(simulated.SimulatedSession):
    """Notes the calls, and can keep no more than `most` tokens when it is cut back."""

    most = 10**9

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.calls: list[tuple[object, ...]] = []

    def reset(self, keep_tokens=0):
        kept = super().reset(keep_tokens if keep_tokens <= self.most else 0)
        self.calls.append(("reset", keep_tokens, kept))
        return kept

    def prefill(self, tokens):
        self.calls.append(("prefill", tokens.copy()))
        return super().prefill(tokens)

    def recompute(self, tokens, first):
        self.calls.append(("recompute", tokens.shape[1], first))
        return super().recompute(tokens, first)


def _recording(case: Case) -> tuple[Recording, np.ndarray]:
    session = Recording(LoadRequest(Path("none"), None), simulated.Options(ttft_s=0.0, itl_s=0.0))
    session.allocate(case.context_tokens, case.batch)
    return session, token_stream(case.context_tokens, case.batch, session.vocab_size, 7)


@pytest.mark.parametrize("most", [10**9, 11], ids=["cuts anywhere", "cannot cut there"])
def test_a_reused_prefix_is_cut_back_and_the_rest_filled_while_the_clock_runs(most: int) -> None:
    case = Case(12, 4, 3, batch=2, kv_cache="prefix")
    session, tokens = _recording(case)
    session.most = most
    for _ in range(2):  # the second time the cache holds this very text, and must be given the other one again
        session.calls.clear()
        measure.fill(session, case, tokens)
        kind, earlier = session.calls[-1]
        kept = session.calls[0][2]
        assert kind == "prefill"
        assert np.array_equal(earlier[:, : 12 - kept], tokens[:, kept:12])
        assert (earlier[:, 12 - kept :] != tokens[:, 12:16]).all(), "nothing but the prefix is common"
        session.calls.clear()
        sample = measure.repeat(session, case, tokens)
        kept = 12 if most > 12 else 0
        reset, (_, rest) = session.calls
        assert reset == ("reset", 12, kept)
        assert np.array_equal(rest, tokens[:, kept:16])
        assert sample.kept_tokens == kept
        assert sample.ttft_ns is not None


def test_without_a_cache_each_prefix_is_computed_and_none_is_filled() -> None:
    case = Case(0, 5, 4, kv_cache="off")
    session, tokens = _recording(case)
    measure.fill(session, case, tokens)
    sample = measure.repeat(session, case, tokens)
    # Prefixes of 5 to 8 tokens give 4 tokens; the last of them is not fed back.
    assert session.calls[0] == ("recompute", 8, 5), "nothing before it"
    assert sample.kept_tokens is None
    assert sample.ids.shape == (1, 4)
