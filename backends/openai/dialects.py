"""What each known server understands beyond OpenAI's protocol, as its authors document it.

| server           | recognised by (GET)                           | exact output           | prompt cache           |
|------------------|-----------------------------------------------|------------------------|------------------------|
| llama-server     | models: owned_by llamacpp                     | ignore_eos             | cache_prompt: false    |
| llama_cpp.server | models: owned_by me                           | min_tokens             | keeps the last prompt  |
| mlx_lm.server    | header Server: BaseHTTP/…                     | logit_bias of EOS      | by prefix, told        |
| vLLM             | models: owned_by vllm                         | ignore_eos, min_tokens | by prefix              |
| SGLang           | models: owned_by sglang                       | ignore_eos, min_tokens | by prefix              |
| Ollama           | models: owned_by library, else /api/version   | nothing                | keeps the last prompt  |
| LM Studio        | models: owned_by organization_owner           | nothing                | keeps the last prompt  |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Tokeniser:
    """An endpoint that counts a text's tokens without computing anything.

    Attributes:
        path: of a POST.
        from_root: below the base URL without its /v1.
        text: the field that takes the text.
        fixed: fields that it needs beside it.
    """

    path: str
    text: str
    from_root: bool = True
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """How one server is asked for exact work.

    Attributes:
        name: of the server.
        takes_ids: token ids as the prompt of a completion; None: to be tried.
        ignores_eos: knows `ignore_eos`.
        bans_eos: knows `min_tokens`, before which no end is taken.
        takes_bias: knows `logit_bias` by token ids.
        uncached: fields that keep a prompt out of its cache, or apart from others.
        stream_options: beside `include_usage`.
        version: path and key of its version.
        tokeniser: None: it has none, and a reply of one token must tell.
        lacks: what a reply that is too short is due to.
    """

    name: str
    takes_ids: bool | None = False
    ignores_eos: bool = False
    bans_eos: bool = False
    takes_bias: bool = False
    uncached: Mapping[str, Any] = field(default_factory=dict)
    stream_options: Mapping[str, Any] = field(default_factory=dict)
    version: tuple[str, str] | None = None
    tokeniser: Tokeniser | None = None
    lacks: str = ""

    def exact(self, n_tokens: int, eos_ids: Sequence[int] = ()) -> dict[str, Any]:
        """Fields that make a reply of exactly so many tokens, as far as the server has any."""
        fields: dict[str, Any] = {"max_tokens": n_tokens, "temperature": 0}
        if self.ignores_eos:
            fields["ignore_eos"] = True
        if self.bans_eos:
            fields["min_tokens"] = n_tokens
        if self.takes_bias and eos_ids:
            fields["logit_bias"] = {str(token): -100 for token in eos_ids}
        return fields


_CONTINUOUS = {"continuous_usage_stats": True}

LLAMA_SERVER = Dialect(
    "llama-server",
    takes_ids=True,
    ignores_eos=True,
    uncached={"cache_prompt": False},
    tokeniser=Tokeniser("tokenize", "content", fixed={"add_special": True}),
)
LLAMA_CPP_SERVER = Dialect(
    "llama_cpp.server",
    bans_eos=True,
    tokeniser=Tokeniser("extras/tokenize/count", "input"),
    lacks="a second request at once ends the first one unless it was started with --interrupt_requests false",
)
MLX_LM_SERVER = Dialect(
    "mlx_lm.server",
    takes_bias=True,
    lacks="mlx_lm.server has no ignore_eos, and bans the end of text only where -m names the model's own files",
)
VLLM = Dialect(
    "vLLM",
    takes_ids=True,
    ignores_eos=True,
    bans_eos=True,
    stream_options=_CONTINUOUS,
    version=("version", "version"),
    tokeniser=Tokeniser("tokenize", "prompt"),
)
SGLANG = Dialect(
    "SGLang",
    takes_ids=True,
    ignores_eos=True,
    bans_eos=True,
    stream_options=_CONTINUOUS,
    version=("get_server_info", "version"),
)
OLLAMA = Dialect("Ollama", version=("api/version", "version"), lacks="Ollama has no ignore_eos")
LM_STUDIO = Dialect("LM Studio", lacks="LM Studio has no ignore_eos")
UNKNOWN = Dialect(
    "unknown server",
    takes_ids=None,
    ignores_eos=True,
    bans_eos=True,
    takes_bias=True,
    lacks="this server, which is none of the known ones, may not know ignore_eos",
)

_BY_OWNER = {
    "llamacpp": LLAMA_SERVER,
    "me": LLAMA_CPP_SERVER,
    "vllm": VLLM,
    "sglang": SGLANG,
    "library": OLLAMA,
    "organization_owner": LM_STUDIO,
    "organization-owner": LM_STUDIO,
}


def recognise(models: Sequence[Mapping[str, Any]], headers: Mapping[str, str]) -> Dialect:
    """The dialect of a server that lists these models; `UNKNOWN` where nothing tells.

    Args:
        models: `data` of GET models.
        headers: of its answer.
    """
    for model in models:
        if dialect := _BY_OWNER.get(str(model.get("owned_by"))):
            return dialect
    server = headers.get("server", "")
    if server.startswith("BaseHTTP/"):
        return MLX_LM_SERVER
    return LLAMA_SERVER if server == "llama.cpp" else UNKNOWN
