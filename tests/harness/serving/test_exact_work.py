"""Exactly p tokens in and n tokens out, by the server's own count, or a failed row."""

from __future__ import annotations

import pytest


def _asked(served, n_gen=8):
    (request,) = served.timed(n_gen)
    return request


def test_token_ids_where_the_server_takes_them(fake_server, bench):
    served = fake_server()
    row = bench(served.base_url).ok
    request = _asked(served)
    assert request["path"] == "v1/completions"
    assert len(request["body"]["prompt"]) == 16
    assert all(isinstance(token, int) for token in request["body"]["prompt"])
    assert (row["n_prompt"], row["n_gen"], row["decode_start"]) == (16, 8, 16)


TEXTS = {
    "text": {"takes_token_ids": False},
    "text after a BOS": {"takes_token_ids": False, "bos_tokens": 1},
    "chat": {"chat_only": True},
    "a long chat template": {"chat_only": True, "template_tokens": 30},
    "a server that can tokenise": {"takes_token_ids": False, "tokenizes": True, "owned_by": "llamacpp"},
    "none that counts in the stream": {"takes_token_ids": False, "usage": False},
}


@pytest.mark.parametrize("behaviour", TEXTS.values(), ids=TEXTS)
def test_a_text_is_adapted_until_the_servers_count_is_right(fake_server, bench, behaviour):
    """Its tokenizer merges across words, so that no count is a sum, and each repetition's prefix is another."""
    served = fake_server(ttft_s=0.001, itl_s=0.001, **behaviour)
    outcome = bench(served.base_url, "-p", "40,301", "-r", "2")
    assert outcome.rows["status"].tolist() == ["ok"] * 4, outcome.rows["error"].tolist()
    timed = [request for request in served.timed(8, 1000) if request["body"].get("stream")]
    for n_prompt in (40, 301):
        prompts = [_text(request) for request in timed if request["n_prompt"] == n_prompt]
        assert len(prompts) == 3, "a warm-up and two repetitions, each of exactly this length"
        assert len({prompt[:40] for prompt in prompts}) == 3


def _text(request):
    return request["body"].get("prompt") or request["body"]["messages"][0]["content"]


def test_a_prompt_shorter_than_the_chat_template_is_impossible(fake_server, bench):
    error = bench(fake_server(chat_only=True, template_tokens=30).base_url, "-p", "20").error
    assert "20" in error


def test_a_length_that_no_text_has_is_a_failed_row(fake_server, bench):
    """Every piece is two tokens and the BOS is one: no prompt has an even number."""
    served = fake_server(takes_token_ids=False, tokens_per_piece=2, bos_tokens=1)
    error = bench(served.base_url, "-p", "40").error
    assert "40" in error
    assert len(served.requests()) < 200


@pytest.mark.parametrize("how", ["ignore_eos", "min_tokens"])
def test_the_end_of_the_reply_is_forbidden_by_what_the_server_has(fake_server, bench, how):
    assert bench(fake_server(eos_after=5, honours=[how]).base_url).ok["n_gen"] == 8


def test_a_bias_bans_the_end_token_where_nothing_else_does(fake_server, bench, tiny_hf):
    """Its id is the model's own to tell; tiny-llama's is 2."""
    served = fake_server(eos_after=5, honours=["logit_bias"], models=["served-name"])
    bench(served.base_url, "-m", str(tiny_hf), "--artifact", "openai=served-name", "--on", "RTX 5090").ok  # noqa: B018 it asserts
    assert _asked(served)["body"]["logit_bias"] == {"2": -100}


def test_a_short_reply_is_a_failed_row(fake_server, bench):
    error = bench(fake_server(eos_after=5, honours=[]).base_url).error
    assert "short reply: 5 of 8 tokens" in error
    assert "stop" in error


def test_a_server_that_refuses_unknown_fields_is_asked_without_them(fake_server, bench):
    served = fake_server(refuses=["ignore_eos", "min_tokens", "cache_prompt", "cache_salt"])
    bench(served.base_url).ok  # noqa: B018
    assert not {"ignore_eos", "min_tokens"} & _asked(served)["body"].keys()


def test_depth_is_part_of_the_prompt(fake_server, bench):
    """Without a say over the server's cache the time to the first token holds the depth, and the row says so."""
    served = fake_server()
    row = bench(served.base_url, "-d", "48").ok
    assert _asked(served)["n_prompt"] == row["decode_start"] == row["n_depth"] + row["n_prompt"] == 64
    assert row["n_depth"] == 0
