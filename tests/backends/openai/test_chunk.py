"""Chunks as servers send them, and as none should."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.openai.chunk import Chunk, parse
from backends.openai.errors import ServerError

# Each as its server's documentation or source has it.
SENT = {
    "role alone": (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        Chunk(has_choice=True),
    ),
    "role and null": ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, Chunk(has_choice=True)),
    "text of a completion": ({"choices": [{"index": 0, "text": " of"}]}, Chunk(text=" of", has_choice=True)),
    "text of a chat": ({"choices": [{"delta": {"content": " of"}}]}, Chunk(text=" of", has_choice=True)),
    "vLLM's and llama-server's reasoning": (
        {"choices": [{"delta": {"reasoning_content": "so"}}]},
        Chunk(reasoning="so", has_choice=True),
    ),
    "mlx_lm.server's reasoning": (
        {"choices": [{"index": 0, "finish_reason": None, "delta": {"role": "assistant", "reasoning": "so"}}]},
        Chunk(reasoning="so", has_choice=True),
    ),
    "the end": (
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
        Chunk(finish_reason="length", has_choice=True),
    ),
    "usage": (
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}},
        Chunk(prompt_tokens=7, completion_tokens=3),
    ),
    "usage with details": (
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 7,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        },
        Chunk(prompt_tokens=7, completion_tokens=3, cached_tokens=0, reasoning_tokens=2),
    ),
    "usage with null details": (
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}},
        Chunk(prompt_tokens=7, completion_tokens=3),
    ),
    "a null usage in every other chunk": ({"choices": [{"text": "a"}], "usage": None}, Chunk("a", has_choice=True)),
    # llama-server: prompt_n counts what was computed, cache_n what was not.
    "llama-server's timings": (
        {
            "choices": [{"text": "", "finish_reason": "length"}],
            "timings": {"cache_n": 236, "prompt_n": 1, "prompt_ms": 30.9, "predicted_n": 35, "predicted_ms": 661.0},
        },
        Chunk(finish_reason="length", has_choice=True, prompt_tokens=237, completion_tokens=35, cached_tokens=236),
    ),
}


@pytest.mark.parametrize(("document", "meant"), SENT.values(), ids=SENT)
def test_what_servers_send(document, meant):
    assert parse(json.dumps(document)) == meant


NO_CHUNKS = ["", "{", "[" * 100_000, "null", "[]", "3", '"x"', '{"error": {"message": "out of memory"}}']


@pytest.mark.parametrize("data", NO_CHUNKS, ids=lambda data: data[:20])
def test_what_is_no_chunk_is_an_error_of_one_line(data):
    with pytest.raises(ServerError) as error:
        parse(data)
    assert len(str(error.value).splitlines()) == 1


_KEYS = ["choices", "delta", "text", "content", "usage", "timings", "prompt_n", "error", "message"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3),
    max_leaves=12,
)


_CHOICE = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("delta", "message", "text", "finish_reason", "content"), _JSON)
)
_CHUNK = st.fixed_dictionaries({"choices": st.lists(_CHOICE, max_size=2)}, optional={"usage": _JSON, "timings": _JSON})


@given(st.text(max_size=20) | _JSON.map(json.dumps) | _CHUNK.map(json.dumps))
def test_nothing_that_arrives_is_a_traceback(data):
    try:
        chunk = parse(data)
    except ServerError as error:
        assert len(str(error).splitlines()) <= 1  # noqa: PT017 either is right
    else:
        assert isinstance(chunk.text, str)
        assert isinstance(chunk.reasoning, str)
        assert chunk.finish_reason is None or isinstance(chunk.finish_reason, str)
        assert chunk.prompt_tokens is None or 0 <= chunk.prompt_tokens <= 2**53
