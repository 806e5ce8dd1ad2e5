"""What is read off the stream, beside what the server logged as it sent it: which chunk ends TTFT, whose counts."""

from __future__ import annotations

import json

import pytest

# The two processes share one clock. What lies between a send and its receipt is a loopback socket and the client's
# loop, well under this on a machine that is busy with other tests.
SLACK_S = 0.1
N_GEN = 16
ITL_S = 0.02


def _sent(request):
    """TTFT and the time from the first to the last token as the server did it, in seconds."""
    times = [ns / 1e9 for ns, _ in request["sends"]]
    return times[0] - request["arrived_ns"] / 1e9, times[-1] - times[0]


def _check_times(row, request):
    ttft_s, decode_s = _sent(request)
    assert 0 <= row["ttft_client_s"] - ttft_s < SLACK_S
    tokens_of_first_chunk = request["sends"][0][1]
    intervals = N_GEN - tokens_of_first_chunk
    assert intervals / row["decode_tok_s"] == pytest.approx(decode_s, abs=SLACK_S)
    assert row["request_tok_s"] == pytest.approx(row["decode_tok_s"])


STREAMS = {
    "plain": {},
    "finish with the last token": {"finish_apart": False},
    "llama.cpp's timings": {"usage": False, "timings": True},
    "role first": {"chat_only": True, "role_first": True},
    "empty deltas": {"empty_deltas": True},
    "keep-alive comments": {"keep_alives": True},
    "all of them": {"chat_only": True, "role_first": True, "empty_deltas": True, "keep_alives": True},
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_time_runs_to_the_first_and_the_last_generated_token(fake_server, bench, stream):
    served = fake_server(ttft_s=0.15, itl_s=ITL_S, **stream)
    row = bench(served.base_url, "-n", str(N_GEN)).ok
    _check_times(row, *served.timed(N_GEN))
    assert row["itl_p50_s"] == pytest.approx(ITL_S, rel=0.5)
    reasons = json.loads(row["unavailable"])
    assert {"ttft_s", "prefill_tok_s"} <= reasons.keys()


def test_reasoning_tokens_count_and_are_told_apart(fake_server, bench):
    served = fake_server(ttft_s=0.1, itl_s=ITL_S, chat_only=True, role_first=True, reasoning_tokens=10)
    row = bench(served.base_url, "-n", str(N_GEN)).ok
    _check_times(row, *served.timed(N_GEN))
    assert row["reasoning_tokens"] == 10


def test_reasoning_goes_by_another_name_with_some_servers(fake_server, bench):
    served = fake_server(itl_s=ITL_S, chat_only=True, reasoning_tokens=10, reasoning_field="reasoning")
    _check_times(bench(served.base_url, "-n", str(N_GEN)).ok, *served.timed(N_GEN))


def test_several_tokens_in_a_chunk_count_as_many_and_have_no_itl(fake_server, bench):
    served = fake_server(ttft_s=0.1, itl_s=ITL_S, tokens_per_chunk=4)
    row = bench(served.base_url, "-n", str(N_GEN)).ok
    (request,) = served.timed(N_GEN)
    assert len(request["sends"]) == 4
    _, decode_s = _sent(request)
    # 12 tokens came in that time, not 3 chunks and not 15 tokens: the first chunk held four.
    assert 12 / row["decode_tok_s"] == pytest.approx(decode_s, rel=0.3)
    assert row[["itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s"]].isna().all()
    assert "chunk" in json.loads(row["unavailable"])["itl_p50_s"]


def test_a_reply_in_one_chunk_has_no_decode_rate(fake_server, bench):
    served = fake_server(whole_reply=True)
    row = bench(served.base_url).ok
    assert row[["decode_tok_s", "request_tok_s", "tpot_s", "itl_p50_s"]].isna().all()
    assert "one chunk" in json.loads(row["unavailable"])["decode_tok_s"]


def test_without_usage_in_the_stream_a_reply_that_is_none_tells_the_counts(fake_server, bench):
    """llama_cpp.server is such a one."""
    served = fake_server(ttft_s=0.1, itl_s=ITL_S, usage=False)
    _check_times(bench(served.base_url, "-n", str(N_GEN)).ok, *served.timed(N_GEN))


def test_where_the_server_counts_nothing_the_models_tokenizer_does(fake_server, bench, tiny_hf):
    served = fake_server(itl_s=ITL_S, tokens_per_chunk=4, usage=False, usage_of_documents=False, models=["served-name"])
    model = ("-m", str(tiny_hf), "--artifact", "openai=served-name", "--on", "RTX 5090")
    row = bench(served.base_url, "-n", str(N_GEN), *model).ok
    _, decode_s = _sent(*served.timed(N_GEN))
    assert 12 / row["decode_tok_s"] == pytest.approx(decode_s, rel=0.3)


def test_where_nobody_counts_the_row_fails(fake_server, bench):
    """Chunks are no tokens: a stream of 8 chunks may hold 8 tokens or 80."""
    assert "count" in bench(fake_server(usage=False, usage_of_documents=False).base_url).error
