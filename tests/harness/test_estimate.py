"""The time estimate against a pencil, for Llama 3.1 8B in bf16."""

import pytest

from harness.estimate import ACCELERATOR, Rates, WorkEstimate, accelerator_rates, estimate, host_rates
from harness.models.source import resolve
from harness.workload import Case

PARAMS = 8_030_261_248  # as Meta publishes them
TABLE = 128_256 * 4096  # the input embedding, looked up; the LM head is another such table
STREAMED_BYTES = (PARAMS - TABLE) * 2
KV_TOKEN = 131_072
STEP_OVERHEAD_S = 1e-3


def _estimate(*cases: Case, bytes_s: float = 1e12, flops_s: float = 1e14) -> WorkEstimate:
    return estimate(resolve("llama-3.1-8b").architecture, 2.0, PARAMS * 2, cases, Rates(bytes_s, flops_s))


def test_a_decode_step_takes_the_streamed_bytes_over_the_bandwidth() -> None:
    empty, deep, four = Case(0, 0, 100), Case(4096, 0, 100), Case(4096, 0, 100, batch=4)
    times = _estimate(empty, deep, four).case_s
    for case, batch, context in ((empty, 1, 50), (deep, 1, 4146), (four, 4, 4146)):
        step_s = (STREAMED_BYTES + batch * context * KV_TOKEN) / 1e12 + STEP_OVERHEAD_S
        assert times[case] == pytest.approx(100 * step_s)
    assert times[empty] == pytest.approx(1.6, rel=0.01), "15 GB at 1 TB/s and a millisecond, a hundred times"


def test_a_prefill_takes_its_flops_over_the_rate() -> None:
    case = Case(0, 512, 1)  # no decode step: the prefill gives the token
    body = PARAMS - 2 * TABLE
    attention = 4 * 32 * 32 * 128 * (512 * 513 // 2)  # layers · heads · head size · pairs of a token and one before it
    flops = 2 * 512 * body + 2 * TABLE + attention
    assert _estimate(case).case_s[case] == pytest.approx(flops / 1e14)


def test_a_short_prefill_still_reads_the_weights() -> None:
    case = Case(0, 1, 1)
    assert _estimate(case).case_s[case] == pytest.approx(STREAMED_BYTES / 1e12)


def test_a_launch_is_loading_probe_depth_warm_up_and_repetitions() -> None:
    case = Case(4096, 512, 128)
    parts = _estimate(case)
    assert parts.load_s == pytest.approx(5 + 16.06, rel=1e-3), "an import, then 1 GB/s"
    assert parts.fill_s[case] > 4 * _estimate(Case(0, 512, 1)).case_s[Case(0, 512, 1)]
    total = parts.load_s + parts.probe_s + parts.fill_s[case] + 4 * parts.case_s[case]
    assert parts.launch_s({case: 3}) == pytest.approx(total)
    assert parts.launch_s({}) == parts.load_s + parts.probe_s


def test_no_depth_costs_nothing() -> None:
    case = Case(0, 512, 128)
    assert _estimate(case).fill_s[case] == 0


def test_the_far_part_of_the_probe_is_given_up_where_it_would_take_too_long() -> None:
    # 2112 tokens are about 30 TFLOP.
    whole = _estimate(flops_s=1e12).probe_s
    assert 25 < whole < 40
    assert _estimate(flops_s=0.8e12).probe_s == pytest.approx(whole / 0.8)
    assert _estimate(flops_s=0.5e12).probe_s == pytest.approx(2 * whole / 8), "one of eight pieces, then it knows"


def test_this_host_has_rates() -> None:
    rates = host_rates()
    # Slower than any machine with a 64-bit Python, and faster than any host's memory and cores.
    assert 1e8 < rates.bytes_s < 1e13
    assert 1e8 < rates.flops_s < 1e15


def test_an_accelerator_of_the_catalog_is_estimated_by_its_own_bandwidth() -> None:
    spark, rtx = accelerator_rates("NVIDIA GB10", None), accelerator_rates("NVIDIA GeForce RTX 5090", 32 * 2**30)
    assert rtx.bytes_s / spark.bytes_s == pytest.approx(1792 / 273.056)
    assert spark.bytes_s < 273.056e9
    assert rtx.flops_s > spark.flops_s
    # An RTX 3080 without its memory size may be either of two.
    assert accelerator_rates("NVIDIA GeForce RTX 3080", None) == ACCELERATOR
    assert accelerator_rates("Voodoo 2", None) == ACCELERATOR


def test_without_a_cache_each_step_is_the_prefill_of_its_whole_prefix() -> None:
    prefixes = [Case(0, n, 1) for n in (512, 513, 514)]
    uncached = Case(0, 512, 3, kv_cache="off")
    parts = _estimate(uncached, *prefixes)
    assert parts.case_s[uncached] == pytest.approx(sum(parts.case_s[case] for case in prefixes) + 3 * STEP_OVERHEAD_S)
    assert parts.fill_s[uncached] == parts.case_s[prefixes[0]], "what its answers are compared with is computed once"


def test_an_earlier_text_is_filled_in_again_before_its_prefix_is_reused() -> None:
    cached, reused = Case(512, 512, 1), Case(512, 512, 1, kv_cache="prefix")
    parts = _estimate(cached, reused)
    assert parts.case_s[reused] == pytest.approx(2 * parts.case_s[cached])
