"""The server's prompt cache: defeated unless asked for, and found out where it hits all the same."""

from __future__ import annotations

import json

import pytest

# 128 tokens take 0.26 s longer than none: a hit shows.
SLOW = {"ttft_s": 0.02, "prefill_s_per_token": 0.002}


@pytest.mark.parametrize(
    "behaviour", [{}, {"takes_token_ids": False}, {"chat_only": True}], ids=["ids", "text", "chat"]
)
def test_no_repetition_shares_a_prefix_with_another(fake_server, bench, behaviour):
    served = fake_server(prompt_cache=True, tells_cached=True, **behaviour)
    outcome = bench(served.base_url, "-p", "128", "-r", "4")
    assert outcome.rows["status"].tolist() == ["ok"] * 4, outcome.rows["error"].tolist()
    # The chat template's 4 tokens come before anything of ours, and a character or two may be alike.
    assert all(request["n_cached"] <= 8 for request in served.timed(8, 4))


def test_two_runs_share_none_either(fake_server, bench):
    served = fake_server(prompt_cache=True, tells_cached=True)
    for output in ("a.csv", "b.csv"):
        bench(served.base_url, "-p", "128", output=output).ok  # noqa: B018
    assert all(request["n_cached"] <= 8 for request in served.timed(8, 2))


def test_prompts_of_streams_at_once_differ(fake_server, bench):
    served = fake_server(prompt_cache=True, tells_cached=True)
    bench(served.base_url, "-p", "128", "--concurrency", "4").ok  # noqa: B018
    assert all(request["n_cached"] <= 8 for request in served.timed(8, 4))


def test_a_server_that_can_is_told_not_to_cache(fake_server, bench):
    served = fake_server(prompt_cache=True, honours_cache_prompt=True, owned_by="llamacpp", timings=True)
    bench(served.base_url).ok  # noqa: B018
    assert served.timed(8)[0]["body"]["cache_prompt"] is False


@pytest.mark.parametrize("tells", [True, False], ids=["told", "only seen in the time"])
def test_a_hit_all_the_same_is_no_silent_number(fake_server, bench, tells):
    """Of a prompt of 64 tokens or more all but two count as known, whatever it is."""
    served = fake_server(**SLOW, always_cached_from=64, tells_cached=tells)
    assert "prompt cache" in bench(served.base_url, "-p", "128").error


def test_a_hit_of_a_short_prompt_is_none_either(fake_server, bench):
    served = fake_server(always_cached_from=16, tells_cached=True)
    assert "held 14 of 16" in bench(served.base_url, "-p", "16").error


@pytest.mark.parametrize("behaviour", [{}, {"takes_token_ids": False}], ids=["ids", "text"])
def test_prefix_cache_measures_the_ttft_after_a_cached_prefix(fake_server, bench, behaviour):
    served = fake_server(**SLOW, prompt_cache=True, tells_cached=True, **behaviour)
    outcome = bench(served.base_url, "--prefix-cache", "-d", "64,128", "-p", "32", "-r", "2")
    rows = outcome.rows
    assert (rows["status"] == "ok").all(), rows["error"].tolist()
    assert (rows["kv_cache"] == "prefix").all()
    for depth, same in rows.groupby("n_depth"):
        kept = same["kv_kept_tokens"].dropna()
        assert ((kept >= depth) & (kept <= depth + 8)).all(), f"{depth}: {kept.tolist()}"
        requests = [each for each in served.timed(8, 1000) if each["n_prompt"] == depth + 32][-2:]
        for row, request in zip(same.itertuples(), requests, strict=True):
            sent_s = (request["sends"][0][0] - request["arrived_ns"]) / 1e9
            assert 0 <= row.ttft_client_s - sent_s < 0.1
            assert request["n_cached"] >= depth


def test_prefix_cache_of_a_server_without_one_says_so(fake_server, bench):
    assert "kept none of the 64" in bench(fake_server(tells_cached=True).base_url, "--prefix-cache", "-d", "64").error


PREFIX = ("--prefix-cache", "-d", "64")


def _why_not_kept(row):
    assert row.isna()["kv_kept_tokens"]
    return json.loads(row["unavailable"])["kv_kept_tokens"]


@pytest.mark.parametrize("behaviour", [{}, {"takes_token_ids": False}], ids=["ids", "text"])
def test_what_a_server_does_not_tell_shows_in_ttft(fake_server, bench, behaviour):
    """160 tokens take 0.32 s, the 32 behind the cached ones 0.064 s."""
    served = fake_server(**SLOW, prompt_cache=True, **behaviour)
    outcome = bench(served.base_url, "--prefix-cache", "-d", "128", "-p", "32")
    assert "by its TTFT, most of the prefix" in _why_not_kept(outcome.ok)
    assert "the server does not tell what it kept; by its TTFT, most" in " ".join(outcome.out.split())


def test_a_cache_that_does_not_help_is_no_good_row(fake_server, bench):
    error = bench(fake_server(**SLOW).base_url, *PREFIX, "-p", "16").error
    assert "the prompt cache did not help" in error
    assert "64 of 80 tokens" in error


UNSEEN = {
    "next to nothing is prefill": ({}, ()),
    "TTFT holds decoding": ({**SLOW, "whole_reply": True}, ()),
    "streams wait for each other": (SLOW, ("--concurrency", "2")),
    "most of the prompt is new": (SLOW, ("-p", "256")),
}


@pytest.mark.parametrize(("speed", "flags"), UNSEEN.values(), ids=UNSEEN)
def test_where_ttft_shows_nothing_the_row_and_the_table_say_so(fake_server, bench, speed, flags):
    outcome = bench(fake_server(**speed).base_url, *PREFIX, "-p", "16", *flags)
    assert "TTFT does not show it" in _why_not_kept(outcome.ok)
    assert "the server does not tell what it kept" in " ".join(outcome.out.split())
