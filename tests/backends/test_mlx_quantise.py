"""mlx-lm's quantiser for real, on a small model whose widths its groups divide, and on one where they do not."""

import json
from pathlib import Path

import mlx.core as mx
import pytest

from backends.base import BackendError
from backends.mlx import formats, weights
from backends.mlx.quantise import quantise, quantise_repeated
from harness.models.presets import PRESETS
from harness.models.synthesis import SyntheticWeights, synthesise, synthetic_config

_TINY = {
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 1, "hidden_size": 128,
    "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
}  # fmt: skip

_TOKENS = ("vocab_size", "bos_token_id", "eos_token_id")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("quantise") / "tiny"
    synthesise(PRESETS["llama-3.2-1b"] | _TINY, directory)
    return directory


@pytest.mark.parametrize(
    ("name", "group_bytes", "group"),  # bits of a group, and what comes with them
    [
        ("8bit", 64 + 4, 64),
        ("6bit", 48 + 4, 64),
        ("4bit", 32 + 4, 64),
        ("3bit", 24 + 4, 64),
        ("4bit-g32", 16 + 4, 32),
        ("mxfp4", 16 + 1, 32),
        ("nvfp4", 8 + 1, 16),
    ],
)
def test_bytes_are_a_pencils(original: Path, tmp_path: Path, name: str, group_bytes: int, group: int) -> None:
    assert name in formats.formats()
    quantise(original, tmp_path / "quantised", name, n_threads=1)
    model, config = weights.load(tmp_path / "quantised", name)
    assert weights.stored_format(model, config) == name
    rows_of_128 = 512 * 128 + (128 + 64 + 64 + 128) * 128 + 2 * 96 * 128  # embedding, attention, gate and up
    rows_of_96 = 128 * 96  # down: groups of 64 do not divide it, of 32 and of 16 they do
    quantised = rows_of_128 + (rows_of_96 if 96 % group == 0 else 0)
    plain = rows_of_128 + rows_of_96 - quantised + 3 * 128  # norms
    n_bytes = sum(array.nbytes for array in weights.arrays(model.parameters()))
    assert n_bytes == quantised // group * group_bytes + 2 * plain


def test_the_numbers_are_mlxs_own_rounding(original: Path, tmp_path: Path) -> None:
    quantise(original, tmp_path / "quantised", "4bit", n_threads=1)
    exact, _ = weights.load(original, None)
    rounded, _ = weights.load(tmp_path / "quantised", "4bit")
    layer, its = exact.layers[0].self_attn.q_proj, rounded.layers[0].self_attn.q_proj
    for ours, theirs in zip((its.weight, its.scales, its.biases), mx.quantize(layer.weight, 64, 4), strict=True):
        assert mx.array_equal(ours, theirs)


_FAMILIES = {
    "gpt2": PRESETS["gpt2"] | {"n_layer": 2, "n_embd": 128, "n_head": 2} | {key: _TINY[key] for key in _TOKENS},
    "llama": PRESETS["llama-3.1-8b"] | _TINY,
    "llama-tied": PRESETS["llama-3.2-1b"] | _TINY,
    "qwen3_moe": PRESETS["qwen3-30b-a3b"]
    | _TINY
    | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    "mixtral": PRESETS["mixtral-8x7b"] | _TINY,
    "phi3": PRESETS["phi-4"] | _TINY | {"pad_token_id": 0},
    "gemma3": PRESETS["gemma-3-1b"] | _TINY | {"query_pre_attn_scalar": 64, "sliding_window_pattern": 1},
}


@pytest.mark.parametrize("name", ["8bit", "4bit", "4bit-g32", "mxfp4"])
@pytest.mark.parametrize("family", _FAMILIES)
def test_tensors_that_are_in_no_file_become_what_a_files_do(tmp_path: Path, family: str, name: str) -> None:
    config = _FAMILIES[family]
    synthesise(config, tmp_path / "original")
    quantise(tmp_path / "original", tmp_path / "theirs", name, n_threads=1)
    quantise_repeated(synthetic_config(config, 0), SyntheticWeights(config, 0).tensors(), tmp_path / "ours", name)
    files = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert all((tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes() for file in files)


def test_what_is_loaded_must_be_what_was_asked_for(original: Path, tmp_path: Path) -> None:
    quantise(original, tmp_path / "quantised", "8bit", n_threads=1)
    with pytest.raises(BackendError, match=r"^quantised holds 8bit weights: they cannot become 4bit$"):
        weights.load(tmp_path / "quantised", "4bit")


def test_a_family_that_mlx_lm_lacks_is_one_clear_line(original: Path, tmp_path: Path) -> None:
    for file in original.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "nobody"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackendError, match=r"mlx-lm cannot make 4bit of .*nobody not supported"):
        quantise(tmp_path, tmp_path / "out", "4bit", n_threads=1)
