"""What a word of -w means, and that each refusal names something that is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import EngineInfo
from harness.errors import UserError
from harness.models.source import resolve
from harness.quantise.names import check_known, made_by, obstacle, own_name, roofline_name
from harness.roofline.mixtures import MIXTURES, NEEDS_IMPORTANCE
from harness.roofline.nominal import PLAIN, WEIGHT_FORMATS, nominal_weights

ALL = EngineInfo("1.0", "CPU", quantised_formats=(*MIXTURES, "4bit", "8bit", "mxfp4", "nvfp4"))
LLAMA = resolve("llama-3.2-1b").architecture


@given(st.sampled_from(sorted(WEIGHT_FORMATS)), st.sampled_from(["torch", "mlx", "llama.cpp"]))
def test_an_engines_own_name_is_its_own_name(word: str, backend: str) -> None:
    check_known((word, word.upper()))
    name = own_name(word.upper(), backend)
    assert own_name(name, backend) == name


@given(st.text(max_size=12))
def test_a_word_is_known_or_refused_in_one_line(word: str) -> None:
    if word.lower() in WEIGHT_FORMATS:
        check_known((word,))
        return
    with pytest.raises(UserError, match="unknown format"):
        check_known(("bf16", word))


def test_mxfp4_is_another_thing_to_each_engine() -> None:
    # llama.cpp's keeps what is no expert at 34 bytes for 32 numbers, MLX's has 17 of them everywhere.
    llama_cpp, mlx = (roofline_name(own_name("mxfp4", name), name) for name in ("llama.cpp", "mlx"))
    assert nominal_weights(LLAMA, llama_cpp).n_bytes == pytest.approx(2 * nominal_weights(LLAMA, mlx).n_bytes, rel=1e-3)


def test_an_importance_matrix_is_asked_of_nobody() -> None:
    assert not NEEDS_IMPORTANCE & set(made_by(ALL, "llama.cpp"))
    for name in sorted(NEEDS_IMPORTANCE):
        reason = obstacle(name, ALL, "llama.cpp", LLAMA) or ""
        assert reason.startswith(f"{name} (-w) needs an importance matrix"), reason
        offered = reason.rpartition("; ")[2].removesuffix(" need none").split(" and ")
        assert all(obstacle(near, ALL, "llama.cpp", LLAMA) is None for near in offered)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_formats_need_no_quantiser(name: str) -> None:
    assert obstacle(name, EngineInfo("1.0", "CPU"), "torch", LLAMA) is None


def test_torch_quantises_linear_layers_alone() -> None:
    torch = EngineInfo("2.13", "CPU", quantised_formats=("int8", "int4"))
    assert (own_name("8BIT", "torch"), own_name("4bit", "torch")) == ("int8", "int4")
    assert obstacle("int4", torch, "torch", LLAMA) is None
    for model, what in (("gpt2-mini", "the matrices of gpt2"), ("qwen3-30b-a3b", "experts")):
        reason = obstacle("int8", torch, "torch", resolve(model).architecture)
        assert reason == f"torchao quantises linear layers (-w int8), and {what} are in none"


def test_int8_and_int4_are_of_the_size_that_torchao_makes() -> None:
    # Llama 3.2 1B: 16 layers of 60 817 408 numbers in matrices; int8 with a scale to a row counts without it.
    matrices = 16 * 60_817_408
    kept = nominal_weights(LLAMA, "bf16").n_bytes - 2 * matrices
    assert nominal_weights(LLAMA, "int8").n_bytes == matrices + kept
    assert nominal_weights(LLAMA, "int4").n_bytes == matrices // 2 + matrices // 128 * 4 + kept
