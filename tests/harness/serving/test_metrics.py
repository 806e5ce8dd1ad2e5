"""From the times of chunks to rates, by pencil."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.openai.client import Recording
from backends.openai.errors import ServerError
from harness.serving.metrics import metrics
from harness.serving.reply import read
from harness.serving.round import arrivals_s

MS = 1_000_000


def _event(text="x", finish=None, **more):
    return json.dumps({"choices": [{"text": text, "finish_reason": finish}], **more})


def _reply(sent_ms, chunks_ms, events=None):
    """One whose chunks of one token each came at these times, and its end with the last."""
    events = events or [_event() for _ in chunks_ms]
    stamps = [ms * MS for ms in (*chunks_ms, chunks_ms[-1])]
    return read(Recording(sent_ms * MS, stamps, [*events, _event("", "length")]))


def test_one_stream():
    values, missing = metrics([_reply(100, [150, 160, 170, 190])], 4)
    assert values["ttft_client_s"] == pytest.approx(0.050)
    assert values["decode_tok_s"] == values["request_tok_s"] == pytest.approx(3 / 0.040)
    assert values["tpot_s"] == pytest.approx(0.040 / 3)
    assert values["output_tok_s"] == pytest.approx(4 / 0.090)
    assert (values["itl_p50_s"], values["itl_max_s"]) == (pytest.approx(0.010), pytest.approx(0.020))
    assert missing.keys() == {"ttft_client_p90_s", "ttft_client_p99_s"}


def test_two_streams_decode_together_from_the_later_first_to_the_earlier_last():
    # The first decodes from 100 to 140 ms, the second from 120 to 160 ms, each with a token every 10 ms.
    replies = [_reply(0, range(100, 150, 10)), _reply(0, range(120, 170, 10))]
    values, _ = metrics(replies, 5)
    assert values["decode_tok_s"] == pytest.approx(2 * 2 / 0.020)
    assert values["request_tok_s"] == pytest.approx(4 / 0.040)
    assert values["output_tok_s"] == pytest.approx(10 / 0.160)
    assert values["ttft_client_s"] == pytest.approx(0.110)
    assert values["ttft_client_p90_s"] == pytest.approx(0.118)


def test_streams_one_after_the_other_never_decode_together():
    values, missing = metrics([_reply(0, [100, 110, 120]), _reply(0, [130, 140, 150])], 3)
    assert "decode_tok_s" not in values
    assert "never all decode at once" in missing["decode_tok_s"]
    assert values["request_tok_s"] == pytest.approx(2 / 0.020)


@pytest.mark.parametrize(
    ("events", "n_gen", "why"),
    [([_event("xxxx")], 4, "one chunk"), ([_event()], 1, "one token"), ([_event()], 0, "prefill only")],
)
def test_what_shows_no_rate(events, n_gen, why):
    values, missing = metrics([_reply(0, [100], events)], n_gen)
    assert values["ttft_client_s"] == pytest.approx(0.1)
    for column in ("decode_tok_s", "request_tok_s", "tpot_s", "itl_p50_s", "itl_max_s"):
        assert column not in values
        assert why in missing[column]


def test_chunks_whose_tokens_the_server_counts():
    # 1, then 3, then 4 tokens: seven came in 30 ms, whatever the chunks are.
    counts = [1, 4, 8]
    events = [_event("x" * 3, usage={"prompt_tokens": 5, "completion_tokens": count}) for count in counts]
    values, missing = metrics([_reply(0, [100, 115, 130], events)], 8)
    assert values["decode_tok_s"] == pytest.approx(7 / 0.030)
    assert "chunk" in missing["itl_p50_s"]


def test_what_is_no_token_takes_no_time():
    """A role, an empty text, counts alone: before the first token, between two, and after the last."""
    role = json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    events = [role, _event(""), _event(), _event(""), _event(), _event("", "length"), usage, "[DONE]"]
    reply = read(Recording(0, [ms * MS for ms in (10, 20, 100, 105, 110, 150, 160, 170)], events))
    assert reply.ttft_s == pytest.approx(0.1)
    assert reply.decode_s == pytest.approx(0.01)
    assert (reply.prompt_tokens, reply.completion_tokens) == (5, 2)


@pytest.mark.parametrize("events", [[], [_event()], [_event("", "stop")]], ids=["nothing", "cut", "no token"])
def test_a_stream_that_is_none(events):
    with pytest.raises(ServerError):
        read(Recording(0, [MS * i for i in range(len(events))], events))


def test_a_token_that_is_no_whole_character_came_by_the_end_at_the_latest():
    """One byte of an emoji is a token without a text; llama_cpp.server then sends the end alone."""
    reply = read(Recording(0, [100 * MS, 101 * MS], [_event("", "length"), "[DONE]"]))
    assert reply.ttft_s == pytest.approx(0.1)


@given(st.integers(1, 6), st.integers(2, 30), st.data())
def test_the_rate_of_all_is_never_above_the_sum_of_what_each_could_do(n_streams, n_gen, data):
    steps = st.lists(st.integers(1, 50), min_size=n_gen, max_size=n_gen)
    replies = [_reply(0, np.cumsum(data.draw(steps)).tolist()) for _ in range(n_streams)]
    values, missing = metrics(replies, n_gen)
    assert ("decode_tok_s" in values) != ("decode_tok_s" in missing)
    if "decode_tok_s" in values:
        assert 0 < values["decode_tok_s"] <= n_streams * 1000 * (1 + 1e-9), "no token came faster than every ms"
        assert values["tpot_s"] * values["decode_tok_s"] == pytest.approx(n_streams)
    assert values["ttft_client_s"] == pytest.approx(np.median([reply.ttft_s for reply in replies]))


def test_arrivals_are_a_poisson_process_of_the_asked_rate():
    times = arrivals_s(20.0, 20_001, seed=1, repetition=1)
    waits = np.diff(times)
    # The mean of 20 000 waits is off by 0.7 % (one standard deviation), and so is their deviation by some 1 %.
    assert waits.mean() == pytest.approx(1 / 20, rel=0.04)
    assert waits.std() == pytest.approx(1 / 20, rel=0.06)
    assert (waits < 1 / 20).mean() == pytest.approx(1 - np.exp(-1), abs=0.02)


@given(st.integers(0, 2**63 - 1), st.integers(0, 100), st.integers(1, 50))
def test_arrivals_follow_from_seed_and_round(seed, repetition, n_requests):
    times = arrivals_s(5.0, n_requests, seed, repetition)
    assert times == arrivals_s(5.0, n_requests, seed, repetition)
    assert len(times) == n_requests
    assert times == sorted(times)
    if n_requests > 1:
        assert times != arrivals_s(5.0, n_requests, seed, repetition + 1)
