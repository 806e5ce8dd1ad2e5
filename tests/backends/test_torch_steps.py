"""The step of fixed shapes and the ring of ids, which CUDA graphs need, on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from backends.base import BackendError, LoadRequest
from backends.torch.attention import KvCache, attend
from backends.torch.id_ring import IdRing
from backends.torch.session import TorchSession
from backends.torch.steps import StaticStep, inductor_options

CPU = torch.device("cpu")
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
}


def build(config):
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(config)


def draw(batch, n):
    return np.random.default_rng(0).integers(101, size=(batch, n)).astype(np.int32)


def plain_argmax(model, tokens):
    model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        return model(torch.from_numpy(tokens.astype(np.int64)), use_cache=False).logits.argmax(-1).numpy()


def decoded(session, tokens):
    return np.stack([ids.copy() for ids in session.decode(tokens)], axis=1)


@pytest.mark.parametrize(
    "config",
    [
        transformers.LlamaConfig(**SMALL),
        transformers.MistralConfig(**SMALL, sliding_window=6),
        transformers.GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=101, bos_token_id=None, eos_token_id=None),
    ],
    ids=lambda config: config.model_type,
)
def test_compiled_steps_answer_as_a_plain_forward_pass(config):
    """Really compiled, by inductor: fullgraph, so that nothing falls back to eager."""
    model, tokens = build(config), draw(2, 20)
    expected = plain_argmax(model, tokens)
    session = TorchSession(model, LoadRequest(Path(), None, engine_options={"torch_mode": "compiled"}))
    session.allocate(20, batch=2)
    assert session.facts().kv_allocated_tokens == 128

    # The first decode compiles, with a cache in use that its trial runs must not disturb.
    session.prefill(tokens[:, :8])
    np.testing.assert_array_equal(decoded(session, tokens[:, 8:16]), expected[:, 8:16])
    assert session.facts().engine_mode == "compiled"
    assert session.facts().engine_settings["torch.compile"] == inductor_options(0)
    session.reset(10)
    np.testing.assert_array_equal(decoded(session, tokens[:, 10:]), expected[:, 10:])

    session.use("eager")
    assert session.facts().engine_mode == "eager"
    session.reset(9)
    np.testing.assert_array_equal(decoded(session, tokens[:, 9:]), expected[:, 9:])


def test_a_step_that_cannot_be_compiled_is_told(monkeypatch):
    session = TorchSession(
        build(transformers.LlamaConfig(**SMALL)), LoadRequest(Path(), None, engine_options={"torch_mode": "compiled"})
    )

    def no_compiler(*_, **__):
        raise RuntimeError("no compiler in /home/someone/bin\nsee the log")

    monkeypatch.setattr(torch, "compile", no_compiler)
    session.allocate(8, batch=1)
    with pytest.raises(BackendError, match="no compiler") as refused:
        session.decode(draw(1, 4))
    assert "someone" not in str(refused.value)
    assert session.prefill(draw(1, 4)).shape == (1,), "the session goes on"


def test_the_step_reads_its_input_and_place_from_the_device():
    cache = KvCache(128)
    seen = []

    def forward(tokens, positions, mask):
        seen.append((tokens[:, 0].tolist(), positions.tolist(), int(mask.sum()), cache.slot.tolist()))
        logits = torch.zeros(2, 1, 10)
        logits[torch.arange(2), 0, tokens[:, 0]] = 1
        return logits

    step = StaticStep(forward, cache, batch=2, spare=127, device=CPU)
    step.begin(torch.tensor([[4, 5, 6], [7, 8, 9]]), position=30)
    ids = []
    for _ in range(3):
        step.run()
        ids.append(step.ids.tolist())

    assert ids == [[4, 7], [5, 8], [6, 9]]
    assert seen == [
        ([4, 7], [[30]], 31, [30]),
        ([5, 8], [[31]], 32, [31]),
        ([6, 9], [[32]], 33, [32]),
    ]
    assert cache.slot is None


def test_a_step_that_fails_leaves_the_cache_usable():
    cache = KvCache(128)

    def forward(*_):
        raise RuntimeError("no such kernel")

    step = StaticStep(forward, cache, batch=1, spare=127, device=CPU)
    with pytest.raises(RuntimeError, match="no such kernel"):
        step.run()
    assert cache.slot is None


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("used", [1, 128, 200, 256])
def test_masked_attention_equals_the_formula(window, used):
    generator = torch.Generator().manual_seed(used)
    query = torch.randn(2, 6, 1, 16, generator=generator)
    key = torch.randn(2, 2, 256, 16, generator=generator)
    value = torch.randn(2, 2, 256, 24, generator=generator)
    mask = (torch.arange(256) < used).view(1, 1, 1, -1)
    output, _ = attend(None, query, key, value, mask, scaling=0.3, sliding_window=window)

    first = max(0, used - window) if window else 0
    for head in range(6):
        keys, values = key[:, head // 3, first:used], value[:, head // 3, first:used]
        weights = (0.3 * torch.einsum("bd,btd->bt", query[:, head, 0], keys)).softmax(-1)
        torch.testing.assert_close(output[:, 0, head], torch.einsum("bt,btd->bd", weights, values))


def test_the_ring_keeps_a_step_until_the_second_one_after_it():
    ring = IdRing(2, CPU)
    ring.push(0, torch.tensor([1, 2]))
    ring.push(1, torch.tensor([3, 4]))
    first, second = ring.pop(0), ring.pop(1)
    assert (first.tolist(), second.tolist(), first.dtype) == ([1, 2], [3, 4], np.int32)
    ring.push(2, torch.tensor([5, 6]))
    assert (ring.pop(2).tolist(), second.tolist()) == ([5, 6], [3, 4])


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_step_enqueued_ahead_changes_no_answer(mode):
    """The order of CUDA and XPU, on the CPU: step i+1 runs before step i is handed out."""
    model, tokens = build(transformers.LlamaConfig(**SMALL)), draw(2, 11)
    expected = plain_argmax(model, tokens)
    session = TorchSession(model, LoadRequest(Path(), None, engine_options={"torch_mode": mode}))
    session.allocate(16, batch=2)
    session._ring.ahead = 1
    for steps in (1, 2, 7):  # the step is compiled once
        session.reset()
        session.prefill(tokens[:, :4])
        np.testing.assert_array_equal(decoded(session, tokens[:, 4 : 4 + steps]), expected[:, 4 : 4 + steps])
