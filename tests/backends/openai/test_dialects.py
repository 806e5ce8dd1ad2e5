"""Which server it is, and what it is asked for; the documents are those that the servers' own sources make."""

from __future__ import annotations

import pytest

from backends.openai.dialects import recognise

# server/app.py of llama-cpp-python, mlx_lm/server.py, llama.cpp's tools/server, vLLM's ModelCard, SGLang's, Ollama's.
KNOWN = {
    "llama-server": ({"id": "m.gguf", "object": "model", "owned_by": "llamacpp"}, {"server": "llama.cpp"}),
    "llama_cpp.server": ({"id": "m", "object": "model", "owned_by": "me", "permissions": []}, {"server": "uvicorn"}),
    "mlx_lm.server": ({"id": "/m", "object": "model", "created": 0}, {"server": "BaseHTTP/0.6 Python/3.11.2"}),
    "vLLM": ({"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 4096}, {"server": "uvicorn"}),
    "SGLang": ({"id": "m", "object": "model", "owned_by": "sglang"}, {"server": "uvicorn"}),
    "Ollama": ({"id": "llama3:latest", "object": "model", "owned_by": "library"}, {}),
    "LM Studio": ({"id": "m", "object": "model", "owned_by": "organization_owner"}, {"x-powered-by": "Express"}),
    "unknown server": ({"id": "m", "owned_by": "someone"}, {"server": "nginx"}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_server_is_known_by_its_models(name):
    model, headers = KNOWN[name]
    assert recognise([model], headers).name == name


def test_a_server_without_models_is_known_by_its_header_at_best():
    assert recognise([], {"server": "BaseHTTP/0.6 Python/3.11.2"}).name == "mlx_lm.server"
    assert recognise([], {}).name == "unknown server"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("llama-server", {"ignore_eos": True}),
        ("llama_cpp.server", {"min_tokens": 9}),
        ("mlx_lm.server", {"logit_bias": {"2": -100}}),
        ("vLLM", {"ignore_eos": True, "min_tokens": 9}),
        ("Ollama", {}),
    ],
)
def test_exact_output_is_asked_for_as_the_server_understands_it(name, fields):
    model, headers = KNOWN[name]
    asked = recognise([model], headers).exact(9, eos_ids=[2])
    assert asked == {"max_tokens": 9, "temperature": 0, **fields}
