"""The reference attention against an article's example, and every engine's KV cache against the reference."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from backends import llama_cpp, mlx
from backends import torch as torch_backend
from backends.base import LoadRequest
from backends.reference import attention, attention_weights
from backends.torch.attention import KvCache, attend
from harness.models.gguf_export import export

HEADS = 8
VOCAB = 320
# One decimal each, for one query [1.0, 0.8] of width 2. The articles print the query, the weights and the output only;
# these keys and values are solved from them: the scores q·k are the only ones on a grid of 0.02 with those weights.
KEYS = [[0.9, 0.5], [0.1, 0.4], [0.6, 0.8], [0.4, 0.0], [0.8, 0.2]]
VALUES = [[0.0, 0.0], [0.2, 0.1], [0.6, 0.7], [0.5, 0.2], [0.7, 0.8]]


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def test_the_articles_worked_example():
    query, keys, values = (np.array(rows)[None, None] for rows in ([[1.0, 0.8]], KEYS, VALUES))
    weights = attention_weights(query, keys)
    assert weights[0, 0, 0].round(3).tolist() == [0.262, 0.141, 0.252, 0.139, 0.206]
    assert attention(query, keys, values)[0, 0, 0].round(3).tolist() == [0.393, 0.383]


@pytest.mark.parametrize("window", [None, 3])
def test_a_query_sees_itself_and_those_before_it(window):
    weights = attention_weights(drawn(2, 4, 6, 8), drawn(2, 2, 6, 8), window)
    seen = [[0 <= query - key < (window or 6) for key in range(6)] for query in range(6)]
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(seen, weights.shape))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-12)


def test_a_cache_is_the_first_rows_of_keys_and_values():
    queries, keys, values = drawn(2, 4, 6, 8), drawn(2, 2, 6, 8, seed=1), drawn(2, 2, 6, 8, seed=2)
    whole = attention(queries, keys, values)
    for length in range(1, 7):
        step = attention(queries[:, :, length - 1 : length], keys[:, :, :length], values[:, :, :length])
        np.testing.assert_allclose(step, whole[:, :, length - 1 : length], rtol=1e-12)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("kv_heads", [HEADS, HEADS // 4, 1])
def test_torchs_cached_attention_is_the_reference_in_float64(kv_heads, window):
    """Prefill and decode, then a cut back to 5 tokens and another text after them."""
    shape = (3, HEADS, 16, 16), (3, kv_heads, 16, 16), (3, kv_heads, 16, 16)
    first, second = [[drawn(*s, seed=seed + 10 * i) for i, s in enumerate(shape)] for seed in (1, 2)]
    second = [np.concatenate([old[:, :, :5], new[:, :, 5:]], axis=2) for old, new in zip(first, second, strict=True)]
    cache = KvCache(16)
    for (queries, keys, values), ends in ((first, (7, 8, 9, 16)), (second, (9, 10, 11, 16))):
        expected = attention(queries, keys, values, window)
        for end in ends:
            part = np.s_[:, :, cache.length : end]
            inputs = [torch.from_numpy(array[part].copy()) for array in (queries, keys, values)]
            output, _ = attend(torch.nn.Module(), inputs[0], *cache.update(*inputs[1:], 0), None, sliding_window=window)
            np.testing.assert_allclose(output.numpy().swapaxes(1, 2), expected[part], rtol=0, atol=1e-10)
            cache.length = end
        cache.cut(5)


@pytest.fixture(scope="session", params=[HEADS, HEADS // 4, 1], ids=lambda kv_heads: f"{kv_heads} KV heads")
def artifact(request, tmp_path_factory):
    """A Hugging Face directory whose matrices are wide enough that a wrong position changes the answer."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HEADS * 16,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=request.param,
        max_position_embeddings=512,
        initializer_range=0.15,
    )
    torch.manual_seed(2)
    directory = tmp_path_factory.mktemp("llama")
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    return directory


def open_torch(directory, weight_format):
    return torch_backend.load(LoadRequest(directory, weight_format, device="cpu"))


def open_mlx(directory, weight_format):
    return mlx.load(LoadRequest(directory, weight_format, device="cpu"))


def open_llama_cpp(directory, weight_format, **changes):
    path = directory / f"{weight_format}.gguf"
    if not path.exists():
        export(directory, path, weight_format)
    return llama_cpp.load(LoadRequest(path, weight_format, device="cpu", **changes))


# llama.cpp's flash attention computes in f16, whatever the cache holds.
EXACT = {"flash_attn": "off", "kv_k_format": "f32", "kv_v_format": "f32"}


