"""Synthetic checkpoints: real engines load them, and their logits tell a right computation from a wrong one."""

import hashlib
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import psutil
import pytest
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file

from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from harness.models.tensors import tensor_specs

_SMALL = {
    "vocab_size": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
_SMALL_GPT2 = {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "n_layer": 4, "n_embd": 256, "n_head": 4}
_SMALL_EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 128}

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": PRESETS["gpt2"] | _SMALL_GPT2,
    "llama": PRESETS["llama-3.1-8b"] | _SMALL,
    "llama-tied": PRESETS["llama-3.2-1b"] | _SMALL,
    "mistral": PRESETS["mistral-7b"] | _SMALL,
    "qwen2": PRESETS["qwen3-8b"] | _SMALL | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": PRESETS["qwen3-8b"] | _SMALL,
    "qwen3_moe": PRESETS["qwen3-30b-a3b"] | _SMALL | _SMALL_EXPERTS,
    "mixtral": PRESETS["mixtral-8x7b"] | _SMALL,
    "phi3": PRESETS["phi-4"] | _SMALL | {"pad_token_id": 0},
    "gemma2": PRESETS["gemma-2-9b"] | _SMALL | {"query_pre_attn_scalar": 64},
    # MLX needs a layer that sees all tokens.
    "gemma3": PRESETS["gemma-3-1b"] | _SMALL | {"query_pre_attn_scalar": 64, "sliding_window_pattern": 4},
}
_GEMMAS = ("gemma2", "gemma3")

Weights = dict[str, torch.Tensor]
Logits = NDArray[np.float32]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    for name, config in FAMILIES.items():
        synthesise(config, root / name)
    return {name: root / name for name in FAMILIES}


def _tokens(n: int) -> NDArray[np.int64]:
    return np.random.default_rng(3).integers(0, 512, (1, n))


def _weights(directory: Path) -> Weights:
    return {name: tensor for file in directory.glob("*.safetensors") for name, tensor in load_file(file).items()}


def _logits(config: dict[str, Any], weights: Weights, n: int, dtype: torch.dtype = torch.float32) -> Logits:
    """Of transformers, for the last 64 of `n` tokens."""
    model_class = getattr(transformers, config["architectures"][0])
    loaded = transformers.AutoConfig.for_model(**config)
    model = model_class.from_pretrained(None, config=loaded, state_dict=dict(weights), dtype=dtype).eval()
    with torch.inference_mode():
        return model(torch.from_numpy(_tokens(n)), logits_to_keep=64).logits[0].float().numpy()


def _relative_l2(logits: Logits, reference: Logits) -> float:
    return float(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_loads_it_without_a_word(
    checkpoints: dict[str, Path], family: str, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    transformers.logging.enable_propagation()
    with caplog.at_level(logging.WARNING):
        _, info = transformers.AutoModelForCausalLM.from_pretrained(checkpoints[family], output_loading_info=True)
        transformers.AutoTokenizer.from_pretrained(checkpoints[family])
    transformers.logging.disable_propagation()
    assert not any(info.values()), info
    assert caplog.messages == []
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_mlx_loads_it_and_gives_the_same_logits(checkpoints: dict[str, Path], family: str) -> None:
    model, tokenizer = mlx_lm.load(str(checkpoints[family]))
    assert tokenizer.decode(tokenizer.encode("Hello, world!")) == "Hello, world!"
    model.set_dtype(mx.float32)
    logits = np.array(model(mx.array(_tokens(64)))[0])
    assert _relative_l2(logits, _logits(FAMILIES[family], _weights(checkpoints[family]), 64)) < 0.001


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_stays_calm(checkpoints: dict[str, Path], family: str) -> None:
    config, weights = FAMILIES[family], _weights(checkpoints[family])
    reference = _logits(config, weights, 64)
    assert 1.5 < reference.std() < 4
    assert 0.001 < _relative_l2(_logits(config, weights, 64, torch.bfloat16), reference) < 0.03


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_finite_in_float16_and_none_is_constant(checkpoints: dict[str, Path], family: str) -> None:
    for name, tensor in _weights(checkpoints[family]).items():
        assert tensor.dtype == torch.bfloat16
        assert tensor.half().isfinite().all(), name
        assert tensor.float().std() > 0, name


def _interleaved(weight: torch.Tensor, head_dim: int = 64) -> torch.Tensor:
    """Rows as for RoPE over neighbouring elements, where Hugging Face pairs the two halves of a head."""
    return weight.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).reshape(weight.shape)


def _change(part: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Weights], Weights]:
    def changed(weights: Weights) -> Weights:
        assert any(part in name for name in weights)
        return {name: change(tensor) if part in name else tensor for name, tensor in weights.items()}

    return changed


