"""Contexts and memory that are too small, with the needs of Llama 3.1 8B worked out by hand."""

from types import SimpleNamespace

import psutil
import pytest

from backends.base import Accelerator, EngineInfo
from harness.errors import UserError
from harness.estimate import Rates
from harness.limits import check_context, memory_needed, memory_obstacle
from harness.models.source import resolve
from harness.options import Options
from harness.work import Work, combinations
from harness.workload import Case

MODEL = "llama-3.1-8b"
WEIGHTS = 8_030_261_248 * 2  # parameters as Meta publishes them, bf16
KV_TOKEN = 2 * 32 * 8 * 128 * 2  # keys and values · layers · KV heads · head size · bytes of f16
GB = 10**9
ANCHOR = (Case(0, 512, 128),)


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _work(backend: str = "torch", memories: tuple[int | None, ...] = (), **options: object) -> Work:
    gpus = tuple(Accelerator(f"gpu{index}", "NVIDIA A10", memory) for index, memory in enumerate(memories))
    (work,) = combinations(Options(**options), [resolve(MODEL)], {backend: EngineInfo("1.0", "build", gpus)})
    return work


def _set_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free, total=2 * free))


@pytest.mark.parametrize(("case", "fits"), [(Case(128, 96, 32), True), (Case(129, 96, 32), False)])
def test_a_case_must_fit_the_models_context(case: Case, fits: bool) -> None:
    mini = resolve("gpt2-mini")  # 256 positions
    if fits:
        check_context(mini, (case,))
    else:
        with pytest.raises(UserError, match=r"gpt2-mini holds 256 tokens, but depth 129 .* is 257; lower -d, -p or -n"):
            check_context(mini, (Case(0, 1, 1), case))


def test_memory_is_weights_and_kv_cache_and_a_workspace() -> None:
    assert round(WEIGHTS / GB, 2) == 16.06
    assert KV_TOKEN == 131_072
    workspace = memory_needed(_work(), (Case(8192, 512, 128),)) - WEIGHTS - (8192 + 512 + 128) * KV_TOKEN
    assert 0.1 * GB < workspace < GB


def test_memory_grows_with_depth_batch_and_format() -> None:
    shallow, deep = (Case(4096, 512, 128),), (Case(4096, 512, 128), Case(8192, 512, 128))
    assert memory_needed(_work(), deep) - memory_needed(_work(), shallow) == 4096 * KV_TOKEN
    four = (Case(4096, 512, 128, batch=4),)
    assert memory_needed(_work(), four) - memory_needed(_work(), shallow) == 3 * 4736 * KV_TOKEN
    f32 = memory_needed(_work(weights="f32"), shallow) - memory_needed(_work(), shallow)
    assert f32 == WEIGHTS + 4736 * KV_TOKEN
    assert memory_needed(_work(), (Case(0, 1, 1),)) > WEIGHTS + 2048 * KV_TOKEN, "the probe needs its context too"


def test_a_model_must_fit_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, 20 * GB)
    assert memory_obstacle(_work(), ANCHOR) is None
    _set_free(monkeypatch, 16 * GB)
    obstacle = memory_obstacle(_work(), ANCHOR)
    assert "llama-3.1-8b bf16 on torch needs about 16.8 GB, but 16.0 GB are free" in obstacle
    assert "-m" in obstacle


def test_a_model_must_fit_its_gpu_whatever_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    assert memory_obstacle(_work(memories=(24 * GB,)), ANCHOR) is None
    assert "12.0 GB are on the NVIDIA A10" in memory_obstacle(_work(memories=(12 * GB,)), ANCHOR)
    assert "12.0 GB are on the NVIDIA A10" in memory_obstacle(_work(memories=(12 * GB, 12 * GB)), ANCHOR)
    assert memory_obstacle(_work(memories=(24 * GB,), device="cpu"), ANCHOR) is not None


def test_llama_cpp_splits_a_model_over_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    assert memory_obstacle(_work("llama.cpp", (12 * GB, 12 * GB)), ANCHOR) is None
    assert "16.0 GB are on this machine's GPUs" in memory_obstacle(_work("llama.cpp", (8 * GB, 8 * GB)), ANCHOR)


def test_what_is_not_known_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    assert memory_obstacle(_work(memories=(None,)), ANCHOR) is None
    assert memory_obstacle(_work("llama.cpp", (8 * GB, None)), ANCHOR) is None


