"""The best split between a GPU and the host, against a pencil: models whose layers have a round number of bytes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.presets import PRESETS
from harness.prediction.hardware import Hardware
from harness.prediction.held import Held, decode_tok_s
from harness.prediction.offload import Choice, layers_that_fit, offload
from harness.prediction.predict import predict
from harness.prediction.question import Question
from harness.prediction.target import Target
from harness.roofline.hf_config import from_hf_config
from harness.roofline.placement import split
from harness.roofline.weights import Use, Weight, Weights
from harness.workload import Case

GB = 10**9
RAM = Target("RAM", None, Hardware(90e9, release_year=2023), None, None, None)
GPU = Target("GPU", None, Hardware(1800e9, release_year=2023), 32 * GB, 25e9, None)

DENSE = from_hf_config(PRESETS["llama-3.1-70b"])  # 80 layers
MIXTURE = from_hf_config(PRESETS["qwen3-30b-a3b"])  # 48 layers, of 128 experts each token takes 8
DENSE_WORKSPACE = 256 * 4 * (128_256 + 2 * 8192) + 4 * 128_256
DENSE_KV_LAYER = 256 * 4096  # 256 cells of 2 · 8 heads · 128 · 2 bytes
MIXTURE_KV_LAYER = 256 * 2 * 4 * 128 * 2


def _part(name: str, layer: int | None, n_bytes: int, use: Use = Use.READ) -> Weight:
    return Weight(name, layer, n_bytes // 2, n_bytes, use)


def _dense() -> Question:
    """80 layers of 0.5 GB, an output layer of 1 GB; no KV cache to speak of: one token is decoded after one."""
    layers = [_part("all", layer, GB // 2) for layer in range(80)]
    return Question(Weights(DENSE, (*layers, _part("output", None, GB))), Case(0, 1, 1))


def _mixture() -> Question:
    """48 layers of 0.1 GB of attention and 1.6 GB of experts, of which a token reads a sixteenth: 0.1 GB."""
    layers = [_part("attn", layer, GB // 10) for layer in range(48)]
    experts = [_part("ffn_up_exps", layer, 16 * GB // 10, Use.ROUTED) for layer in range(48)]
    return Question(Weights(MIXTURE, (*layers, *experts, _part("output", None, GB))), Case(0, 1, 1))


def _room(n_layers: int) -> int:
    """What the output layer, so many others and the workspace take."""
    return GB + n_layers * (GB // 2 + DENSE_KV_LAYER) + DENSE_WORKSPACE


def test_twenty_gb_left_in_memory_of_90_gb_a_second_cost_0_22_s_a_token() -> None:
    found = predict(_dense(), replace(GPU, capacity_bytes=_room(40)), RAM)
    assert found.offload is not None
    best = found.offload.best
    assert best.n_gpu_layers == found.gpu_layers == 41
    assert best.host_bytes == pytest.approx(20e9, rel=1e-4)
    assert best.host_s == pytest.approx(0.2222, rel=1e-3)
    # And 21 GB at 1800 GB/s: 11.7 ms. A GPU of any speed stays below 4.5 tokens a second.
    assert found.ceiling is not None
    assert found.ceiling.tok_s == pytest.approx(1 / (20 / 90 + 21 / 1800), rel=1e-3)
    assert found.decode_tok_s == best.decode_tok_s
    assert best.decode_tok_s.high < 4.5


def test_one_gb_more_takes_two_layers_of_half_a_gb() -> None:
    # One layer's KV cache of 1 MiB is what the second of two layers of exactly half a GB would lack.
    spare = 2 * DENSE_KV_LAYER
    found = offload(_dense(), replace(GPU, capacity_bytes=_room(40) + spare), RAM)
    assert (found.best.n_gpu_layers, found.one_gb_more.n_gpu_layers) == (41, 43)
    assert found.best.host_bytes - found.one_gb_more.host_bytes == pytest.approx(1e9, rel=1e-3)
    assert found.one_gb_more.decode_tok_s.mid > found.best.decode_tok_s.mid
    assert found.experts_on_host is None  # there are none
    without = offload(_dense(), replace(GPU, capacity_bytes=_room(40)), RAM)
    assert without.one_gb_more.n_gpu_layers == 42


def test_a_gpu_slower_than_the_host_gets_nothing() -> None:
    slow = replace(GPU, hardware=Hardware(9e9, release_year=2023), capacity_bytes=_room(40))
    found = offload(_dense(), slow, RAM)
    assert found.best.n_gpu_layers == found.one_gb_more.n_gpu_layers == 0
    assert found.best.host_bytes == pytest.approx(41e9, rel=1e-4)


def test_experts_on_the_host_leave_the_gpu_what_every_token_reads() -> None:
    question = _mixture()
    workspace = question.needed.workspace_bytes
    # All layers without experts are 48 · 0.1 + 1 = 5.8 GB; beside them 10 layers' experts of 1.6 GB: 21.8 GB.
    room = 218 * GB // 10 + 48 * MIXTURE_KV_LAYER + workspace
    found = offload(question, replace(GPU, capacity_bytes=room), RAM)
    experts = found.experts_on_host
    assert experts is not None
    assert (experts.n_gpu_layers, experts.n_cpu_moe) == (49, 38)
    # 38 layers' experts, 0.1 GB of each; against 36 whole layers of 0.2 GB: 12 of 1.7 GB fit beside the output layer.
    assert experts.host_bytes == pytest.approx(3.8e9, rel=1e-3)
    assert found.best.n_gpu_layers == 13
    assert found.best.host_bytes == pytest.approx(7.2e9, rel=1e-3)
    assert experts.decode_tok_s.mid > found.best.decode_tok_s.mid
    one_less = offload(question, replace(GPU, capacity_bytes=room - 1), RAM).experts_on_host
    assert one_less is not None
    assert one_less.n_cpu_moe == 39


def test_experts_are_no_alternative_where_the_rest_does_not_fit() -> None:
    question = _mixture()
    rest = 58 * GB // 10 + 48 * MIXTURE_KV_LAYER + question.needed.workspace_bytes
    fitting = offload(question, replace(GPU, capacity_bytes=rest), RAM).experts_on_host
    assert fitting is not None
    assert fitting.n_cpu_moe == 48
    assert offload(question, replace(GPU, capacity_bytes=rest - 1), RAM).experts_on_host is None


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.1, 60),
    st.floats(20e9, 4000e9),
    st.floats(20e9, 400e9),
    st.sampled_from([_dense(), _mixture()]),
)
def test_what_is_chosen_fits_and_more_memory_never_harms(
    room_gb: float, gpu_bytes_s: float, host_bytes_s: float, question: Question
) -> None:
    gpu = replace(GPU, hardware=Hardware(gpu_bytes_s, release_year=2023), capacity_bytes=round(room_gb * 1e9))
    found = offload(question, gpu, replace(RAM, hardware=Hardware(host_bytes_s, release_year=2023)))
    assert gpu.capacity_bytes is not None
    assert found.best.n_gpu_layers <= layers_that_fit(question, gpu.capacity_bytes)
    assert found.one_gb_more.decode_tok_s.mid >= found.best.decode_tok_s.mid * (1 - 1e-12)  # equal but for rounding
    for each in filter(None, (found.best, found.one_gb_more, found.experts_on_host)):
        assert _read(each, question) == pytest.approx(question.weights.streamed_bytes(), rel=0.01)


@settings(max_examples=20, deadline=None)
@given(
    st.floats(2, 60),
    st.floats(20e9, 4000e9),
    st.floats(20e9, 400e9),
    st.sampled_from([_dense(), _mixture()]),
)
def test_the_best_is_the_fastest_of_all_that_fit(
    room_gb: float, gpu_bytes_s: float, host_bytes_s: float, question: Question
) -> None:
    gpu = replace(GPU, hardware=Hardware(gpu_bytes_s, "nvidia", 2023), capacity_bytes=round(room_gb * 1e9))
    host = replace(RAM, hardware=Hardware(host_bytes_s, "cpu", 2023))
    assert gpu.hardware is not None
    assert host.hardware is not None
    assert gpu.capacity_bytes is not None
    hardware = {gpu.memory: gpu.hardware, host.memory: host.hardware}
    rates = [
        decode_tok_s(
            question, [Held(share, hardware[share.memory]) for share in split(question.weights, count, *hardware)]
        )
        for count in range(layers_that_fit(question, gpu.capacity_bytes) + 1)
    ]
    assert offload(question, gpu, host).best.decode_tok_s.mid == pytest.approx(max(rate.mid for rate in rates))


def _read(choice: Choice, question: Question) -> float:
    """All bytes of a step; those of the KV cache, of one token, are nothing beside them."""
    return sum(held.step_bytes(question) for held in choice.held)
