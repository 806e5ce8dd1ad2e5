"""One device's answer, against a pencil: Llama 3.1 8B in bf16 on a device of round numbers.

The fitted numbers are taken as they are; how they are put together is worked out here once more.
"""

import math
from dataclasses import replace

import pytest

from harness.models.presets import PRESETS
from harness.prediction.coefficients import load_coefficients
from harness.prediction.hardware import Hardware
from harness.prediction.predict import predict
from harness.prediction.question import Question
from harness.prediction.target import Target
from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import nominal_weights
from harness.workload import Case

WEIGHTS = nominal_weights(from_hf_config(PRESETS["llama-3.1-8b"]), "bf16")
LAYER = 218_112_000  # parameters: Q and O 4096², K and V 4096 x 1024, three of 4096 x 14 336, two norms
TABLE, NORM = 128_256 * 4096, 4096
STREAMED = 2 * (32 * LAYER + TABLE + NORM)
KV_LAYER = 2 * 8 * 128 * 2  # bytes a token
WORKSPACE = 512 * 4 * (128_256 + 2 * 4096) + 4 * 128_256
FITTED = load_coefficients()

CARD = Target("card", None, Hardware(500e9, release_year=2023, fp16_flops_s=100e12), 80 * 10**9, 25e9, None)
MAC = replace(CARD, name="mac", link_bytes_s=None)
HOST = Target("RAM", None, Hardware(50e9, release_year=2023), None, None, None)


def ask(n_depth: int, n_prompt: int, n_gen: int) -> Question:
    return Question(WEIGHTS, Case(n_depth, n_prompt, n_gen))


def step_s(n_bytes: float, n_layers: int, bandwidth: float = 500e9) -> float:
    excess = FITTED.decode.excess * (bandwidth / 500e9) ** FITTED.decode.bandwidth_exponent
    return float(n_bytes / bandwidth * (1 + excess) + n_layers * FITTED.decode.layer_s)


def prefill_s(n_prompt: int, share: float = 1.0) -> float:
    """Two operations a parameter and token, the head's once; four a query, key and element of 32 heads of 128."""
    flops = 2 * n_prompt * (32 * LAYER + NORM) + 2 * TABLE + 4 * 32 * 32 * 128 * n_prompt * (n_prompt + 1) // 2
    reached = FITTED.prefill.by_matrix_rate.any_class * share * (100e12 * 500e9**2) ** (1 / 3)
    return float(flops / reached)


def layers_fit(n_layers: int, context: int) -> int:
    """Bytes of the output layer, so many of the others, and what they compute in; the cache in cells of 256 tokens."""
    cells = math.ceil(context / 256) * 256
    return 2 * (TABLE + NORM) + WORKSPACE + n_layers * (2 * LAYER + cells * KV_LAYER)


def test_a_long_prompt_takes_the_time_of_computing_it() -> None:
    found = predict(ask(0, 4096, 1), CARD, HOST).ttft_s
    spread = FITTED.prefill.by_matrix_rate.spread
    assert found is not None
    assert found.mid == pytest.approx(prefill_s(4096))
    assert found.low == pytest.approx(prefill_s(4096, spread.high))
    assert found.high == pytest.approx(prefill_s(4096, spread.low))
    assert prefill_s(4096) > 5 * step_s(STREAMED, 32)


def test_a_prompt_of_one_token_takes_the_time_of_reading_the_weights() -> None:
    found = predict(ask(0, 1, 1), CARD, HOST).ttft_s
    assert found is not None
    assert found.mid == pytest.approx(step_s(STREAMED, 32))
    assert found.high == pytest.approx(step_s(STREAMED, 32) / FITTED.decode.spread.low)
    assert prefill_s(1) < step_s(STREAMED, 32) / 5