# About three times the largest relative L2 of a position's logits seen on these models: 5e-6 in float32, where
# transformers and MLX norm also a float64 model's hidden states; 4e-3 with a cache in f16; 6e-2 in bf16.
@pytest.mark.parametrize(
    ("open_session", "limit"),
    [
        pytest.param(lambda path: open_torch(path, "f64"), 1e-5, id="torch f64"),
        pytest.param(lambda path: open_torch(path, "f32"), 1e-5, id="torch f32"),
        pytest.param(lambda path: open_torch(path, "bf16"), 0.2, id="torch bf16"),
        pytest.param(lambda path: open_mlx(path, "f32"), 1e-5, id="mlx f32"),
        pytest.param(lambda path: open_mlx(path, "bf16"), 0.2, id="mlx bf16"),
        pytest.param(lambda path: open_llama_cpp(path, "f32", **EXACT), 1e-4, id="llama.cpp f32"),
        pytest.param(lambda path: open_llama_cpp(path, "f32"), 1.2e-2, id="llama.cpp KV f16"),
        pytest.param(lambda path: open_llama_cpp(path, "bf16"), 0.2, id="llama.cpp bf16"),
    ],
)
def test_a_cache_that_was_cut_back_and_extended_answers_as_full_attention(artifact, open_session, limit):
    tokens, changed = (np.random.default_rng(seed).integers(VOCAB, size=(2, 60)).astype(np.int32) for seed in (1, 2))
    changed[:, :25] = tokens[:, :25]
    expected, after_change = llama_logits(artifact, tokens), llama_logits(artifact, changed)
    session = open_session(artifact)
    session.allocate(60, batch=2)
    session.prefill(tokens[:, :20])
    decoded = [ids.copy() for ids in session.decode(tokens[:, 20:40])]
    judge(session.logits(tokens[:, 40:]), expected[:, 40:], limit)
    assert session.reset(25) == 25
    prefilled = session.prefill(changed[:, 25:50])
    judge(session.logits(changed[:, 50:]), after_change[:, 50:], limit)
    if limit < 1e-3:  # a coarser format may break a near tie otherwise
        np.testing.assert_array_equal(np.stack(decoded, axis=1), expected[:, 20:40].argmax(-1))
        np.testing.assert_array_equal(prefilled, after_change[:, 49].argmax(-1))
    session.close()


def judge(actual, expected, limit):
    worst = (np.linalg.norm(actual - expected, axis=-1) / np.linalg.norm(expected, axis=-1)).max()
    assert worst < limit


def llama_logits(directory, tokens):
    """A Llama in plain numpy, every token at once, from the files of a Hugging Face directory.

    `[batch, n]` tokens -> `[batch, n, vocab]` float64.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tensors = {name: array.astype(np.float64) for name, array in load_file(directory / "model.safetensors").items()}
    hidden = tensors["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        block = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): array
            for name, array in tensors.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        normed = rms_norm(hidden, block["input_layernorm"], config)
        hidden = hidden + self_attention(normed, block, config)
        normed = rms_norm(hidden, block["post_attention_layernorm"], config)
        gate, up = normed @ block["mlp.gate_proj"].T, normed @ block["mlp.up_proj"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ block["mlp.down_proj"].T
    return rms_norm(hidden, tensors["model.norm.weight"], config) @ tensors["lm_head.weight"].T


def self_attention(hidden, block, config):
    queries, keys, values = (split_heads(hidden @ block[f"self_attn.{name}_proj"].T, config) for name in "qkv")
    output = attention(rotated(queries, config), rotated(keys, config), values)
    batch, heads, n, head_dim = output.shape
    return output.swapaxes(1, 2).reshape(batch, n, heads * head_dim) @ block["self_attn.o_proj"].T


def split_heads(projected, config):
    """`[batch, n, heads * head_dim]` -> `[batch, heads, n, head_dim]`."""
    batch, n, _ = projected.shape
    return projected.reshape(batch, n, -1, config["head_dim"]).swapaxes(1, 2)


def rotated(heads, config):
    """Rotary positions: elements i and i + head_dim/2 turn together, by position / theta^(2i / head_dim)."""
    half = config["head_dim"] // 2
    theta = config["rope_parameters"]["rope_theta"]
    angles = np.arange(heads.shape[2])[:, None] / theta ** (np.arange(half) / half)
    first, second = heads[..., :half], heads[..., half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=-1
    )


def rms_norm(hidden, weight, config):
    return hidden / np.sqrt((hidden**2).mean(axis=-1, keepdims=True) + config["rms_norm_eps"]) * weight
