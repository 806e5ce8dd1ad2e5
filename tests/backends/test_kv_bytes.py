"""The bytes that each engine's KV cache really takes, against the formula, after the engine's own rounding."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from backends import llama_cpp, mlx
from backends import torch as torch_backend
from backends.base import LoadRequest
from harness.models.gguf_export import export
from harness.roofline.formats import element_bytes
from harness.roofline.hf_config import from_hf_config
from harness.roofline.traffic import kv_cache_bytes

VOCAB = 128
LOADERS = {"torch": torch_backend.load, "mlx": mlx.load, "llama.cpp": llama_cpp.load}


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    """Grouped heads of 64; a token takes 1536 bytes in 16 bits."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    directory = tmp_path_factory.mktemp("llama")
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(directory)
    export(directory, directory / "model.gguf", "bf16")
    return directory


def open_session(artifact, engine, kv_format, cache):
    path = artifact / "model.gguf" if engine == "llama.cpp" else artifact
    options = {"cache": cache} if cache else {}
    request = LoadRequest(
        path, "bf16", device="cpu", kv_k_format=kv_format, kv_v_format=kv_format, engine_options=options
    )
    return LOADERS[engine](request)


@pytest.mark.parametrize(("depth", "batch"), [(200, 1), (260, 3)])
@pytest.mark.parametrize(
    ("engine", "kv_format", "cache", "step"),
    [
        ("torch", "auto", None, 1),
        ("torch", "auto", "dynamic", 1),
        ("torch", "auto", "static", 1),
        ("torch", "fp8", None, 1),
        ("mlx", "auto", None, 256),
        ("mlx", "8bit", None, 256),
        ("mlx", "4bit", None, 256),
        ("llama.cpp", "auto", None, 256),
        ("llama.cpp", "bf16", None, 256),
        ("llama.cpp", "q8_0", None, 256),
        ("llama.cpp", "q4_0", None, 256),
    ],
)
def test_measured_bytes_are_the_formulas(artifact, engine, kv_format, cache, step, depth, batch):
    architecture = from_hf_config(json.loads((artifact / "config.json").read_text(encoding="utf-8")))
    session = open_session(artifact, engine, kv_format, cache)
    session.allocate(depth, batch)
    session.prefill(np.zeros((batch, depth - 1), np.int32))
    list(session.decode(np.zeros((batch, 1), np.int32)))
    facts, measured = session.facts(), session.memory().kv_cache_bytes
    session.close()

    assert depth <= facts.kv_allocated_tokens <= -(-depth // step) * step
    formats = element_bytes(facts.kv_k_format), element_bytes(facts.kv_v_format)
    expected = batch * kv_cache_bytes(architecture, facts.kv_allocated_tokens, *formats)
    # llama.cpp logs MiB with two decimals.
    assert measured == pytest.approx(expected, rel=0.01, abs=0.0051 * 2**20 if engine == "llama.cpp" else 0)