def test_decode_reads_the_weights_and_the_mean_context() -> None:
    found = predict(ask(1000, 512, 129), CARD, HOST)
    # 128 steps, at 1512 tokens and on to 1639.
    step_bytes = STREAMED + 32 * KV_LAYER * (1512 + 127 / 2)
    assert found.decode_tok_s is not None
    assert found.ceiling is not None
    assert found.decode_tok_s.mid == pytest.approx(1 / step_s(step_bytes, 32))
    assert found.decode_tok_s.low == pytest.approx(FITTED.decode.spread.low / step_s(step_bytes, 32))
    assert found.ceiling.tok_s == pytest.approx(500e9 / step_bytes)


def test_a_request_is_ttft_and_the_tokens_after_the_first() -> None:
    found = predict(ask(0, 512, 129), CARD, HOST)
    assert found.ttft_s is not None
    assert found.decode_tok_s is not None
    assert found.request_s is not None
    assert found.request_s.mid == pytest.approx(found.ttft_s.mid + 128 / found.decode_tok_s.mid)
    assert found.request_s.low == pytest.approx(found.ttft_s.low + 128 / found.decode_tok_s.high)
    assert found.request_s.high == pytest.approx(found.ttft_s.high + 128 / found.decode_tok_s.low)


def test_a_request_without_a_prompt_and_one_without_decode() -> None:
    without_prompt = predict(ask(512, 0, 128), CARD, HOST)
    assert without_prompt.ttft_s is None
    assert without_prompt.decode_tok_s is not None
    assert without_prompt.request_s is not None
    assert without_prompt.request_s.mid == pytest.approx(128 / without_prompt.decode_tok_s.mid)
    one_token = predict(ask(0, 512, 1), CARD, HOST)
    assert one_token.ttft_s is not None
    assert one_token.request_s is not None
    assert one_token.request_s.mid == pytest.approx(one_token.ttft_s.mid)


def test_two_memories_work_one_after_the_other() -> None:
    small = replace(CARD, capacity_bytes=layers_fit(8, 1301))
    found = predict(ask(0, 1300, 1), small, HOST)
    assert (found.fits, found.gpu_layers, found.bound) == (False, 9, "host memory")
    assert found.notes == ("24 of 33 layers in RAM, whose size is not checked",)
    on_card = 2 * (8 * LAYER + TABLE + NORM) + 8 * KV_LAYER * 1300
    on_host = 2 * 24 * LAYER + 24 * KV_LAYER * 1300
    assert found.decode_tok_s is not None
    assert found.ceiling is not None
    assert found.decode_tok_s.mid == pytest.approx(1 / (step_s(on_card, 8) + step_s(on_host, 24, 50e9)))
    assert found.ceiling.tok_s == pytest.approx(1 / (on_card / 500e9 + on_host / 50e9))


@pytest.mark.parametrize(
    ("n_prompt", "pieces", "link", "reached"),
    [(1300, 3, 25e9, 25e9), (1024, 2, 25e9, 25e9), (1, 1, 25e9, 25e9), (1300, 3, 64e9, 50e9)],
)
def test_each_piece_of_512_tokens_copies_the_host_layers_over_the_link(
    n_prompt: int, pieces: int, link: float, reached: float
) -> None:
    small = replace(CARD, capacity_bytes=layers_fit(8, n_prompt + 1), link_bytes_s=link)
    found = predict(ask(0, n_prompt, 1), small, HOST).ttft_s
    copying_s = pieces * 2 * 24 * LAYER / reached
    assert found is not None
    assert found.mid == pytest.approx(max(prefill_s(n_prompt), step_s(STREAMED, 32)) + copying_s)


