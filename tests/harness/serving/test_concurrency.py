"""Several streams at once: rates of all and of each, percentiles, arrivals, and the ceiling for that batch."""

from __future__ import annotations

import json

import numpy as np
import pytest

ITL_S, N_GEN = 0.02, 16
SLACK_S = 0.15  # what a busy machine may add to a request on loopback


def _firsts_and_lasts(requests):
    times = np.array([[request["sends"][0][0], request["sends"][-1][0]] for request in requests]) / 1e9
    return times.T


def test_rates_of_all_and_of_each(fake_server, bench):
    served = fake_server(ttft_s=0.1, itl_s=ITL_S)
    row = bench(served.base_url, "-n", str(N_GEN), "--concurrency", "8").ok
    requests = served.timed(N_GEN, 8)
    assert row["batch"] == 8
    firsts, lasts = _firsts_and_lasts(requests)
    assert firsts.max() < lasts.min()
    sends = np.concatenate([[ns / 1e9 for ns, _ in request["sends"]] for request in requests])
    # Tokens that came while all eight were decoding, over that time.
    together = ((sends > firsts.max()) & (sends <= lasts.min())).sum() / (lasts.min() - firsts.max())
    assert row["decode_tok_s"] == pytest.approx(together, rel=0.2)
    assert row["decode_tok_s"] == pytest.approx(8 / ITL_S, rel=0.2)
    assert row["request_tok_s"] == pytest.approx(np.median(15 / (lasts - firsts)), rel=0.2)
    begun = min(request["arrived_ns"] for request in requests) / 1e9
    assert row["output_tok_s"] == pytest.approx(8 * N_GEN / (lasts.max() - begun), rel=0.2)
    assert row["output_tok_s"] < row["decode_tok_s"], "prefill is in one and not in the other"
    assert row["ttft_client_s"] <= row["ttft_client_p90_s"] <= row["ttft_client_p99_s"]


def test_each_concurrency_has_its_rows_and_its_requests(fake_server, bench):
    served = fake_server()
    outcome = bench(served.base_url, "--concurrency", "1,2,4", "-r", "2")
    assert outcome.rows.groupby("batch").size().to_dict() == {1: 2, 2: 2, 4: 2}
    assert (outcome.rows["status"] == "ok").all()
    requests = served.timed(8, 1000)
    at_once = max(
        sum(other["arrived_ns"] <= request["arrived_ns"] < other["ended_ns"] for other in requests)
        for request in requests
    )
    assert at_once == 4


def test_a_server_that_takes_turns_has_no_aggregate_decode_rate(fake_server, bench):
    served = fake_server(ttft_s=0.05, itl_s=0.01, serial=True)
    row = bench(served.base_url, "--concurrency", "3").ok
    assert row.isna()["decode_tok_s"]
    assert "decode" in json.loads(row["unavailable"])["decode_tok_s"]
    firsts, lasts = _firsts_and_lasts(served.timed(8, 3))
    assert row["request_tok_s"] == pytest.approx(np.median(7 / (lasts - firsts)), rel=0.3)
    # The last in the queue waits for two whole replies of 0.12 s each.
    assert row["ttft_client_p99_s"] - row["ttft_client_s"] > 0.08
    assert row["output_tok_s"] > 0


def test_one_stream_that_fails_costs_the_round(fake_server, bench):
    """What the other streams did had fewer neighbours than asked for."""
    served = fake_server(fault="break", faulty_from_tokens=8, healthy_first=4 + 4 + 3)
    rows = bench(served.base_url, "--concurrency", "4", "-r", "5").rows
    assert rows["status"].tolist() == ["ok", "failed"]


def test_poisson_arrivals_are_drawn_from_the_seed(fake_server, bench):
    begun = {}
    for name, seed in (("a", "7"), ("again", "7"), ("other", "8")):
        served = fake_server(ttft_s=0.002, itl_s=0.001)
        row = bench(served.base_url, "--concurrency", "12", "--rate", "8", "--seed", seed, output=f"{name}.csv").ok
        assert row["request_rate"] == 8
        arrived = np.sort([request["arrived_ns"] / 1e9 for request in served.timed(8, 12)])
        begun[name] = arrived - arrived[0]
    assert begun["a"] == pytest.approx(begun["again"], abs=SLACK_S)
    assert not np.allclose(begun["a"], begun["other"], atol=SLACK_S)
    gaps = np.diff(begun["a"])
    assert gaps.max() > 3 * gaps.min(), "an even spacing is no Poisson process"


def test_the_time_to_the_first_token_under_a_rate_holds_the_queue(fake_server, bench):
    """Requests come every 20 ms on average and take 70 ms each, one after the other: the last waits half a second."""
    served = fake_server(ttft_s=0.05, itl_s=0.003, serial=True)
    row = bench(served.base_url, "--concurrency", "12", "--rate", "50").ok
    requests = served.timed(8, 12)
    waited = [(request["sends"][0][0] - request["arrived_ns"]) / 1e9 for request in requests]
    assert row["ttft_client_p99_s"] == pytest.approx(np.quantile(waited, 0.99), abs=SLACK_S)
    assert row["ttft_client_s"] == pytest.approx(np.median(waited), abs=SLACK_S)


def test_the_ceiling_is_that_of_so_many_sequences(fake_server, bench):
    """The README's pencil, four times: weights once a step, 18 841 600 B of KV cache for each sequence."""
    served = fake_server(ttft_s=0.001, itl_s=0.002)
    model = ("-m", "llama-3.2-1b", "--artifact", "openai=fake-model", "--on", "RTX 5090", "-w", "bf16")
    row = bench(served.base_url, *model, "-p", "512", "-n", "128", "--concurrency", "4").ok
    step_bytes = 2_471_628_800 + 4 * 18_841_600
    assert row["decode_ceiling_spec_tok_s"] == pytest.approx(4 / (step_bytes / 1792e9), rel=1e-3)
    assert row.isna()["decode_ceiling_tok_s"], "nobody measured that machine's bandwidth"
    assert "decode_ceiling_tok_s" in json.loads(row["unavailable"])


def test_no_ceiling_without_a_model_or_a_machine(fake_server, bench):
    row = bench(fake_server().base_url).ok
    reasons = json.loads(row["unavailable"])
    for column in ("decode_ceiling_tok_s", "decode_ceiling_spec_tok_s", "n_params"):
        assert row.isna()[column]
        assert reasons[column]