def test_a_model_larger_than_its_gpu_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, 12 * GB)
    assert memory_obstacle(_work("llama.cpp", (8 * GB,), n_gpu_layers=12), ANCHOR) is None
    assert "8.00 GB are on this machine's GPUs" in memory_obstacle(_work("llama.cpp", (8 * GB,)), ANCHOR)
    # 16.8 GB must lie somewhere: 8 GB there and 6 GB here are too little, and so are 12 GB here alone.
    assert "12.0 GB are free in this machine's memory" in memory_obstacle(
        _work("llama.cpp", (24 * GB,), n_gpu_layers=0), ANCHOR
    )
    _set_free(monkeypatch, 6 * GB)
    obstacle = memory_obstacle(_work("llama.cpp", (8 * GB,), n_gpu_layers=12), ANCHOR)
    assert "14.0 GB are on this machine's GPUs and free in its memory" in obstacle


def test_the_memory_of_a_tier_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    two = (10 * GB, 10 * GB)
    assert memory_obstacle(_work("llama.cpp", two, rpc="127.0.0.1:50052"), ANCHOR) is None
    assert memory_obstacle(_work("llama.cpp", two, rpc="127.0.0.1:50052", device="gpu0"), ANCHOR) is not None


def test_a_kv_cache_that_stays_on_the_host_needs_room_there(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = (Case(32_000, 512, 128),)
    kv = (32_000 + 512 + 128) * KV_TOKEN  # 4.3 GB
    assert 20 * GB < memory_needed(_work(), deep) < 21.5 * GB
    _set_free(monkeypatch, 5 * GB)
    assert memory_obstacle(_work("llama.cpp", (18 * GB,)), deep) is not None
    assert memory_obstacle(_work("llama.cpp", (18 * GB,), kv_offload=False), deep) is None
    _set_free(monkeypatch, kv - 1)
    obstacle = memory_obstacle(_work("llama.cpp", (18 * GB,), kv_offload=False), deep)
    assert "needs about 4.28 GB, but 4.28 GB are free in this machine's memory" in obstacle


def test_experts_that_stay_on_the_host_need_room_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = (Accelerator("gpu0", "NVIDIA A10", 40 * GB),)

    def obstacle(n_cpu_moe: int, free: int) -> str | None:
        _set_free(monkeypatch, free)
        options = Options(n_cpu_moe=n_cpu_moe)
        (work,) = combinations(options, [resolve("qwen3-30b-a3b")], {"llama.cpp": EngineInfo("1.0", "build", gpu)})
        return memory_obstacle(work, ANCHOR)

    # 61.1 GB in bf16, of which the experts of a layer take 128 · 3 · 2048 · 768 · 2 B: 1.208 GB.
    assert obstacle(0, 30 * GB) is not None
    assert obstacle(20, 30 * GB) is None
    assert "24.2 GB" in str(obstacle(20, 24 * GB))


def test_without_a_cache_a_pass_over_the_whole_text_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    cached, uncached = (Case(0, 512, 65_024, kv_cache=kv_cache) for kv_cache in ("on", "off"))
    # The widest moment of a layer: gate, up and their product, four vectors of the model's width, sines and cosines.
    assert KV_TOKEN > 2 * (3 * 14_336 + 4 * 4096 + 2 * 128)
    assert memory_needed(_work(), (uncached,)) == memory_needed(_work(), (cached,)), "the cache of its judge is larger"
    small = resolve("llama-3.2-1b")
    (work,) = combinations(Options(), [small], {"torch": EngineInfo("1.0", "build")})
    widest, token = 2 * (3 * 8192 + 4 * 2048 + 2 * 64), 2 * 16 * 8 * 64 * 2
    assert memory_needed(work, (uncached,)) - memory_needed(work, (cached,)) == 65_536 * (widest - token)
    _set_free(monkeypatch, 4 * GB)
    assert "needs about 7.28 GB, but 4.00 GB are free" in memory_obstacle(work, (uncached,))
    (pieces,) = combinations(Options(), [small], {"llama.cpp": EngineInfo("1.0", "build")})
    assert memory_needed(pieces, (uncached,)) == memory_needed(pieces, (cached,)), "it computes in pieces"