def _unpermuted(weights: Weights) -> Weights:
    return _change("q_proj.weight", _interleaved)(_change("k_proj.weight", _interleaved)(weights))


def _without_layer_2(weights: Weights) -> Weights:
    """What a layer adds is zero when its last projections are."""
    last = re.compile(r"(layers|h)\.2\..*(o_proj|down_proj|c_proj|w2)\.")
    assert any(map(last.search, weights))
    return {name: torch.zeros_like(tensor) if last.search(name) else tensor for name, tensor in weights.items()}


_MISTAKES = {
    "unpermuted q and k": (_unpermuted, ("llama", "llama-tied", "mistral", "qwen2", "qwen3", "qwen3_moe", *_GEMMAS)),
    "a skipped layer": (_without_layer_2, tuple(FAMILIES)),
    "no query bias": (_change("q_proj.bias", torch.zeros_like), ("qwen2",)),
    "no value bias": (_change("v_proj.bias", torch.zeros_like), ("qwen2",)),
    "no fused bias": (_change("c_attn.bias", torch.zeros_like), ("gpt2",)),
    "no bias of the first feed-forward layer": (_change("c_fc.bias", torch.zeros_like), ("gpt2",)),
    "no bias into the residual stream": (_change("mlp.c_proj.bias", torch.zeros_like), ("gpt2",)),
    "no bias of the last norm": (_change("ln_f.bias", torch.zeros_like), ("gpt2",)),
    "a transposed weight": (_change("h.1.attn.c_proj.weight", lambda weight: weight.T.contiguous()), ("gpt2",)),
    "no query norm": (_change("q_norm.weight", torch.ones_like), ("qwen3", "qwen3_moe")),
    "norms as they are stored": (_change("norm.weight", lambda weight: weight - 1), _GEMMAS),
    "a norm before in place of one after": (_change("post_attention_layernorm", torch.zeros_like), _GEMMAS),
}


@pytest.mark.parametrize(
    ("mistake", "family"), [(name, family) for name, (_, families) in _MISTAKES.items() for family in families]
)
def test_a_mistake_shows_in_the_logits(checkpoints: dict[str, Path], mistake: str, family: str) -> None:
    config, weights = FAMILIES[family], _weights(checkpoints[family])
    wrong = _logits(config, _MISTAKES[mistake][0](weights), 64)
    assert _relative_l2(wrong, _logits(config, weights, 64)) > 0.15


@pytest.mark.parametrize("family", ["llama", "llama-tied"])
def test_missing_rope_scaling_shows_far_out_only(checkpoints: dict[str, Path], family: str) -> None:
    config, weights = FAMILIES[family], _weights(checkpoints[family])
    unscaled = config | {"rope_scaling": None}
    assert _relative_l2(_logits(unscaled, weights, 64), _logits(config, weights, 64)) < 0.03
    assert _relative_l2(_logits(unscaled, weights, 2304), _logits(config, weights, 2304)) > 0.15


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        synthesise(FAMILIES["llama"], tmp_path / name, seed=seed)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)
    weights = next(file for file in files if file.endswith(".safetensors"))
    assert (tmp_path / "one" / weights).read_bytes() != (tmp_path / "other" / weights).read_bytes()


def test_the_weights_are_those_of_every_other_machine(checkpoints: dict[str, Path]) -> None:
    # Results of two machines are compared by their logits, so these bytes may change only together with VERSION.
    (file,) = checkpoints["llama"].glob("*.safetensors")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == "4c1f202225bbdbbe3b86688156574c8be3d556c31ee4cf9c8078056871ba0e85"


def test_memory_stays_far_below_the_models_size_and_progress_is_told(tmp_path: Path) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    seen: list[tuple[int, int, int]] = []
    config = PRESETS["gpt2"]
    synthesise(config, tmp_path / "gpt2", progress=lambda *done: seen.append((*done, process.memory_info().rss)))
    done, totals, resident = zip(*seen, strict=True)
    assert done[-1] == totals[-1] == 2 * 124_439_808
    assert list(done) == sorted(done)
    assert max(resident) - before < totals[-1] / 4


def test_large_models_are_sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.models.synthesis._SHARD_BYTES", 10**6)
    synthesise(FAMILIES["llama"], tmp_path / "model")
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == {spec.name for spec in tensor_specs(FAMILIES["llama"])}
    assert len(set(index["weight_map"].values())) > 3
    _, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info.values()), info


def test_an_unknown_family_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'mamba'"):
        synthesise(FAMILIES["llama"] | {"model_type": "mamba"}, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
