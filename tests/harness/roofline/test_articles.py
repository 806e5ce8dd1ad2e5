"""Every figure of the articles that people learn this from, by our own arithmetic."""

import pytest

from harness.machine.catalog import find
from harness.models.presets import PRESETS
from harness.roofline.architecture import Architecture, Attention, FeedForward, Layer
from harness.roofline.ceiling import Memory, decode_ceiling, whole
from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import nominal_weights
from harness.roofline.traffic import kv_bytes_per_token, kv_cache_bytes
from harness.roofline.weights import Use, Weight, Weights

KI, GIB = 1024, 2**30
LLAMA_31 = from_hf_config(PRESETS["llama-3.1-8b"])
LLAMA_2 = from_hf_config(PRESETS["llama-2-7b"])


def test_llama_31_8b_in_fp16() -> None:
    assert kv_bytes_per_token(LLAMA_31, 2) == 131_072
    assert kv_cache_bytes(LLAMA_31, 8 * KI) == GIB
    assert kv_cache_bytes(LLAMA_31, 128 * KI) == 16 * GIB


def test_llama_2_7b_in_fp16() -> None:
    assert kv_bytes_per_token(LLAMA_2, 2) == 524_288
    assert kv_cache_bytes(LLAMA_2, 4096) == 2 * GIB
    assert kv_cache_bytes(LLAMA_2, 32 * KI) == 16 * GIB
    assert kv_cache_bytes(LLAMA_2, 128 * KI) == 64 * GIB


def test_seven_billion_parameters() -> None:
    # "7B" is 6.74 billion.
    assert nominal_weights(LLAMA_2, "f16").n_bytes == 2 * 6_738_415_616 == pytest.approx(14e9, rel=0.04)
    assert nominal_weights(LLAMA_2, "f32").n_bytes == pytest.approx(28e9, rel=0.04)


def test_20_gb_at_90_gb_a_second() -> None:
    # A model that is nothing but 20 GB to read; its one layer has no keys to speak of.
    layer = Layer(Attention(1, 1, 1, 1), FeedForward(1), 0)
    arch = Architecture("toy", 1, 1, True, None, (layer,), 0)
    weights = Weights(arch, (Weight("output", None, 10**10, 20 * 10**9, Use.READ),))
    ceiling = decode_ceiling(whole(weights, Memory("DDR5", 90e9)), decode_start=0, n_steps=1)
    assert 1 / ceiling.tok_s == pytest.approx(0.222, abs=0.0005)
    # However fast the GPU that waits for them: over PCIe the link decides, beside it the memory.
    fetched = Memory("DDR5 over NVLink-C2C", 90e9, link_bytes_s=900e9)
    assert decode_ceiling(whole(weights, fetched), decode_start=0, n_steps=1).tok_s == ceiling.tok_s


def test_m5_ultra_against_gb10() -> None:
    ultra, spark = find("M5 Ultra"), find("DGX Spark")
    assert ultra.memory_bytes / spark.memory_bytes == 4
    assert ultra.bandwidth_gbs is not None
    assert spark.bandwidth_gbs is not None
    assert ultra.bandwidth_gbs / spark.bandwidth_gbs == pytest.approx(4.4, abs=0.05)


def test_five_requests_mix_units() -> None:
    # "10 GB / 2 GiB = 5 requests" of 4096 tokens each: GB and GiB differ by 7 %, and the fifth does not fit.
    request = kv_cache_bytes(LLAMA_2, 4096)
    assert 10e9 / request == pytest.approx(4.66, abs=0.005)
    assert 10 * GIB / request == 5