def test_what_fits() -> None:
    whole = 2 * (32 * LAYER + 2 * TABLE + NORM) + WORKSPACE + 32 * 1024 * KV_LAYER
    exact = predict(ask(0, 640, 129), replace(CARD, capacity_bytes=whole), HOST)
    # 769 tokens take four blocks of 256; the next 256 do not fit.
    assert (exact.fits, exact.needed_bytes, exact.max_context, exact.gpu_layers) == (True, whole, 1024, 33)
    assert exact.kv_bytes_per_token == 131_072
    assert exact.kv_cache_bytes == 769 * 131_072
    assert exact.notes == ()
    less = predict(ask(0, 640, 129), replace(CARD, capacity_bytes=whole - 1), HOST)
    assert (less.fits, less.max_context, less.gpu_layers) == (False, 768, 33)
    assert less.notes == ("all layers fit; the input embedding stays on the host",)
    assert less.decode_tok_s == exact.decode_tok_s
    assert predict(ask(0, 512, 1), MAC, HOST).gpu_layers is None


def test_no_room_and_no_other_memory() -> None:
    found = predict(ask(0, 512, 1), replace(MAC, capacity_bytes=10**9), HOST)
    assert (found.fits, found.max_context, found.gpu_layers) == (False, None, None)
    assert (found.ceiling, found.decode_tok_s, found.ttft_s, found.request_s, found.bound) == (None,) * 5
    assert found.notes == ("does not fit, and there is no other memory",)


def test_capacity_unknown() -> None:
    found = predict(ask(0, 512, 1), replace(CARD, capacity_bytes=None), HOST)
    assert (found.fits, found.max_context, found.gpu_layers) == (None, None, None)
    assert found.decode_tok_s == predict(ask(0, 512, 1), CARD, HOST).decode_tok_s
    assert found.notes == ("how much it can hold is not known; --capacity GB tells",)


def test_bandwidth_unknown() -> None:
    found = predict(ask(0, 512, 1), replace(CARD, hardware=None), HOST)
    assert (found.fits, found.gpu_layers) == (True, 33)
    assert (found.ceiling, found.decode_tok_s, found.ttft_s, found.request_s, found.bound) == (None,) * 5
    assert found.notes == ("the vendor's bandwidth is not known",)


def test_more_tokens_than_the_model_is_made_for() -> None:
    found = predict(ask(131_000, 72, 1), CARD, HOST)
    assert found.notes == ("131073 tokens are more than the 131072 that the model is made for",)
    assert predict(ask(131_000, 71, 1), CARD, HOST).notes == ()


def test_what_bounds_a_step() -> None:
    assert predict(ask(0, 512, 1), CARD, HOST).bound == "memory"
    # A step computes two operations for each 2 bytes: at 0.4e12 a second it takes longer than reading at 0.5e12.
    assert predict(ask(0, 512, 1), replace(CARD, matrix_flops_s=0.4e12), HOST).bound == "compute"
    assert predict(ask(0, 512, 1), replace(CARD, matrix_flops_s=0.6e12), HOST).bound == "memory"


def test_mlx_formats_are_known_by_name_and_by_their_tensors() -> None:
    assert Question(WEIGHTS, Case(0, 1, 1), weight_format="4bit").is_mlx
    assert not Question(WEIGHTS, Case(0, 1, 1), weight_format="q4_k_m").is_mlx
    assert not ask(0, 1, 1).is_mlx
    part = replace(WEIGHTS.parts[1], name="model.layers.0.self_attn.q_proj.biases")
    assert Question(replace(WEIGHTS, parts=(*WEIGHTS.parts, part)), Case(0, 1, 1)).is_mlx


def test_mlx_kernels_read_faster_on_apple() -> None:
    apple = replace(MAC, hardware=Hardware(500e9, "apple", 2023))
    mlx = Question(WEIGHTS, Case(0, 1, 1), weight_format="4bit")
    plain, faster = (predict(question, apple, HOST) for question in (ask(0, 1, 1), mlx))
    assert plain.decode_tok_s is not None
    assert faster.decode_tok_s is not None
    assert faster.decode_tok_s.mid > plain.decode_tok_s.mid
    assert plain.ttft_s is not None
    assert faster.ttft_s is not None
    assert faster.ttft_s.mid < plain.ttft_s.mid
    assert predict(mlx, CARD, HOST).decode_tok_s == predict(ask(0, 1, 1), CARD, HOST).decode_tok_s
