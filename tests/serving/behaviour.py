"""How the fake server answers under one name: its speed, its habits, its faults."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Up to three letters with the space before them, white space, or one other character: words merge with what is beside
# them, so no text's count is the sum of its parts' counts.
_PIECE = re.compile(r"(?s) ?[a-z]{1,3}|\s+|.")

EOS_ID = 2


@dataclass(frozen=True)
class Behaviour:
    """Everything is timed from the moment at which a request has been read whole.

    Attributes:
        ttft_s, prefill_s_per_token, itl_s: the first token leaves after `ttft_s + prefill_s_per_token · prompt tokens
            not cached`, each further one `itl_s` after the one before.
        tokens_per_chunk: leave together, when the last of them is due.
        whole_reply: all tokens leave in one chunk, when the last is due.
        serial: one request at a time, the others wait.
        token_text: of each token.
        reasoning_tokens: so many tokens at the start are reasoning (chat only), in the field `reasoning_field`.
        role_first, empty_deltas, keep_alives: a chunk with a role alone at once; a chunk without text, or a comment,
            before each chunk of tokens.
        finish_apart: the finish reason has a chunk of its own; else it is in the last token's.
        usage: a last chunk tells the counts where `include_usage` was asked; usage_of_documents: so does a reply that
            is no stream.
        continuous_usage: so does every chunk, where `continuous_usage_stats` was asked.
        timings: the finish reason's chunk has llama.cpp's `timings`.
        chat_only: there is no /v1/completions.
        takes_token_ids: a prompt may be a list of token ids.
        refuses: fields of a request that are an error here.
        eos_after: the model ends its reply after so many tokens, unless `honours` has a field that forbids it.
        honours: of `ignore_eos`, `min_tokens`, `logit_bias`.
        template_tokens: what the chat template adds in front, and `bos_tokens` what every text prompt gets.
        tokens_per_piece: each piece of a text counts so often.
        context_tokens: a longer request is refused.
        prompt_cache: a prefix of an earlier prompt is not computed again.
        always_cached_from: of a prompt of so many tokens or more, whatever it is, all but two are cached.
        tells_cached: the usage says how much that was.
        honours_cache_prompt: `cache_prompt: false` turns the cache off.
        models: the served names; another is a 404.
        owned_by, version, ollama_version, props: what /v1/models, /version, /api/version and /props tell, None: no
            such path.
        tokenizes: /tokenize answers as llama-server's and vLLM's do.
        api_key: a request without it is a 401.
        status: of completions, where it is no 200: an error, to the first `failing` (None: all), with `retry_after`.
        error_message: of that error.
        fault: `stall`, `break`, `malformed`, `not_sse`, `error_event` once `fault_after_chunks` have left.
        faulty_from_tokens, healthy_first: no fault in replies of fewer tokens, and in the first so many of the others.
        ignores_stream: one JSON document is the answer.
    """

    ttft_s: float = 0.005
    prefill_s_per_token: float = 0.0
    itl_s: float = 0.002
    tokens_per_chunk: int = 1
    whole_reply: bool = False
    serial: bool = False
    token_text: str = "x"  # noqa: S105
    reasoning_tokens: int = 0
    reasoning_field: str = "reasoning_content"
    role_first: bool = False
    empty_deltas: bool = False
    keep_alives: bool = False
    finish_apart: bool = True
    usage: bool = True
    usage_of_documents: bool = True
    continuous_usage: bool = False
    timings: bool = False
    chat_only: bool = False
    takes_token_ids: bool = True
    refuses: tuple[str, ...] = ()
    eos_after: int | None = None
    honours: tuple[str, ...] = ("ignore_eos", "min_tokens", "logit_bias")
    template_tokens: int = 4
    bos_tokens: int = 0
    tokens_per_piece: int = 1
    context_tokens: int = 1 << 20
    prompt_cache: bool = False
    always_cached_from: int | None = None
    tells_cached: bool = False
    honours_cache_prompt: bool = False
    models: tuple[str, ...] = ("fake-model",)
    owned_by: str = "fake"
    version: str | None = None
    ollama_version: str | None = None
    props: dict[str, object] | None = None
    tokenizes: bool = False
    api_key: str | None = None
    status: int = 200
    failing: int | None = None
    retry_after: str | None = None
    error_message: str = "no"
    fault: str | None = None
    fault_after_chunks: int = 2
    faulty_from_tokens: int = 0
    healthy_first: int = 0
    ignores_stream: bool = False

    def prompt(self, body: dict[str, object]) -> list[object]:
        """The tokens of a request's prompt; equal pieces are equal tokens."""
        if "messages" in body:
            texts = [str(message["content"]) for message in body["messages"]]  # type: ignore[attr-defined,index]
            return ["<template>"] * self.template_tokens + self._pieces("\n".join(texts))
        prompt = body["prompt"] if "prompt" in body else body["content"]
        return list(prompt) if isinstance(prompt, list) else ["<bos>"] * self.bos_tokens + self._pieces(str(prompt))

    def _pieces(self, text: str) -> list[object]:
        return [(piece, i) for piece in _PIECE.findall(text) for i in range(self.tokens_per_piece)]

    def reply_tokens(self, body: dict[str, object]) -> int:
        """How many tokens the reply has."""
        most = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)  # type: ignore[call-overload]
        bias = body.get("logit_bias") or {}
        forbidden = {
            "ignore_eos": bool(body.get("ignore_eos")),
            "min_tokens": int(body.get("min_tokens") or 0) >= most,  # type: ignore[call-overload]
            "logit_bias": float(bias.get(str(EOS_ID), 0)) <= -100,  # type: ignore[attr-defined]
        }
        if self.eos_after is None or any(forbidden[how] for how in self.honours):
            return most
        return min(most, self.eos_after)
