"""The torch backend over transformers' own caches, against forward passes without a cache."""

import numpy as np
import pytest
import torch
import transformers
from torch.testing._internal.two_tensor import TwoTensor

from backends import torch as torch_backend
from backends.base import BackendError, LoadRequest
from backends.conformance import assert_conforms
from backends.torch.caches import storage_bytes, stored, tensors_in

SMALL = {
    "vocab_size": 101,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
WINDOW = 6
CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL),
    "gpt2": transformers.GPT2Config(n_layer=2, n_head=4, n_embd=64, n_positions=320, vocab_size=101),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=WINDOW),
}
TOKEN_ELEMENTS = 2 * 2 * 2 * 16  # keys and values, of 2 layers, with 2 heads of 16: one token of the Llama


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    made = {}
    for name, config in CONFIGS.items():
        torch.manual_seed(1)
        made[name] = tmp_path_factory.mktemp(name)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(made[name])
    return made


def load(artifact, cache=None, weight_format="f32", **request):
    options = {} if cache is None else {"cache": cache}
    return torch_backend.load(LoadRequest(artifact, weight_format, device="cpu", engine_options=options, **request))


def draw(batch, n, seed=0):
    return np.random.default_rng(seed).integers(101, size=(batch, n)).astype(np.int32)


def relative_l2(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("family", CONFIGS)
def test_the_cache_changes_no_answer_in_float64(artifacts, family):
    """The backend's own cache, in pieces and after a cut, against plain transformers in one pass."""
    tokens = torch.from_numpy(draw(3, 24).astype(np.int64))
    model = transformers.AutoModelForCausalLM.from_pretrained(artifacts[family], dtype=torch.float64)
    with torch.inference_mode():
        expected = model(tokens, use_cache=False).logits
    session = load(artifacts[family], weight_format="f64")
    session.allocate(24, batch=3)
    assert session.facts().kv_k_format == "f64"
    list(session.decode(draw(3, 20, seed=1)))
    session.reset()
    for start, end, keep in ((0, 10, None), (10, 11, None), (11, 20, None), (5, 7, 5), (7, 24, None)):
        if keep is not None:
            assert session.reset(keep) == keep
        # `logits` rounds to float32
        part = session._passes.extend(tokens[:, start:end].numpy(), keep=0)
        torch.testing.assert_close(part, expected[:, start:end], rtol=0, atol=1e-10)


def test_the_kinds_are_those_that_generate_takes():
    told = torch_backend.describe()
    kinds = told.cache_kinds
    assert set(told.cuda_cache_kinds) < set(kinds)
    assert "fp8" in told.kv_formats
    assert {"dynamic", "static", "quantized"} <= set(kinds)
    for kind in kinds:
        transformers.GenerationConfig(cache_implementation=kind).validate(strict=True)


@pytest.mark.parametrize(("kind", "family"), [("dynamic", "gpt2"), ("dynamic", "mistral"), ("static", "mistral")])
def test_transformers_caches_conform(artifacts, kind, family):
    assert_conforms(lambda: load(artifacts[family], kind), tolerance=1e-4)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_window_that_has_turned_over_keeps_nothing_and_answers_right(artifacts, kind):
    tokens, changed = draw(1, 40), draw(1, 40, seed=1)
    changed[:, :4] = tokens[:, :4]
    session = load(artifacts["mistral"], kind)
    session.allocate(40, batch=1)
    fresh = session.logits(changed)
    session.reset()
    session.prefill(tokens[:, :5])
    # A static layer of more tokens than its window has may turn over: transformers does not cut it even before.
    kept = session.reset(4)
    assert kept == {"dynamic": 4, "static": 0}[kind]
    assert relative_l2(session.logits(changed[:, kept:]), fresh[:, kept:]) < 1e-5
    assert session.reset(4) == 0
    assert relative_l2(session.logits(changed), fresh) < 1e-5


def test_bytes_are_what_is_held(artifacts):
    """Static: everything at once, a window no more than its size. Dynamic: what there is."""
    static, dynamic = load(artifacts["llama"], "static"), load(artifacts["llama"], "dynamic")
    for session in (static, dynamic):
        session.allocate(40, batch=3)
    assert static.memory().kv_cache_bytes == 3 * 40 * TOKEN_ELEMENTS * 4
    assert (dynamic.memory().kv_cache_bytes, dynamic.facts().kv_allocated_tokens) == (0, 40)
    dynamic.prefill(draw(3, 7))
    list(dynamic.decode(draw(3, 2)))
    assert dynamic.memory().kv_cache_bytes == 3 * 9 * TOKEN_ELEMENTS * 4
    assert dynamic.facts().kv_allocated_tokens == 9
    window = load(artifacts["mistral"], "static")
    window.allocate(40, batch=3)
    assert window.memory().kv_cache_bytes == 3 * WINDOW * TOKEN_ELEMENTS * 4


@pytest.mark.parametrize("asked", [{"kv_k_format": "fp8", "kv_v_format": "fp8"}, {"cache": "quantized"}])
def test_a_cache_in_fp8_is_a_byte_an_element_and_close(artifacts, asked):
    tokens = draw(2, 40)
    exact, session = (
        load(artifacts["llama"], weight_format="bf16"),
        load(artifacts["llama"], weight_format="bf16", **asked),
    )
    for each in (exact, session):
        each.allocate(40, batch=2)
        each.prefill(tokens[:, :30])
    # Four bits of mantissa and sign: another text's logits would be at 1.4 times the norm.
    assert relative_l2(session.logits(tokens[:, 30:]), exact.logits(tokens[:, 30:])) < 0.3
    facts, scales = session.facts(), 2 * 2 * 4  # one float32 for the keys and one for the values of each layer
    assert facts.kv_k_format == facts.kv_v_format == "fp8"
    assert facts.engine_settings["kv_cache"] == "quantized by fp8"
    assert session.memory().kv_cache_bytes == 2 * facts.kv_allocated_tokens * TOKEN_ELEMENTS + scales
    assert session.reset(10) == 0  # transformers does not cut it
    assert session.reset() == 0
    session.prefill(tokens)


def test_a_tensor_made_of_others_takes_their_bytes():
    """As quanto's are, whose wrapper has no memory of its own."""
    one, other = torch.zeros(8, dtype=torch.uint8), torch.zeros(8, dtype=torch.uint8)
    assert storage_bytes(tensors_in({"keys": [TwoTensor(one, other)], "values": one})) == 8 + 8


def test_fp8_is_stored_as_it_is_called():
    assert stored("fp8", CONFIGS["llama"], "bf16") == ("fp8", 0)


@pytest.mark.parametrize(
    ("family", "options", "request_", "message"),
    [
        ("llama", {"cache": "offloaded"}, {}, "CUDA"),
        ("llama", {"cache": "elastic"}, {}, "'elastic' here; it has: dynamic"),
        ("llama", {"cache": "dynamic", "torch_mode": "compiled"}, {}, "own cache, not transformers' dynamic"),
        ("llama", {"cache": "dynamic"}, {"kv_k_format": "fp8", "kv_v_format": "fp8"}, "not fp8 keys"),
        ("llama", {}, {"kv_k_format": "fp8"}, "alike: not fp8 keys and auto values"),
        ("llama", {}, {"kv_k_format": "q8_0", "kv_v_format": "q8_0"}, "alike: not q8_0 keys and q8_0 values"),
        ("mistral", {"cache": "quantized"}, {}, "no format for this model"),
    ],
)
def test_a_cache_that_there_is_not_is_refused_in_one_line(artifacts, family, options, request_, message):
    request = LoadRequest(artifacts[family], "f32", device="cpu", engine_options=options, **request_)
    with pytest.raises(BackendError, match=message) as refused:
        torch_backend.load(request)
    assert "\n" not in str(refused.value)
