"""Weights quantised tensor by tensor are, byte for byte, what llama.cpp's quantiser makes of the whole model's file."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from backends.llama_cpp.quantise import quantise, quantise_rows
from harness.models.gguf_export import Quantiser, export, synthetic, write
from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from harness.roofline.mixtures import MIXTURES, NEEDS_IMPORTANCE

# Eight layers, so that the first and the last eighth, which mixtures favour, are one each.
_SMALL = {
    "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 8, "hidden_size": 256,
    "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
}  # fmt: skip
_SMALL_GPT2 = {"vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2, "n_layer": 8, "n_embd": 256, "n_head": 4}
_OF_32, _OF_16 = {"hidden_size": 288}, {"hidden_size": 272}  # no blocks of 256 in a row; none of 32 either
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": PRESETS["gpt2"] | _SMALL_GPT2,
    "llama": PRESETS["llama-3.1-8b"] | _SMALL,
    "llama-tied": PRESETS["llama-3.2-1b"] | _SMALL,
    "llama-288": PRESETS["llama-3.1-8b"] | _SMALL | _OF_32,
    "llama-tied-272": PRESETS["llama-3.2-1b"] | _SMALL | _OF_16,
    "qwen2": PRESETS["qwen3-8b"] | _SMALL | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": PRESETS["qwen3-8b"] | _SMALL,
    "qwen3_moe": PRESETS["qwen3-30b-a3b"] | _SMALL | _EXPERTS,
    "qwen3_moe-288": PRESETS["qwen3-30b-a3b"] | _SMALL | _EXPERTS | _OF_32,
    "mixtral-8": PRESETS["mixtral-8x7b"] | _SMALL,
    "phi3": PRESETS["phi-4"] | _SMALL | {"pad_token_id": 0},
    "gemma2": PRESETS["gemma-2-9b"] | _SMALL | {"query_pre_attn_scalar": 64},
    "gemma3": PRESETS["gemma-3-1b"] | _SMALL | {"query_pre_attn_scalar": 64, "sliding_window_pattern": 4},
}
USUAL = ("q8_0", "q6_k", "q4_k_m", "q4_0", "q3_k_m", "iq4_xs")
QUANTISER = Quantiser(quantise_rows, 2)


def _directory(name: str, to: Path) -> Path:
    """What stood on the disk before there was a shorter way; also the name in the file comes from there."""
    if not (to / name).exists():
        synthesise(CONFIGS[name], to / name)
    return to / name


def _whole(name: str, to: Path) -> Path:
    path = to / f"{name}.gguf"
    if not path.exists():
        export(_directory(name, to), path, "bf16")
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mixture")


@pytest.mark.parametrize("plain", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_file_of_the_whole_model_needs_no_directory(name: str, plain: str, shared: Path, tmp_path: Path) -> None:
    export(_directory(name, shared), tmp_path / "exported.gguf", plain)
    write(synthetic(name, CONFIGS[name], 0), tmp_path / "direct.gguf", plain)
    assert (tmp_path / "direct.gguf").read_bytes() == (tmp_path / "exported.gguf").read_bytes()


@pytest.mark.parametrize("mixture", USUAL)
@pytest.mark.parametrize("name", CONFIGS)
def test_each_family_in_the_usual_mixtures(name: str, mixture: str, shared: Path, tmp_path: Path) -> None:
    _check(name, mixture, shared, tmp_path)


@pytest.mark.parametrize("mixture", sorted(MIXTURES.keys() - NEEDS_IMPORTANCE - set(USUAL)))
@pytest.mark.parametrize("name", ["llama", "llama-288", "qwen3_moe"])
def test_every_other_mixture_that_is_offered(name: str, mixture: str, shared: Path, tmp_path: Path) -> None:
    _check(name, mixture, shared, tmp_path)


def test_how_a_tensor_is_cut_into_pieces_does_not_show(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.models.gguf_export.checkpoint._PIECE_ELEMENTS", 20_000)
    monkeypatch.setattr("harness.models.gguf_export.writer._BLOCK_BYTES", 3_000)
    for name in ("gpt2", "llama", "qwen3_moe"):
        _check(name, "q4_k_m", shared, tmp_path)


def test_another_seed_is_another_file(tmp_path: Path) -> None:
    for seed in (0, 1):
        write(synthetic("llama", CONFIGS["llama"], seed), tmp_path / f"{seed}.gguf", "q4_0", quantiser=QUANTISER)
    assert (tmp_path / "0.gguf").read_bytes() != (tmp_path / "1.gguf").read_bytes()


def test_memory_stays_far_below_the_models_size_and_progress_is_told(tmp_path: Path) -> None:
    process = psutil.Process()
    write(synthetic("small", CONFIGS["gpt2"], 0), tmp_path / "small.gguf", "q4_0", quantiser=QUANTISER)  # loads ggml
    before = process.memory_info().rss
    seen: list[tuple[int, int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total, process.memory_info().rss))

    write(synthetic("gpt2", PRESETS["gpt2"], 0), tmp_path / "gpt2.gguf", "q8_0", quantiser=QUANTISER, progress=progress)
    done, totals, resident = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    # 34 bytes for 32 of the 124 439 808 numbers; positions, norms and biases keep four bytes each.
    f32 = 1024 * 768 + 12 * (2 * 2 * 768 + 3 * 768 + 768 + 4 * 768 + 768) + 2 * 768
    assert done[-1] == totals[-1] == (124_439_808 - f32) * 34 // 32 + 4 * f32
    assert max(resident) - before < totals[-1] / 2


def _check(name: str, mixture: str, shared: Path, tmp_path: Path) -> None:
    quantise(_whole(name, shared), tmp_path / "theirs.gguf", mixture, n_threads=2)
    write(synthetic(name, CONFIGS[name], 0), tmp_path / "ours.gguf", mixture, quantiser=QUANTISER)
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()
